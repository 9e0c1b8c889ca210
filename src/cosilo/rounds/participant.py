"""A silo's side of a round: checks the task, computes, rounds, adds its noise, answers once.

This is where rule, lattice and noise meet: a rule gets a `_Desk`, which hands out each step's batch stream once and
turns each step's vector into noisy integers once. A rule that left out a step's noise is stopped before anything
leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cosilo.entropy import Context, Purpose
from cosilo.errors import ProtocolError, RefusedError
from cosilo.lattice import decode, encode, wrap
from cosilo.local import Noisy
from cosilo.mechanisms import MECHANISMS
from cosilo.rounds.messages import Task, Update, Vector
from cosilo.rounds.rotation import rotation_seed

if TYPE_CHECKING:
    from cosilo.entropy import Entropy, Stream
    from cosilo.local import LocalWork
    from cosilo.planning import Plan
    from cosilo.rounds.cohorts import Schedule

__all__ = ["Participant", "SiloLog"]


@dataclass(slots=True)
class SiloLog:
    """What a silo remembers; it never leaves the silo.

    Attributes:
        replies: messages sent, retries included: each is paid for.
        last: (round, attempt) of the latest task, so that none is answered twice.
        non_finite: rows whose gradient counted as zero, over all rounds: private.
    """

    replies: int = 0
    last: tuple[int, int] = (0, 0)
    non_finite: int = 0


@dataclass(slots=True)
class Participant:
    """One silo in one run."""

    silo: str
    run: bytes
    plan: Plan
    schedule: Schedule
    work: LocalWork
    entropy: Entropy
    log: SiloLog = field(default_factory=SiloLog)

    def reply(self, message: bytes) -> bytes:
        """Answer a task with the noisy update. The reply is charged before it is computed.

        Raises:
            ProtocolError: another run, a round already answered, or one whose cohort this silo is not in.
            RefusedError: all planned replies are used.
        """
        task = Task.decode(message)
        self._check(task)
        self.log.last = (task.round, task.attempt)
        self.log.replies += 1
        desk = _Desk(self, task)
        release = self.work.release(task.vector, desk)
        self.log.non_finite += release.non_finite
        desk.check()
        return Update(
            run=self.run,
            round=task.round,
            attempt=task.attempt,
            silo=self.silo,
            model=task.digest,
            ring_bits=self.plan.ring_bits,
            residues=wrap(release.integers, self.plan.ring_bits),
        ).encode()

    def _check(self, task: Task) -> None:
        here = f"Silo {self.silo!r}, round {task.round}, attempt {task.attempt}"
        if task.run != self.run:
            raise ProtocolError(f"{here}: the task belongs to another run.", "Check which run the server drives.")
        if (task.round, task.attempt) <= self.log.last:
            raise ProtocolError(f"{here}: this or a later round was answered before.", "A retry takes a new attempt.")
        if not 1 <= task.round <= self.plan.rounds:
            raise ProtocolError(f"{here}: the plan has {self.plan.rounds} rounds.", "Make a plan with more rounds.")
        if self.silo not in self.schedule.cohort(task.round):
            raise ProtocolError(f"{here}: this silo is not in the cohort.", "Cohorts follow from plan and run id.")
        if task.vector.size != self.plan.dim:
            raise ProtocolError(
                f"{here}: the model has {task.vector.size} parameters, the plan {self.plan.dim}.",
                "Use the same model.",
            )
        allowed = self.plan.silos[self.silo].replies
        if self.log.replies >= allowed:
            raise RefusedError(
                f"{here}: all {allowed} planned replies are used; one more would break the promised epsilon.",
                "Stop here, or plan a new run with its own budget.",
            )


class _Desk:
    """One task's randomness and noise, as a rule sees it (`local.StepDesk`)."""

    def __init__(self, participant: Participant, task: Task) -> None:
        self._participant, self._task = participant, task
        self._terms = participant.plan.terms(participant.silo)
        self._mechanism = MECHANISMS[participant.plan.mechanism]
        self._seed = rotation_seed(task.run, task.round, task.attempt)
        self._noised: list[int] = []

    def batch(self, step: int) -> Stream:
        return self._stream("batch", step)

    def noisy(self, step: int, vector: Vector) -> Noisy:
        terms = self._terms
        integers = encode(vector, terms.lattice, self._stream("rounding", step), self._seed)
        integers = integers + self._mechanism.sample(self._stream("noise", step), integers.size, terms.sigma)
        self._noised.append(step)
        return Noisy(integers, decode(integers, terms.lattice, self._seed))

    def check(self) -> None:
        """Raise RefusedError unless every step's vector was noised once."""
        if self._noised != list(range(self._terms.steps)):
            raise RefusedError(
                f"The rule {self._participant.plan.rule!r} noised steps {self._noised}, not 0 to "
                f"{self._terms.steps - 1} once each.",
                "This is a fault of the rule; nothing was sent.",
            )

    def _stream(self, purpose: Purpose, step: int) -> Stream:
        task = self._task
        return self._participant.entropy.stream(
            Context(
                run=task.run,
                silo=self._participant.silo,
                round=task.round,
                attempt=task.attempt,
                purpose=purpose,
                step=step,
            )
        )
