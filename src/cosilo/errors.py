"""Every error a user can meet, on one page.

CosiloError
├── ConfigError             exit 2   a job, an option or a number is wrong
│   ├── JobError            exit 2   the job file
│   ├── DataError           exit 2   rows, schema, loader
│   ├── DivergedError       exit 2   training left the range of numbers
│   └── ModelError          exit 2   a module that cannot be trained privately
├── RefusedError            exit 3   policy or budget says no; nothing was released
│   └── EntropyReuseError   exit 3   a random stream was asked for twice
├── TooFewSilosError        exit 4   fewer messages than the noise was sized for
├── ProtocolError           exit 4   a message that does not belong where it arrived
└── InterruptedRunError     exit 5   stopped in between; `cosilo resume` goes on

An error says in one sentence what happened and in one sentence what to do.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigError",
    "CosiloError",
    "DataError",
    "DivergedError",
    "EntropyReuseError",
    "InterruptedRunError",
    "JobError",
    "ModelError",
    "ProtocolError",
    "RefusedError",
    "TooFewSilosError",
]


class CosiloError(Exception):
    """What happened (`what`) and what to do about it (`fix`), each one sentence.

    `exit_code` is what the command line returns: 2 usage or configuration, 3 refused by policy or budget,
    4 too few silos, 5 interrupted and resumable.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what} {fix}")
        self.what = what
        self.fix = fix


class ConfigError(CosiloError):
    """A job, an option or a number is wrong; nothing was computed or written."""

    exit_code = 2


class JobError(ConfigError):
    """The job file has an unknown, missing, ill-typed or contradictory key."""


class DataError(ConfigError):
    """Rows, schema or loader do not fit the job."""


class DivergedError(ConfigError):
    """Training moved the model out of the range of numbers; the last good model is kept."""


class ModelError(ConfigError):
    """A module that per-example clipping cannot train with a guarantee."""


class RefusedError(CosiloError):
    """A policy or a budget says no; nothing was released."""

    exit_code = 3


class EntropyReuseError(RefusedError):
    """The same random stream was asked for twice: noise used twice can be subtracted away."""


class TooFewSilosError(CosiloError):
    """Fewer silos delivered than the noise was sized for; the sum was not released."""

    exit_code = 4


class ProtocolError(CosiloError):
    """A message that does not belong where it arrived; it was dropped."""

    exit_code = 4


class InterruptedRunError(CosiloError):
    """The run stopped between two rounds and can be resumed."""

    exit_code = 5
