"""`noisy-steps` on torch: local DP-SGD; the silo's own model moves by exactly the integers that it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cosilo.local.batches import BatchSums
from cosilo.local.clipped_sum import batch_rows
from cosilo.local.rule import Release, Terms

if TYPE_CHECKING:
    from torch import nn

    from cosilo.local.rule import StepDesk, Vector

__all__ = ["NoisySteps", "prepare"]


class NoisySteps:
    """One silo's rows with the rule; `release` keeps nothing between rounds."""

    def __init__(self, sums: BatchSums, terms: Terms) -> None:
        self._sums, self._steps, self._move = sums, terms.steps, terms.lr / batch_rows(terms)
        self._coordinates = terms.lattice.coordinates

    def release(self, theta: Vector, desk: StepDesk) -> Release:
        """Total of all steps' noisy sums; each step starts where the noisy sums before it led from `theta`."""
        local, non_finite = theta, 0
        total = np.zeros(self._coordinates, dtype=np.int64)
        for step in range(self._steps):
            gradient, uncounted = self._sums.total(local, desk.batch(step))
            integers, vector = desk.noisy(step, gradient)
            local = local - self._move * vector
            total += integers
            non_finite += uncounted
        return Release(total, non_finite)


def prepare(module: nn.Module, x: np.ndarray, y: np.ndarray, terms: Terms) -> NoisySteps:
    """Bind the rule to rows x (n, ...) and class indices y (n,); the module itself is not changed."""
    return NoisySteps(BatchSums(module, x, y, terms), terms)
