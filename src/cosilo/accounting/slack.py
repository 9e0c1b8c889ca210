"""Discrete noise as Gaussian noise, and how far in total variation that is from the truth.

Rounding to integers after adding N(0, s^2) to an integer vector is post-processing of the Gaussian mechanism, and is
the same as adding rounded Gaussians. Discrete noise of parameter v = contributors * sigma^2 is compared with the
rounded Gaussian of s^2 = v - 1/12, coordinate by coordinate; the Kullback-Leibler divergences add up over
coordinates and over adaptively chosen uses, so that over everything

    total variation <= sqrt(uses * dim * KL / 2) + uses * dim * tau,

tau from replacing a sum of discrete Gaussians by one (Kairouz, Liu, Steinke 2021). A row's coins are part of the
comparison, hence sampling changes nothing here. Proofs of both KL bounds: docs/gaussian-slack.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from cosilo.accounting.flat import flatten
from cosilo.privacy import DiscreteGaussian, Gaussian, Skellam

if TYPE_CHECKING:
    from cosilo.accounting.flat import Bundle, Flat, Noise, Uses
    from cosilo.privacy import Event

__all__ = ["discrete_gaussian_kl", "distance_from_gaussian", "gaussian_model", "skellam_kl", "sum_distance"]

_LEAST_VARIANCE = 9.0  # the proof's; below, sums over integers may differ from integrals
_LARGEST_VARIANCE = 1e60  # the bounds decrease; larger powers overflow
_INEXACT = 1 + 1e-9  # covers those differences, e^-170, and the rounding of the formulas
_LEAST_SIGMA = 0.5  # of one of several contributors: the theorem's condition
_SUMMED = 4096  # terms of tau that are added one by one
_MOMENTS = (1.0, 0.0, 1.0, 0.0, 3.0, 0.0, 15.0, 0.0, 105.0, 0.0, 945.0, 0.0, 10395.0)  # of N(0, 1)


def _spread(quartic: float, quadratic: float, m: tuple[float, ...]) -> float:
    """Standard deviation of quartic y^4 - quadratic y^2 under moments m."""
    square = quartic**2 * (m[8] - m[4] ** 2) - 2 * quartic * quadratic * (m[6] - m[4] * m[2])
    return math.sqrt(max(square + quadratic**2 * (m[4] - m[2] ** 2), 0.0))


def _rounding_rest(r: float, v: float, m: tuple[float, ...]) -> float:
    """L2 norm of what the expansion of log P(rounded Gaussian = y sqrt(v)) leaves out; r = v / s^2."""
    return r**6 / (181440 * v**3) * math.sqrt(m[12]) + r**5 / (30240 * v**3) * math.sqrt(m[8]) + r**2 / (1024 * v**2)


def discrete_gaussian_kl(variance: float) -> float:
    """Upper bound on KL(discrete Gaussian of parameter `variance` || rounded Gaussian of variance - 1/12).

    Infinite below 9. For large variances 2.5 times the exact value, which is (1/(120 v^2))^2 / 48.
    """
    if variance < _LEAST_VARIANCE:
        return math.inf
    v = min(variance, _LARGEST_VARIANCE)
    r = v / (v - 1 / 12)
    tilt = 1 / (1 - r**2 / (144 * v**2))
    m: tuple[float, ...] = tuple(moment * math.sqrt(tilt) ** n for n, moment in enumerate(_MOMENTS))
    quartic, quadratic = r**4 / (2880 * v**2), (r**2 / 288 - r**3 / 720) / v**2
    norm = _spread(quartic, quadratic, m) + _rounding_rest(r, v, m)
    shift = max(quartic * m[4] - quadratic * m[2], 0.0)
    return _INEXACT * norm**2 / 2 * math.sqrt(tilt) * math.exp(r / (24 * v) + shift)


def _skellam_moments(v: float) -> tuple[float, ...]:
    """Moments 0 ... 12 of X / sqrt(v), X Skellam of variance v: its even cumulants are all v, its odd ones 0."""
    m = [1.0, 0.0]
    for n in range(2, 13):
        m.append(math.fsum(math.comb(n - 1, j - 1) * v ** (1 - j / 2) * m[n - j] for j in range(2, n + 1, 2)))
    return tuple(m)


def skellam_kl(variance: float) -> float:
    """Upper bound on KL(Skellam of `variance` || rounded Gaussian of variance - 1/12).

    Infinite below 9. For large variances 10 times the exact value, which is 1/(48 v^2).
    """
    if variance < _LEAST_VARIANCE:
        return math.inf
    v = min(variance, _LARGEST_VARIANCE)
    r = v / (v - 1 / 12)
    m = _skellam_moments(v)
    quartic = 1 / (24 * v) + r**4 / (2880 * v**2)
    quadratic = 1 / (4 * v) + (1 / 48 + r**2 / 288 - r**3 / 720) / v**2
    norm = _spread(quartic, quadratic, m) + _rounding_rest(r, v, m)
    norm += math.sqrt(m[4]) / (4 * v) + 1 / (2 * v * math.sqrt(v)) + math.sqrt(m[12]) / (80 * v**2)
    shift = max(quartic * m[4] - quadratic * m[2], 0.0)
    lowest = 11.2 / v * (1 + (r**2 / 144 + 0.01125) / v) ** 2
    return _INEXACT * norm**2 / 2 * math.exp(r / (24 * v) + lowest + shift)


@lru_cache(maxsize=256)
def sum_distance(sigma: float, contributors: int) -> float:
    """tau: the sum of discrete Gaussians of parameter `sigma` against one of sigma sqrt(contributors).

    Every probability of either is at most exp(tau) times that of the other (Kairouz, Liu, Steinke 2021, "The
    distributed discrete Gaussian mechanism for federated learning with secure aggregation", Corollary 12); 0 for
    one contributor, infinite for several of sigma < 1/2.
    """
    if contributors == 1:
        return 0.0
    if sigma < _LEAST_SIGMA:
        return math.inf
    scale = -2 * math.pi**2 * sigma * sigma
    few = min(contributors, _SUMMED)
    tau = math.fsum(math.exp(scale * k / (k + 1)) for k in range(1, few))
    return 10 * (tau + (contributors - few) * math.exp(scale * few / (few + 1)))


def _modelled(noise: Noise) -> tuple[float, float, float] | None:
    """(noise_multiplier of the Gaussian, KL, total variation) of one use; None where no Gaussian is known."""
    match noise:
        case Gaussian(noise_multiplier=z):
            return z, 0.0, 0.0
        case DiscreteGaussian(l2=l2, sigma=sigma, contributors=contributors, dim=dim):
            v = contributors * sigma * sigma
            kl, tau = dim * discrete_gaussian_kl(v), dim * sum_distance(sigma, contributors)
        case Skellam(l2=l2, sigma=sigma, contributors=contributors, dim=dim):
            v = contributors * sigma * sigma
            kl, tau = dim * skellam_kl(v), 0.0
        case _:
            return None
    return (math.sqrt(v - 1 / 12) / l2, kl, tau) if kl < math.inf and tau < 1 else None


def _bundled(bundle: Bundle) -> tuple[float, float, float] | None:
    """The same for all releases behind one coin."""
    precision, divergence, distance = 0.0, 0.0, 0.0
    for noise, count in bundle:
        modelled = _modelled(noise)
        if modelled is None or modelled[0] == 0:
            return None
        precision += count / modelled[0] / modelled[0]
        divergence += count * modelled[1]
        distance += count * modelled[2]
    return (1 / math.sqrt(precision), divergence, distance) if 0 < precision < math.inf else None


def gaussian_model(flat: Flat) -> tuple[Uses, float] | None:
    """All uses as Gaussians, and the total variation of the transcript from the real one; None: not possible."""
    uses: Uses = dict(flat.gaussian)
    divergence, distance = 0.0, 0.0
    for (bundle, rate), count in flat.others.items():
        modelled = _bundled(bundle)
        if modelled is None:
            return None
        key = (modelled[0], rate)
        uses[key] = uses.get(key, 0) + count
        divergence += count * modelled[1]
        distance += count * modelled[2]
    return uses, math.sqrt(divergence / 2) + distance


def distance_from_gaussian(event: Event) -> float:
    """Total variation between `event` and the Gaussian releases by which it is priced; 0 where there are none."""
    modelled = gaussian_model(flatten(event))
    return 0.0 if modelled is None else modelled[1]
