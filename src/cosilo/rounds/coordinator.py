"""The server's side of a round: asks, adds, moves the model. It sees messages, never rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cosilo.errors import ProtocolError, TooFewSilosError
from cosilo.local import RULES
from cosilo.optimizers import average, averaged
from cosilo.rounds.messages import Task, Update, Vector

if TYPE_CHECKING:
    from cosilo.optimizers import ServerOptimizer, State
    from cosilo.planning import Plan
    from cosilo.rounds.cohorts import Schedule

__all__ = ["Coordinator", "CoordinatorState"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CoordinatorState:
    """All that the next round depends on.

    Attributes:
        theta: the model that silos work at, shape (dim,).
        optimizer: the server optimizer's state.
        average: the averaging state; {} without averaging or before the first round.
        round: rounds done.
        attempt: attempts already made at the next round.
    """

    theta: Vector
    optimizer: State
    average: State
    round: int = 0
    attempt: int = 0

    @property
    def model(self) -> Vector:
        """The model to deliver: the average over rounds where the job asks for one."""
        return averaged(self.average) if self.average else self.theta


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Pure: `tasks` and `finish` map a state to messages and to the next state."""

    run: bytes
    plan: Plan
    schedule: Schedule
    optimizer: ServerOptimizer
    averaging: float

    def start(self, theta: Vector) -> CoordinatorState:
        """The state before the first round."""
        return CoordinatorState(theta=theta, optimizer=self.optimizer.init(theta), average={})

    def task(self, state: CoordinatorState) -> tuple[tuple[str, ...], bytes]:
        """The next round's cohort, and the one message that all its silos receive."""
        return self.schedule.cohort(state.round + 1), self._task(state).encode()

    def finish(self, state: CoordinatorState, messages: Mapping[str, bytes]) -> CoordinatorState:
        """Add the survivors' updates and move the model.

        The divisor is the public expected batch of the survivors at full capacity; no private count enters.

        Args:
            state: as given to `task`.
            messages: silo -> update bytes, as the transport delivered them.

        Raises:
            ProtocolError: an update that is malformed or belongs to another silo, round or model.
            TooFewSilosError: fewer than min_survivors: the sum would carry less noise than promised.
        """
        cohort, task = self.schedule.cohort(state.round + 1), self._task(state)
        if len(messages) < self.plan.min_survivors:
            raise TooFewSilosError(
                f"Round {task.round}: {len(messages)} of {len(cohort)} silos delivered, the noise is sized for "
                f"{self.plan.min_survivors}.",
                "See the silos' logs; a lower federation.min_survivors needs a new plan.",
            )
        total = np.zeros(self.plan.dim)
        for silo in sorted(messages):
            update = Update.decode(messages[silo])
            found = (update.run, update.round, update.attempt, update.model, update.silo, update.vector.size)
            expected = (task.run, task.round, task.attempt, task.digest, silo, self.plan.dim)
            if silo not in cohort or found != expected:
                raise ProtocolError(
                    f"Round {task.round}: the update delivered by {silo!r} belongs to another silo, round or model.",
                    "It was not added; check the transport.",
                )
            total += update.vector
        divisor = sum(RULES[self.plan.rule].divisor(self.plan.terms(silo)) for silo in messages)
        theta, optimizer = self.optimizer.apply(state.theta, total / divisor, state.optimizer)
        if not np.isfinite(theta).all():
            raise ProtocolError(
                f"Round {task.round} moved the model to a non-finite value.",
                "Lower federation.server_optimizer.lr.",
            )
        return CoordinatorState(
            theta=theta,
            optimizer=optimizer,
            average=average(theta, state.average, self.averaging) if self.averaging else {},
            round=state.round + 1,
        )

    def failed(self, state: CoordinatorState) -> CoordinatorState:
        """The state after a round that messages left but that could not be finished."""
        return replace(state, attempt=state.attempt + 1)

    def _task(self, state: CoordinatorState) -> Task:
        return Task(run=self.run, round=state.round + 1, attempt=state.attempt + 1, vector=state.theta)
