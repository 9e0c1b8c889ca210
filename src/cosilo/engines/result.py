"""What a run gives back, and what it tells while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from cosilo.engines.trained import TrainedModel

__all__ = ["OnRound", "Round", "Run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One finished round, as handed to `on_round`.

    Attributes:
        round, rounds: number done and planned.
        survivors: silos that delivered.
        epsilon_spent, epsilon: upper bound on what has been spent, and the promise.
        test: metrics on public held-out rows; None when there are none or this round was not evaluated.
        seconds, eta: time since the run began, and estimated time to its end.
    """

    round: int
    rounds: int
    survivors: int
    epsilon_spent: float
    epsilon: float
    test: dict[str, float | None] | None
    seconds: float
    eta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run. Silos' rows appear nowhere in it.

    Attributes:
        path: the run's folder.
        model: the trained module with its input schema.
        privacy: the statement, as in privacy.json.
        metrics: {"test": {"accuracy", "loss", "auc"?}} of the delivered model; {} without public test rows.
        seconds: wall time, resumed parts added up.
        mib_per_silo: MiB that the busiest silo sent and received.
        cautions: sentences a careful reader of the statement wants to know.
    """

    path: Path
    model: TrainedModel
    privacy: dict[str, Any]
    metrics: dict[str, dict[str, float | None]]
    seconds: float
    mib_per_silo: float
    cautions: tuple[str, ...]


OnRound: TypeAlias = Callable[[Round], None] | None
