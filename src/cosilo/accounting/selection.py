"""The price of private selection: run an event a random number of times, release the best result only.

Statement: K is drawn from a public law; each of K runs draws a candidate from a fixed public list, at random and
afresh, and releases a result with a score; the best result by a fixed total order is released, nothing else (not K,
not the other scores, not the time it took). K = 0 releases that there was nothing. The curve here bounds the Renyi
divergences of that release, add-or-remove-one, either way.
Assumption: `event` covers one whole run, its score included, for every candidate; the law and the list were fixed
without looking at rows; runs are independent.
Source: Papernot, Steinke 2022, "Hyperparameter tuning with Renyi differential privacy" (arXiv 2110.03620), Theorem 2
(truncated negative binomial) and Theorem 6 (Poisson).

With f(x) = E[x^K] and r(a) a bound on one run's divergence of order a, for every order a > 1:

| law               | divergence of order a of the selection                                           |
|-------------------|----------------------------------------------------------------------------------|
| negative binomial | r(a) + (1 + eta) ((1 - 1/b) r(b) + log(1/gamma)/b) + log E[K] / (a-1), any b > 1 |
| Poisson of mean m | log(e^-m + m e^((a-1)(r(a) + m delta))) / (a-1), delta at e^epsilon = a/(a-1)    |

Proof. Order the results. The selection has A(y) = f(F(y)) - f(F(y-)), the average of f' over [F(y-), F(y)] times
P(y). By joint convexity of u^a v^(1-a), the sum over results of A(y)^a A'(y)^(1-a) is at most e^((a-1) r(a)) times the
largest f'(p)^a f'(p')^(1-a), p and p' being the probabilities of one test under both neighbours. To that K = 0 adds
f(0).
Negative binomial: f'(x) = E[K] (gamma / (1 - (1-gamma) x))^(1+eta). u = gamma + (1-gamma)(1-p), and u' of p', are
the probabilities of one randomised test, so u'^b u^(1-b) <= e^((b-1) r(b)); hence gamma u'^(a-1) u^(-a) <=
gamma u^(-1-(a-1)/b) e^((a-1)(1-1/b) r(b)), and u >= gamma.
Poisson: f'(x) = m e^(m(x-1)), f'(p)^a f'(p')^(1-a) = m e^(m (a-1)((1-p') - e^epsilon (1-p))), e^epsilon = a/(a-1).
The term e^-m of an empty selection is kept, as the proof above needs it; b = infinity is the pure epsilon.

Failures and distances of one run: selections without a failed run weigh K = k by (1-p)^k, which leaves a multiple < 1
of a law of the same family with a larger gamma or a smaller mean, whose curve is below. Some run failed or parted
with probability at most E[K] p and E[K] tv. So delta is curve + E[K] p + (1 + e^epsilon) E[K] tv.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cosilo.accounting import gaussian, pld
from cosilo.accounting.flat import distance_charge, flatten, fused_mu
from cosilo.accounting.renyi import ORDERS, bundle_divergences, pure_epsilon
from cosilo.errors import ConfigError
from cosilo.privacy import check_delta

if TYPE_CHECKING:
    from cosilo.accounting.flat import Flat
    from cosilo.accounting.gaussian import Floats
    from cosilo.privacy import Event

__all__ = ["PoissonTrials", "Selection", "TrialLaw", "TruncatedNegativeBinomial", "negative_binomial_of_mean", "select"]

_ULPS = 2.0**-46  # roundings of a line of the table
_ROUNDS = 500
_AHEAD = 1e-12
_NO_ETA = 1e-12  # of |eta log gamma|: the mean is that of eta = 0 to twelve digits
_OFF_MEAN = 1e-10
_LEAST_GAMMA = 1e-300
_LEAST_NOISE = 1e-6  # below, exp(1/z^2) and its powers leave double precision in every sampled curve
_RESOLUTION = 1e-8  # of delta, which is multiplied by the number of trials and added to a divergence


@dataclass(frozen=True, slots=True)
class TruncatedNegativeBinomial:
    """K >= 1 with P(K = k) proportional to (1 - gamma)^k times the product of (l + eta)/(l + 1) over l < k.

    Attributes:
        eta: > -1; 1 is geometric, 0 logarithmic; less of it costs less privacy and spreads K more widely.
        gamma: in [1e-300, 1); less of it means more trials.
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eta) and self.eta > -1):
            raise ConfigError(
                f"eta must be finite and > -1, got {self.eta}.", "1 is the geometric law, 0 its cheaper kin."
            )
        if not _LEAST_GAMMA <= self.gamma < 1:
            raise ConfigError(f"gamma must lie in [1e-300, 1), got {self.gamma}.", "Use negative_binomial_of_mean.")

    @property
    def mean(self) -> float:
        """Expected number of trials."""
        log_gamma = math.log(self.gamma)
        odds = (1 - self.gamma) / self.gamma  # the difference is exact near 1
        eta = self.eta if abs(self.eta * log_gamma) > _NO_ETA else 0.0
        return max(1.0, odds * (eta / -math.expm1(eta * log_gamma) if eta else -1 / log_gamma))

    def probability(self, trials: int) -> float:
        """P(K = trials)."""
        if trials < 1:
            return 0.0
        power = -self.eta * math.log(self.gamma)
        # eta / (gamma^-eta - 1), then the product without its first factor eta
        first = self.eta / -math.expm1(-power) if self.eta else -1 / math.log(self.gamma)
        log = trials * math.log1p(-self.gamma) - math.log(trials) - power
        log += math.lgamma(trials + self.eta) - math.lgamma(1 + self.eta) - math.lgamma(trials)
        return first * math.exp(log)


@dataclass(frozen=True, slots=True)
class PoissonTrials:
    """K Poisson of this mean; nothing is released with probability e^-mean."""

    mean: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and self.mean > 0):
            raise ConfigError(
                f"The mean must be finite and > 0, got {self.mean}.", "Use the expected number of trials."
            )

    def probability(self, trials: int) -> float:
        """P(K = trials)."""
        return math.exp(trials * math.log(self.mean) - self.mean - math.lgamma(trials + 1)) if trials >= 0 else 0.0


TrialLaw: TypeAlias = TruncatedNegativeBinomial | PoissonTrials


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """What releasing the best of a random number of runs costs.

    Attributes:
        law: of the number of runs.
        orders: Renyi orders, shape (m,).
        divergences: bounds at every order, shape (m,).
        failure, distance: of all runs together, in expectation.
    """

    law: TrialLaw
    orders: Floats
    divergences: Floats
    failure: float
    distance: float

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at `delta`, failures and distances paid; infinite where none is found."""
        check_delta(delta)
        paid_for = 0.0
        for _ in range(_ROUNDS):  # rises to the smallest epsilon that pays for the distance at itself
            apart = distance_charge(self.distance, paid_for)
            budget = delta - self.failure - apart
            if not budget > 0:
                return math.inf
            found = self._curve(budget)
            if found <= paid_for or self.distance == 0 or found == math.inf:
                return max(found, paid_for)
            paid_for = found * (1 + _AHEAD)
        return math.inf

    def _curve(self, delta: float) -> float:
        found = self.divergences + np.log1p(-1 / self.orders) - np.log(delta * self.orders) / (self.orders - 1)
        return max(float(np.min(found)), 0.0)


def negative_binomial_of_mean(eta: float, mean: float) -> TruncatedNegativeBinomial:
    """The law of this eta whose expected number of trials is `mean` > 1, to ten digits.

    Raises:
        ConfigError: there is none in double precision (eta near -1 or huge, or a mean of 1).
    """
    if not (math.isfinite(mean) and mean > 1):
        raise ConfigError(f"The mean must be finite and > 1, got {mean}.", "One trial needs no selection.")
    low, high = math.log(_LEAST_GAMMA) * (1 - _ULPS), -1e-15  # log gamma; the mean decreases in it
    for _ in range(100):
        middle = (low + high) / 2
        law = TruncatedNegativeBinomial(eta, math.exp(middle))
        low, high = (middle, high) if law.mean > mean else (low, middle)
    found = TruncatedNegativeBinomial(eta, math.exp(high))
    if abs(found.mean / mean - 1) > _OFF_MEAN:
        raise ConfigError(f"No law with eta {eta:g} has the mean {mean:g} within double precision.", "Use eta 0 or 1.")
    return found


def _one_run(flat: Flat) -> tuple[Floats, float]:
    """Divergences at ORDERS, and the pure epsilon; both infinite where a run releases something without noise."""
    bundles = flat.bundles
    bare = math.inf if flat.bare > 0 else 0.0
    curve = np.full(ORDERS.shape, bare)
    for use, count in bundles.items():
        curve = curve + count * bundle_divergences(*use)
    pure = math.fsum(count * pure_epsilon(*use) for use, count in bundles.items())
    return curve * (1 + _ULPS), (bare + pure) * (1 + _ULPS)


def _hockey_sticks(flat: Flat, curve: Floats) -> Floats:
    """Upper bound on delta of one run at e^epsilon = a/(a-1), for every a of ORDERS."""
    epsilons = np.log1p(1 / (ORDERS - 1))
    slope = (ORDERS - 1)[None, :]
    logs = slope * (curve[None, :] - epsilons[:, None] + np.log1p(-1 / ORDERS)[None, :]) - np.log(ORDERS)[None, :]
    found = np.exp(np.minimum(np.min(logs, axis=1), 0.0))
    return np.asarray(np.minimum(found, _exact_hockey_sticks(flat, epsilons)), dtype=np.float64)


def _exact_hockey_sticks(flat: Flat, epsilons: Floats) -> Floats:
    """The same from the privacy loss itself, shape (m,); ones where the accountant has none."""
    ones = np.ones_like(epsilons)
    if flat.others or not flat.gaussian or any(z < _LEAST_NOISE for z, _ in flat.gaussian):
        return ones
    unsampled = gaussian.hockey_stick(epsilons, fused_mu(flat.gaussian))  # sampling never costs privacy
    if all(rate == 1 for _, rate in flat.gaussian):
        return unsampled
    try:
        losses = pld.loss_distribution(flat.gaussian, _RESOLUTION)
    except ConfigError:
        return unsampled
    return np.minimum(unsampled, [losses.delta_upper(float(epsilon)) for epsilon in epsilons])


def _negative_binomial(law: TruncatedNegativeBinomial, curve: Floats, pure: float) -> Floats:
    second = float(np.min((1 - 1 / ORDERS) * curve - math.log(law.gamma) / ORDERS))
    bound = curve + (1 + law.eta) * min(second, pure) + math.log(law.mean) / (ORDERS - 1)
    return np.asarray(bound, dtype=np.float64)


def _poisson(law: PoissonTrials, curve: Floats, deltas: Floats) -> Floats:
    inside = math.log(law.mean) + (ORDERS - 1) * (curve + law.mean * deltas)
    return np.asarray(np.logaddexp(-law.mean, inside) / (ORDERS - 1), dtype=np.float64)


def select(event: Event, law: TrialLaw) -> Selection:
    """The price of the best of K runs of `event`, K of `law`: at least that of one run where K >= 1."""
    flat = flatten(event)
    curve, pure = _one_run(flat)
    match law:
        case TruncatedNegativeBinomial():
            bound = _negative_binomial(law, curve, pure)
        case PoissonTrials():
            bound = _poisson(law, curve, _hockey_sticks(flat, curve))
    bound = np.maximum(bound * (1 + _ULPS) + _ULPS, 0.0)
    # divergences increase with the order: a higher order bounds every lower one
    bound = np.minimum.accumulate(bound[::-1])[::-1]
    trials = law.mean * (1 + _ULPS)
    return Selection(law, ORDERS, bound, trials * flat.failure, trials * flat.distance)
