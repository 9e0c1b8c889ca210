"""Events as a multiset of uses: what every accountant starts from.

A row passes every coin around a release, so nested sampling rates multiply; failures and distances are of the whole
transcript and pass no coin: they are kept unscaled, which only overstates them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from cosilo.accounting import gaussian
from cosilo.errors import ConfigError
from cosilo.privacy import (
    Composed,
    DiscreteGaussian,
    Distance,
    Failure,
    Gaussian,
    Laplace,
    PoissonBinomial,
    PoissonSampled,
    Pure,
    Repeated,
    Skellam,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cosilo.privacy import Event

__all__ = ["Bundle", "Flat", "Noise", "Uses", "distance_charge", "flatten", "fused_mu"]

Noise: TypeAlias = Gaussian | DiscreteGaussian | Skellam | Laplace | Pure | PoissonBinomial
Uses: TypeAlias = dict[tuple[float, float], int]
Bundle: TypeAlias = tuple[tuple[Noise, int], ...]


@dataclass(frozen=True, slots=True)
class Flat:
    """Uses without order.

    Attributes:
        gaussian: {(noise_multiplier, sampling_rate): count}; noise_multiplier 0 also stands for any other release
            without noise.
        others: {(bundle, sampling_rate): count}; a bundle {noise: count} is what is released behind one coin, and
            holds at least one noise that is not Gaussian.
        failure: sum of the failure probabilities.
        distance: sum of the total variations.
    """

    gaussian: Uses = field(default_factory=dict)
    others: dict[tuple[Bundle, float], int] = field(default_factory=dict)
    failure: float = 0.0
    distance: float = 0.0

    @property
    def rates(self) -> list[tuple[float, int]]:
        """(sampling_rate, count) of every use."""
        return [(rate, count) for part in (self.gaussian, self.others) for (_, rate), count in part.items()]

    @property
    def bundles(self) -> dict[tuple[Bundle, float], int]:
        """{(bundle, sampling_rate): count} of every use that has noise, Gaussians among them."""
        found = dict(self.others)
        found |= {(((Gaussian(z), 1),), rate): count for (z, rate), count in self.gaussian.items() if z > 0}
        return found

    @property
    def plain(self) -> bool:
        """Gaussians and nothing else: every bound below is about exactly what is released."""
        return not self.others and self.failure == 0 and self.distance == 0

    @property
    def touched(self) -> float:
        """Probability that a row is in at least one batch: an upper bound on delta at every epsilon >= 0."""
        return _touched(self.rates)

    @property
    def bare(self) -> float:
        """Probability that a row is in at least one release without noise."""
        return _touched([(rate, count) for (z, rate), count in self.gaussian.items() if z == 0])

    def times(self, count: int) -> Flat:
        """`count` > 0 of everything."""
        return Flat(
            {key: count * uses for key, uses in self.gaussian.items()},
            {key: count * uses for key, uses in self.others.items()},
            count * self.failure if self.failure else 0.0,  # the count may be more than a float holds
            count * self.distance if self.distance else 0.0,
        )


def _touched(rates: list[tuple[float, int]]) -> float:
    if any(rate == 1 for rate, _ in rates):
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-rate) for rate, count in rates))


def fused_mu(uses: Mapping[tuple[float, float], int]) -> float:
    """gdp_mu of all uses taken as unsampled."""
    return gaussian.compose_mu(math.sqrt(count) / z for (z, _), count in uses.items())


def flatten(event: Event) -> Flat:
    """The uses in `event`, with the same guarantee; those that release nothing are left out.

    A row must pass every coin around a release, so nested rates multiply. One coin shared by several Gaussian
    releases is one sampled release of all of them, a Gaussian of 1/z^2 = sum of 1/z_i^2 (Zhu, Dong, Wang 2022,
    Theorem 11, applied to the dominating pair of their composition). Failures and distances inside a coin are kept
    as they are.

    Raises:
        ConfigError: one coin shared by several releases that have coins of their own; no accountant here knows it.
    """
    match event:
        case Repeated(count=count, event=inner):
            return flatten(inner).times(count) if count else Flat()
        case Composed(events=events):
            return _together([flatten(part) for part in events])
        case PoissonSampled(sampling_rate=rate, event=inner):
            flat = flatten(inner)
            gaussians, others = _sampled(rate, flat.gaussian, flat.others)
            return Flat(gaussians, others, flat.failure, flat.distance)
        case Failure(probability=probability):
            return Flat(failure=probability)
        case Distance(total_variation=distance):
            return Flat(distance=distance)
        case _:
            return _one(event)


def _one(noise: Noise) -> Flat:
    match noise:
        case Gaussian(noise_multiplier=z):
            return Flat({(z, 1.0): 1})
        case Pure(epsilon=0):
            return Flat()
        case DiscreteGaussian(sigma=0) | Skellam(sigma=0) | Laplace(noise_multiplier=0) | Pure(epsilon=math.inf):
            return Flat({(0.0, 1.0): 1})
        case _:
            return Flat(others={(((noise, 1),), 1.0): 1})


def _together(parts: list[Flat]) -> Flat:
    gaussians: Counter[tuple[float, float]] = Counter()
    others: Counter[tuple[Bundle, float]] = Counter()
    for part in parts:
        gaussians.update(part.gaussian)
        others.update(part.others)
    failure, distance = math.fsum(p.failure for p in parts), math.fsum(p.distance for p in parts)
    return Flat(dict(gaussians), dict(others), failure, distance)


_MAX_EXPONENT = 700.0  # exp of more overflows
_Key = TypeVar("_Key")


def _scaled(rate: float, uses: dict[tuple[_Key, float], int]) -> dict[tuple[_Key, float], int]:
    """The same uses, each behind one more coin; a product that underflows is no release."""
    return {(key, rate * inner): count for (key, inner), count in uses.items() if rate * inner > 0}


_Split = tuple[Uses, dict[tuple[Bundle, float], int]]


def _sampled(rate: float, gaussians: Uses, others: dict[tuple[Bundle, float], int]) -> _Split:
    """One coin of probability `rate` around all of these uses."""
    if rate == 0 or not (gaussians or others):
        return {}, {}
    if rate == 1:
        return gaussians, others
    if sum(gaussians.values()) + sum(others.values()) == 1:
        return _scaled(rate, gaussians), _scaled(rate, others)
    if any(inner < 1 for _, inner in [*gaussians, *others]):
        raise ConfigError(
            "One sampling coin is shared by several releases that are sampled again inside it.",
            "Sample each release on its own: Repeated(n, PoissonSampled(rate, event)).",
        )
    if any(z == 0 for z, _ in gaussians):
        return {(0.0, rate): 1}, {}
    fused = {1 / fused_mu(gaussians): 1} if gaussians else {}
    if not others:
        return {(z, rate): 1 for z in fused}, {}
    merged: Counter[Noise] = Counter({Gaussian(z): 1 for z in fused})
    for (bundle, _), count in others.items():
        for noise, uses in bundle:
            merged[noise] += count * uses
    return {}, {(tuple(merged.items()), rate): 1}


def distance_charge(distance: float, epsilon: float) -> float:
    """What a total variation adds to delta, (1 + e^epsilon) times itself; infinite where e^epsilon overflows."""
    if distance == 0:
        return 0.0
    return distance * (1 + math.exp(epsilon)) if epsilon < _MAX_EXPONENT else math.inf
