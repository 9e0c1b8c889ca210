"""The words of a privacy statement as frozen data: relation, sensitivity, event, bound.

Meanings never change: a plan predicts an `Event`, a record composes the events of what happened, and the
accountant is a function of the event alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cosilo.errors import ConfigError

__all__ = [
    "EXACT_COUNT",
    "Bound",
    "Composed",
    "DiscreteGaussian",
    "Distance",
    "Event",
    "Failure",
    "Gaussian",
    "Laplace",
    "PoissonBinomial",
    "PoissonSampled",
    "Pure",
    "Repeated",
    "Sensitivity",
    "Skellam",
    "check_delta",
    "check_epsilon",
    "up",
]


def _check_positive(name: str, value: float, fix: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be finite and > 0, got {value}.", fix)


def _check_noise(sigma: float) -> None:
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ConfigError(
            f"sigma must be finite and >= 0, got {sigma}.", "Use one contributor's noise in lattice units."
        )


def _check_counts(contributors: int, dim: int) -> None:
    if contributors < 1:
        raise ConfigError(f"contributors must be >= 1, got {contributors}.", "Count those whose noise is trusted.")
    if dim < 1:
        raise ConfigError(f"dim must be >= 1, got {dim}.", "Count the coordinates of the released vector.")


def _check_mass(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{name} must be finite and >= 0, got {value}.", "Give the proved bound.")


EXACT_COUNT = 10**15  # numbers up to here are exact in double precision, and so are their sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Largest change of a released vector between neighbours, in the units of that vector.

    Attributes:
        l2: largest Euclidean norm of the difference.
        l1: largest sum of absolute differences; None where no mechanism asks for it.
    """

    l2: float
    l1: float | None = None

    def __post_init__(self) -> None:
        _check_positive("The l2 sensitivity", self.l2, "Give a clipping norm > 0.")
        if self.l1 is not None:
            _check_positive("The l1 sensitivity", self.l1, "Give a bound on the sum of absolute differences > 0.")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussian:
    """One release of an integer vector plus independent sums of discrete Gaussians on every coordinate.

    Attributes:
        l2: l2 sensitivity of the integer vector, in lattice units, > 0.
        sigma: parameter of one contributor's noise P(k) ~ exp(-k^2 / (2 sigma^2)), in lattice units; 0 means no noise.
        contributors: number of independent discrete Gaussians added on every coordinate.
        dim: number of coordinates.
    """

    l2: float
    sigma: float
    contributors: int
    dim: int

    def __post_init__(self) -> None:
        _check_positive("The l2 sensitivity", self.l2, "Give it in lattice units, > 0.")
        _check_noise(self.sigma)
        _check_counts(self.contributors, self.dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skellam:
    """One release of an integer vector plus independent Skellam noise on every coordinate.

    Attributes:
        l1, l2: sensitivities of the integer vector, in lattice units, > 0.
        sigma: standard deviation of one contributor's noise (the difference of two Poisson variables of mean
            sigma^2 / 2), in lattice units; the sum has variance contributors * sigma^2 exactly; 0 means no noise.
        contributors: number of independent noises added on every coordinate.
        dim: number of coordinates.
    """

    l1: float
    l2: float
    sigma: float
    contributors: int
    dim: int

    def __post_init__(self) -> None:
        _check_positive("The l1 sensitivity", self.l1, "Give it in lattice units, > 0.")
        _check_positive("The l2 sensitivity", self.l2, "Give it in lattice units, > 0.")
        _check_noise(self.sigma)
        _check_counts(self.contributors, self.dim)


@dataclass(frozen=True, slots=True)
class Laplace:
    """One release of a vector with independent continuous Laplace noise on every coordinate.

    Attributes:
        noise_multiplier: scale / l1 sensitivity; 0 means no noise (epsilon is infinite).
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        b = self.noise_multiplier
        if not (math.isfinite(b) and b >= 0):
            raise ConfigError(
                f"noise_multiplier must be finite and >= 0, got {b}.", "Use Laplace scale divided by l1 sensitivity."
            )


@dataclass(frozen=True, slots=True)
class Pure:
    """One release of anything that is (epsilon, 0)-private; infinity says that nothing is promised."""

    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ConfigError(f"A pure epsilon must be >= 0, got {self.epsilon}.", "Use l1 sensitivity / scale.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonBinomial:
    """One release of the sum of `contributors` vectors of Binomial(trials, p) counts, independent by coordinate.

    Every contributor chooses its p on every coordinate by its own value, inside [1/2 - theta, 1/2 + theta]. The
    neighbour has one contributor whose p is any other value of that interval: the number of contributors is fixed.

    Attributes:
        trials: of one contributor on one coordinate.
        theta: largest distance of a p from 1/2, in (0, 1/2).
        contributors: how many counts are summed, padding included.
        dim: number of coordinates.
    """

    trials: int
    theta: float
    contributors: int
    dim: int

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"trials must be >= 1, got {self.trials}.", "Use at least one coin per coordinate.")
        if not 0 < 2 * self.theta < 1:
            raise ConfigError(f"theta must lie in (0, 1/2), got {self.theta}.", "1/4 is the usual choice.")
        _check_counts(self.contributors, self.dim)


@dataclass(frozen=True, slots=True)
class Failure:
    """With this probability the guarantee of everything else in the event does not hold: adds to delta once."""

    probability: float

    def __post_init__(self) -> None:
        _check_mass("A failure probability", self.probability)


@dataclass(frozen=True, slots=True)
class Distance:
    """The real release lies this far in total variation from the one described: adds (1 + e^epsilon) times it to delta.

    More than 1 says nothing and is allowed, so that bounds may be added up.
    """

    total_variation: float

    def __post_init__(self) -> None:
        _check_mass("A total variation", self.total_variation)


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
        if not 0 <= self.count <= EXACT_COUNT:
            raise ConfigError(f"A number of uses must lie between 0 and {EXACT_COUNT:g}.", "Count the releases.")


@dataclass(frozen=True, slots=True)
class Composed:
    """All of `events`, in any order, each allowed to depend on the results of those before it."""

    events: tuple[Event, ...]


Event = (
    Gaussian
    | DiscreteGaussian
    | Skellam
    | Laplace
    | Pure
    | PoissonBinomial
    | Failure
    | Distance
    | PoissonSampled
    | Repeated
    | Composed
)


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
