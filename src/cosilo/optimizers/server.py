"""Server optimizers as pairs of pure functions on float64 vectors.

`init(theta) -> state`, `apply(theta, gradient, state) -> (theta, state)`. A state is a mapping from names to
arrays, so that a checkpoint is one flat file. The "gradient" is the released pseudo-gradient: the noisy sum of all
silos divided by a public constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cosilo.job.schema import Adam, Sgd

__all__ = ["ServerOptimizer", "State", "Vector", "build"]

Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
State: TypeAlias = Mapping[str, Vector]


@dataclass(frozen=True, slots=True)
class ServerOptimizer:
    """`init(theta) -> state`; `apply(theta, gradient, state) -> (theta, state)`; neither changes its arguments."""

    init: Callable[[Vector], State]
    apply: Callable[[Vector, Vector, State], tuple[Vector, State]]


def build(options: Sgd | Adam) -> ServerOptimizer:
    """The optimizer that a job's `[federation.server_optimizer]` describes."""
    return _sgd(options) if isinstance(options, Sgd) else _adam(options)


def _sgd(options: Sgd) -> ServerOptimizer:
    def init(theta: Vector) -> State:
        return {"velocity": np.zeros_like(theta)}

    def apply(theta: Vector, gradient: Vector, state: State) -> tuple[Vector, State]:
        velocity = options.momentum * state["velocity"] + gradient
        step = gradient + options.momentum * velocity if options.nesterov else velocity
        return theta - options.lr * step, {"velocity": velocity}

    return ServerOptimizer(init, apply)


def _adam(options: Adam) -> ServerOptimizer:
    def init(theta: Vector) -> State:
        return {"first": np.zeros_like(theta), "second": np.zeros_like(theta), "steps": np.zeros(1)}

    def apply(theta: Vector, gradient: Vector, state: State) -> tuple[Vector, State]:
        steps = state["steps"] + 1
        first = options.beta1 * state["first"] + (1 - options.beta1) * gradient
        second = options.beta2 * state["second"] + (1 - options.beta2) * gradient**2
        unbiased_first = first / (1 - options.beta1**steps)
        unbiased_second = second / (1 - options.beta2**steps)
        step = unbiased_first / (np.sqrt(unbiased_second) + options.eps)
        return theta - options.lr * step, {"first": first, "second": second, "steps": steps}

    return ServerOptimizer(init, apply)
