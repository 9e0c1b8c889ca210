"""One round, pure: the only place where rule, noise and messages meet. Bytes in, bytes out."""

from cosilo.rounds.cohorts import Schedule
from cosilo.rounds.coordinator import Coordinator, CoordinatorState
from cosilo.rounds.messages import Task, Update
from cosilo.rounds.participant import Participant, SiloLog
from cosilo.rounds.statement import Spending, SpentCurve, statement

__all__ = [
    "Coordinator",
    "CoordinatorState",
    "Participant",
    "Schedule",
    "SiloLog",
    "Spending",
    "SpentCurve",
    "Task",
    "Update",
    "statement",
]
