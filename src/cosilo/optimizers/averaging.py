"""Exponential average of the released models over rounds, without the bias of its start."""

from __future__ import annotations

import numpy as np

from cosilo.optimizers.server import State, Vector

__all__ = ["average", "averaged"]


def average(theta: Vector, state: State, decay: float) -> State:
    """The state after one more model: sum <- decay * sum + (1 - decay) * theta, weight likewise.

    `state` is {} before the first round.
    """
    total = state.get("sum", np.zeros_like(theta))
    weight = state.get("weight", np.zeros(1))
    return {"sum": decay * total + (1 - decay) * theta, "weight": decay * weight + (1 - decay)}


def averaged(state: State) -> Vector:
    """Sum / weight: with decay 0 the last model itself."""
    return np.asarray(state["sum"] / state["weight"])
