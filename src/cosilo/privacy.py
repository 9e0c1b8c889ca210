"""The words of a privacy statement as frozen data: relation, sensitivity, event, bound.

Meanings never change: a plan predicts an `Event`, a record composes the events of what happened, and the
accountant is a function of the event alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cosilo.errors import ConfigError

__all__ = [
    "Bound",
    "Composed",
    "Event",
    "Gaussian",
    "PoissonSampled",
    "Repeated",
    "Sensitivity",
    "check_delta",
    "check_epsilon",
    "up",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Largest change of a released vector between neighbours, in the units of that vector.

    Attributes:
        l2: largest Euclidean norm of the difference.
    """

    l2: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.l2) and self.l2 > 0):
            raise ConfigError(f"The l2 sensitivity must be finite and > 0, got {self.l2}.", "Give a clipping norm > 0.")


@dataclass(frozen=True, slots=True)
class Gaussian:
    """One release of a vector with independent N(0, sd^2) noise on every coordinate.

    Attributes:
        noise_multiplier: z = sd / l2 sensitivity; 0 means no noise (epsilon is infinite).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        z = self.noise_multiplier
        if not (math.isfinite(z) and z >= 0):
            raise ConfigError(
                f"noise_multiplier must be finite and >= 0, got {z}.",
                "Use noise sd divided by l2 sensitivity.",
            )


@dataclass(frozen=True, slots=True)
class PoissonSampled:
    """`event` on a batch into which every unit is drawn by its own coin of probability `sampling_rate`."""

    sampling_rate: float
    event: Event

    def __post_init__(self) -> None:
        if not 0 <= self.sampling_rate <= 1:
            raise ConfigError(
                f"sampling_rate must lie in [0, 1], got {self.sampling_rate}.",
                "Use the probability with which one unit enters a batch.",
            )


@dataclass(frozen=True, slots=True)
class Repeated:
    """`count` uses of `event`, each allowed to depend on the results of those before it; 0 releases nothing."""

    count: int
    event: Event

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ConfigError(f"A number of uses must be >= 0, got {self.count}.", "Count the releases.")


@dataclass(frozen=True, slots=True)
class Composed:
    """All of `events`, in any order, each allowed to depend on the results of those before it."""

    events: tuple[Event, ...]


Event = Gaussian | PoissonSampled | Repeated | Composed


@dataclass(frozen=True, slots=True)
class Bound:
    """A quantity between a proved `lower` (None: not known) and a proved `upper`; promises use `upper` only."""

    lower: float | None
    upper: float

    def __post_init__(self) -> None:
        if math.isnan(self.upper) or (self.lower is not None and not self.lower <= self.upper):
            raise ConfigError(
                f"A bound must satisfy lower <= upper, got ({self.lower}, {self.upper}).",
                "This is a numerical failure of the accountant: report the event that caused it.",
            )


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Raise unless 0 < epsilon < infinity."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ConfigError(f"{name} must be finite and > 0, got {epsilon}.", "Typical promises lie between 0.1 and 10.")


def check_delta(delta: float, name: str = "delta") -> None:
    """Raise unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise ConfigError(f"{name} must satisfy 0 < delta < 1, got {delta}.", "Use less than 1 / rows, such as 1e-5.")


def up(value: float, digits: int = 4) -> str:
    """`value` >= 0 to so many digits, rounded upwards: a promise never reads smaller than it is.

    >>> up(9.88143), up(1.0), up(0.0)
    ('9.882', '1', '0')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    rounded = math.ceil(value * scale * (1 - 1e-12)) / scale
    return f"{rounded:.{digits}g}"
