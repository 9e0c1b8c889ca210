"""The contract of a local rule, free of torch: planning, accounting and silos read it without loading a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from cosilo.entropy import Stream
    from cosilo.mechanisms import Mechanism
    from cosilo.privacy import Event, Sensitivity

    Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

__all__ = ["LocalWork", "Release", "Rule", "Terms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The public numbers under which one silo works; nothing here depends on its rows.

    Attributes:
        clipping_norm: C, largest l2 norm of one row's gradient after clipping.
        sampling_rate: probability with which a row enters a round's batch; 1 means all rows.
        capacity: M, rows the silo may hold at most.
        share_multiplier: the silo's own noise sd / l2 sensitivity.
        dim: trainable parameters.
        micro_batch: rows whose gradients are held in memory at a time.
    """

    clipping_norm: float
    sampling_rate: float
    capacity: int
    share_multiplier: float
    dim: int
    micro_batch: int


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """What a rule computed, before noise.

    Attributes:
        vector: shape (dim,), float64; changes by at most `Rule.sensitivity` when a row is added or removed.
        non_finite: rows whose gradient was not finite and counted as zero; stays in the silo's own log.
    """

    vector: Vector
    non_finite: int


class LocalWork(Protocol):
    """A rule bound to one silo's model and rows."""

    def release(self, theta: Vector, batch: Stream) -> Release:
        """The rule's vector at the released model `theta`; batches are drawn from `batch`."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """A registry entry.

    Attributes:
        name: as written in `[local] rule`.
        assumption: what the guarantee rests on, one sentence for the statement.
        sensitivity: Terms -> l2 sensitivity of `Release.vector`.
        event: (Terms, Mechanism, honest contributors) -> what one round costs a row of that silo.
        divisor: Terms -> public number of rows a silo's sum stands for.
        compute_module: holds `prepare(module, x, y, terms) -> LocalWork`; imported when a silo starts to work.
    """

    name: str
    assumption: str
    sensitivity: Callable[[Terms], Sensitivity]
    event: Callable[[Terms, Mechanism, int], Event]
    divisor: Callable[[Terms], float]
    compute_module: str

    def prepare(self, module: Any, x: Any, y: Any, terms: Terms) -> LocalWork:  # noqa: ANN401 - torch stays out of here
        """Bind the rule to a torch module and one silo's rows (x: (n, ...), y: (n,))."""
        work: LocalWork = import_module(self.compute_module).prepare(module, x, y, terms)
        return work
