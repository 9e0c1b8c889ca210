"""A silo's rows on torch: the clipped gradient sum of a fresh Poisson batch at any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from cosilo.local.clipped_sum import clip_to, micro_batch, slots
from cosilo.local.per_example import ClippedGradients
from cosilo.local.slots import place

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.local.rule import Terms, Vector

__all__ = ["BatchSums"]


class BatchSums:
    """One silo's rows x (n, ...) and class indices y (n,) with a module that itself is not changed."""

    def __init__(self, module: nn.Module, x: np.ndarray, y: np.ndarray, terms: Terms) -> None:
        self._gradients = ClippedGradients(module, clip_to=clip_to(terms), micro_batch=micro_batch(terms))
        self._x, self._y = torch.from_numpy(x), torch.from_numpy(y)
        self._rate, self._slots = terms.sampling_rate, slots(terms)

    def total(self, theta: Vector, batch: Stream) -> tuple[Vector, int]:
        """(sum over the batch of clipped gradients at `theta`, rows that counted as zero); an empty batch gives zero.

        Each row enters by its own coin of `batch`, and the rows of the batch sit in random slots, so that neighbours
        can be coupled with every other row in its place (`slots`).
        """
        chosen = np.flatnonzero(batch.coins(len(self._y), self._rate))
        placed = torch.from_numpy(place(chosen, self._slots, batch))
        total, non_finite = self._gradients.total(torch.from_numpy(theta), self._x, self._y, placed)
        return total.numpy(), non_finite
