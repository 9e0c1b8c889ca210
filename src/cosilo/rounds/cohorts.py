"""Which silos take part in a round: balanced random permutations of all silos, public and the same for everyone."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cosilo.entropy import Stream

__all__ = ["Schedule"]


@dataclass(slots=True)
class Schedule:
    """Cohorts of `size` out of `silos`, a function of the public run id.

    Random permutations of all silos are laid end to end and cut into cohorts; where a cohort straddles two
    permutations, a silo that would stand in it twice swaps places inside the second one. So every window of whole
    permutations contains each silo equally often, and after T rounds a silo was in at most
    ceil(size * T / len(silos)) cohorts. The server knows who takes part: no amplification is claimed for it.
    """

    run: bytes
    silos: Sequence[str]
    size: int
    _cohorts: list[tuple[str, ...]] = field(default_factory=list)
    _source: Iterator[tuple[str, ...]] | None = None

    def cohort(self, round_number: int) -> tuple[str, ...]:
        """The cohort of round 1, 2, ..., sorted."""
        source = self._source = self._source or self._cut()
        while len(self._cohorts) < round_number:
            self._cohorts.append(next(source))
        return self._cohorts[round_number - 1]

    def _cut(self) -> Iterator[tuple[str, ...]]:
        waiting: list[str] = []
        for number in itertools.count(1):
            fresh = self._permutation(number)
            # A cohort that straddles two permutations takes from the second the first silos that it does not hold yet.
            completing = [silo for silo in fresh if silo not in waiting][: self.size - len(waiting)]
            waiting += completing + [silo for silo in fresh if silo not in completing]
            while len(waiting) >= self.size:
                yield tuple(sorted(waiting[: self.size]))
                del waiting[: self.size]

    def _permutation(self, number: int) -> list[str]:
        """Fisher-Yates on a public stream; the bias of a 64-bit word modulo n is below n / 2^64."""
        key = hashlib.sha256(b"cosilo/1/cohorts" + self.run + number.to_bytes(8, "big")).digest()
        order = sorted(self.silos)
        words = Stream(key).words(len(order))
        for last in range(len(order) - 1, 0, -1):
            other = int(words[last]) % (last + 1)
            order[last], order[other] = order[other], order[last]
        return order
