"""`one-step` on torch: one batch, one noisy sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.local.batches import BatchSums
from cosilo.local.rule import Release, Terms

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from cosilo.local.rule import StepDesk, Vector

__all__ = ["OneStep", "prepare"]


class OneStep:
    """One silo's rows with the rule; `release` keeps nothing between rounds."""

    def __init__(self, sums: BatchSums) -> None:
        self._sums = sums

    def release(self, theta: Vector, desk: StepDesk) -> Release:
        """Noisy sum of the batch's clipped gradients at `theta`."""
        total, non_finite = self._sums.total(theta, desk.batch(0))
        return Release(desk.noisy(0, total).integers, non_finite)


def prepare(module: nn.Module, x: np.ndarray, y: np.ndarray, terms: Terms) -> OneStep:
    """Bind the rule to rows x (n, ...) and class indices y (n,); the module itself is not changed."""
    return OneStep(BatchSums(module, x, y, terms))
