"""Slots: rows work in places whose number and order do not depend on them.

A round computes on a fixed public number of slots, cut into micro-batches of one fixed shape. The rows of the batch
sit in uniformly random slots, the others are null (a row of zeros that adds nothing).

Statement: between neighbours there is a coupling of placements in which the added row replaces a null slot and every
other row keeps its slot. So every other row is computed in the same place of an array of the same shape, and its
floating-point result is the same to the last bit, even where the model turns one roundoff into a jump. The time a
round takes does not depend on the number of rows either.
Assumption: what a tensor library computes for one row of a batched operation depends on the shapes, the row's
position and the row itself, not on the values of other rows (tried on random rows with every module, `per_example`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cosilo.errors import RefusedError

if TYPE_CHECKING:
    from cosilo.entropy import Stream

__all__ = ["NULL", "OUTGROWN", "place", "slot_count"]

NULL = -1
# A Poisson batch outgrows its slots with probability at most this. Then further slots are opened: harmless in exact
# arithmetic, and the statement counts the probability as a failure of the floating-point argument.
OUTGROWN = 2.0**-100


def slot_count(*, capacity: int, sampling_rate: float, micro_batch: int) -> int:
    """Slots for a batch of up to `capacity` rows drawn at `sampling_rate`: whole micro-batches, public.

    The smallest number that a Binomial(capacity, sampling_rate) batch exceeds with probability <= OUTGROWN.
    """
    from scipy.special import bdtrc

    low, high = 0, capacity
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bdtrc(middle, capacity, sampling_rate) <= OUTGROWN else (middle + 1, high)
    return -(-max(high, 1) // micro_batch) * micro_batch


def place(rows: NDArray[np.int64], slots: int, stream: Stream) -> NDArray[np.int64]:
    """Put row numbers, shape (k,), into random distinct slots: shape (slots,), NULL where empty.

    A batch that outgrew its slots gets as many further sets of `slots` as it needs.
    """
    slots *= max(1, -(-len(rows) // slots))
    order = _permutation(slots, stream)
    placed = np.full(slots, NULL, dtype=np.int64)
    placed[order[: len(rows)]] = rows
    return placed


def _permutation(size: int, stream: Stream) -> NDArray[np.int64]:
    """Uniform: the order of distinct random words; words that collide (size^2 / 2^65) are drawn again, all of them."""
    for _ in range(100):
        words = stream.words(size)
        order = np.argsort(words, kind="stable")
        if (np.diff(words[order]) > 0).all():
            return order
    raise RefusedError("A random stream repeats itself.", "The random generator of this machine is broken: stop here.")
