"""A silo's side of a round: checks the task, computes, adds its noise, answers once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cosilo.entropy import Context, Purpose
from cosilo.errors import ProtocolError, RefusedError
from cosilo.local import RULES
from cosilo.mechanisms import MECHANISMS
from cosilo.rounds.messages import Task, Update

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
        release = self.work.release(task.vector, self._stream(task, "batch"))
        self.log.non_finite += release.non_finite
        sensitivity = RULES[self.plan.rule].sensitivity(self.plan.terms(self.silo))
        noisy = MECHANISMS[self.plan.mechanism].add_share(
            release.vector, sensitivity.l2, self.plan.share_multiplier, self._stream(task, "noise")
        )
        return Update(
            run=self.run,
            round=task.round,
            attempt=task.attempt,
            silo=self.silo,
            model=task.digest,
            vector=noisy,
        ).encode()

    def _stream(self, task: Task, purpose: Purpose) -> Stream:
        return self.entropy.stream(
            Context(run=self.run, silo=self.silo, round=task.round, attempt=task.attempt, purpose=purpose)
        )

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
