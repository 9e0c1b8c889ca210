"""`one-step` on torch: draw the batch, sum the clipped gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from cosilo.local.one_step.spec import clip_to, micro_batch, slots
from cosilo.local.per_example import ClippedGradients
from cosilo.local.rule import Release, Terms
from cosilo.local.slots import place

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.local.rule import Vector

__all__ = ["OneStep", "prepare"]


class OneStep:
    """One silo's rows with the rule; `release` keeps nothing between rounds."""

    def __init__(self, module: nn.Module, x: torch.Tensor, y: torch.Tensor, terms: Terms) -> None:
        self._gradients = ClippedGradients(module, clip_to=clip_to(terms), micro_batch=micro_batch(terms))
        self._x, self._y, self._rate, self._slots = x, y, terms.sampling_rate, slots(terms)

    def release(self, theta: Vector, batch: Stream) -> Release:
        """Sum over the batch of clipped gradients at `theta`; an empty batch gives zero.

        Each row enters by its own coin of `batch`, and the rows of the batch sit in random slots, so that neighbours
        can be coupled with every other row in its place (`slots`).
        """
        chosen = np.flatnonzero(batch.coins(len(self._y), self._rate))
        placed = torch.from_numpy(place(chosen, self._slots, batch))
        total, non_finite = self._gradients.total(torch.from_numpy(theta), self._x, self._y, placed)
        return Release(total.numpy(), non_finite)


def prepare(module: nn.Module, x: np.ndarray, y: np.ndarray, terms: Terms) -> OneStep:
    """Bind the rule to rows x (n, ...) and class indices y (n,); the module itself is not changed."""
    return OneStep(module, torch.from_numpy(x), torch.from_numpy(y), terms)
