"""The server's side of a round: asks, adds, moves the model. It sees messages, never rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cosilo.errors import DivergedError, ProtocolError, TooFewSilosError
from cosilo.lattice import add, decode, unwrap
from cosilo.local import RULES
from cosilo.optimizers import average, averaged
from cosilo.rounds.messages import Residues, Task, Update, Vector
from cosilo.rounds.rotation import rotation_seed

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
    """Pure: `task`, `accept` and `finish` map a state to messages and to the next state."""

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

    def accept(self, state: CoordinatorState, silo: str, message: bytes) -> Update:
        """The update that the transport delivered from `silo`, if it belongs to this round.

        Raises:
            ProtocolError: it is malformed, or of another silo, round or model; it must not be added.
        """
        task = self._task(state)
        update = Update.decode(message)
        shape = (update.ring_bits, update.residues.size)
        found = (update.run, update.round, update.attempt, update.model, update.silo, shape)
        expected = (task.run, task.round, task.attempt, task.digest, silo, self._shape)
        if silo not in self.schedule.cohort(task.round) or found != expected:
            raise ProtocolError(
                f"Round {task.round}: the update delivered by {silo!r} belongs to another silo, round or model.",
                "It was not added; check the transport.",
            )
        return update

    def finish(self, state: CoordinatorState, updates: Mapping[str, Update]) -> CoordinatorState:
        """Add the survivors' accepted updates and move the model.

        The divisor is the public expected batch of the survivors at full capacity; no private count enters.

        Raises:
            TooFewSilosError: fewer than min_survivors: the sum would carry less noise than promised.
            DivergedError: the model left the range of float32, in which models are delivered.
        """
        number = state.round + 1
        if len(updates) < self.plan.min_survivors:
            raise TooFewSilosError(
                f"Round {number}: {len(updates)} of {self.plan.cohort} silos delivered, the noise is sized for "
                f"{self.plan.min_survivors}.",
                "See the silos' logs; a lower federation.min_survivors needs a new plan.",
            )
        residues = add([update.residues for update in updates.values()], self.plan.ring_bits)
        total = self._decoded(residues, number, state.attempt + 1)
        divisor = sum(RULES[self.plan.rule].divisor(self.plan.terms(silo)) for silo in updates)
        theta, optimizer = self.optimizer.apply(state.theta, total / divisor, state.optimizer)
        if not (np.abs(theta) < np.finfo(np.float32).max).all():
            raise DivergedError(
                f"Round {number} moved the model out of the range of float32.",
                "Lower federation.server_optimizer.lr or local.lr.",
            )
        return CoordinatorState(
            theta=theta,
            optimizer=optimizer,
            average=average(theta, state.average, self.averaging) if self.averaging else {},
            round=number,
        )

    def failed(self, state: CoordinatorState) -> CoordinatorState:
        """The state after a round that messages left but that could not be finished."""
        return replace(state, attempt=state.attempt + 1)

    @property
    def _shape(self) -> tuple[int, int]:
        """Bits and number of an update's residues."""
        return self.plan.ring_bits, self.plan.coordinates

    def _decoded(self, residues: Residues, number: int, attempt: int) -> Vector:
        """The real vector of a sum of residues, shape (dim,)."""
        lattice = self.plan.lattice(next(iter(self.plan.silos)))
        seed = rotation_seed(self.run, number, attempt)
        return decode(unwrap(residues, lattice.ring_bits), lattice, seed)

    def _task(self, state: CoordinatorState) -> Task:
        return Task(run=self.run, round=state.round + 1, attempt=state.attempt + 1, vector=state.theta)
