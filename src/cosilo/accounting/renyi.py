"""Renyi divergences of every noise at integer orders, and their Poisson amplification.

| noise             | divergence at order a                                                     | source              |
|-------------------|---------------------------------------------------------------------------|---------------------|
| Gaussian          | a / (2 z^2)                                                               | Mironov 2017        |
| discrete Gaussian | a e^2 / 2, e = min(sqrt(l2^2/v + tau d/2), l2/sqrt(v) + tau sqrt(d))      | Kairouz et al. 2021 |
| Skellam           | a l2^2/(2 v) + min(((2 a - 1) l2^2 + 6 l1)/(4 v^2), 3 l1/(2 v))           | Agarwal et al. 2021 |
| Laplace           | log((a e^((a-1)/b) + (a-1) e^(-a/b)) / (2 a - 1)) / (a - 1)               | Mironov 2017        |
| pure epsilon      | that of randomised response, never above a epsilon^2/2 nor epsilon        | Bun, Steinke 2016   |
| Poisson binomial  | numeric, `cosilo.accounting.binomial`                                     | there               |

v is the total variance, d the number of coordinates, b the Laplace scale for l1 sensitivity 1. The Laplace line is for
one coordinate moved by 1. On several it is a sum of f(|move|), f the divergence between Laplace variables so far
apart. (a - 1) f is the logarithm of a sum of exponentials of linear functions, hence convex, and f(0) = 0, so
f(x) + f(y) <= f(x + y): the worst case is one coordinate that takes all of the l1 sensitivity.

Amplification (Steinke 2022, "Composition of differential privacy & privacy amplification by subsampling",
Theorem 11; Zhu, Wang 2019): let P and Q be the laws with and without a row, both divergences of order k between them
at most r(k) for all integers k in 2 ... a. One use on a Poisson batch of rate q then has divergence at most

    log(1 + sum_{k=2..a} C(a, k) (1-q)^(a-k) q^k (e^((k-1) r(k)) - 1)) / (a - 1) = log(F) / (a - 1).

Proof for given coins of the other rows (quasi-convexity removes the condition), with x = P/Q, A = 1 - q + q x and
B = q + (1-q) x. Presence against absence is E_Q A^a, the binomial expansion: at most F. The same expansion of Q
against P says E_Q x^(1-a) B^a <= F. Absence against presence is E_Q A^(1-a), and

    A^(1-a) <= w A^a + (1-w) x^(1-a) B^a - c (x - 1),    w = 3(1-q) / (3 + 2(a-2)q),  E_Q (x - 1) = 0,

c such that both sides have the same slope at x = 1, where they are equal. The second derivative of right minus left is
a (a-1) q^2 times  w A^(a-2) + (1-w) x^(-a-1) B^(a-2) - A^(-a-1), positive: by the inequality of means it is enough
that g = (w(a-2) + a + 1) log A + (1-w) ((a-2) log B - (a+1) log x) >= 0; g(1) = 0, and x g'(x) increases (q x / A and
(1-q) x / B do) and vanishes at 1 by the choice of w. So nothing is needed of P and Q: no symmetry, any number of
releases behind one coin.

A pure guarantee is also amplified as such: log(1 + q (e^epsilon - 1)). Poisson binomial counts have a fixed number of
contributors, whose values change instead of being absent: sampled, they are charged as unsampled.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cosilo.accounting import binomial
from cosilo.accounting.slack import sum_distance
from cosilo.privacy import DiscreteGaussian, Gaussian, Laplace, PoissonBinomial, Pure, Skellam

if TYPE_CHECKING:
    from cosilo.accounting.flat import Bundle, Noise
    from cosilo.accounting.gaussian import Floats

__all__ = ["ORDERS", "bundle_divergences", "pure_epsilon"]

_LARGEST = 1024
_ALL = np.arange(2, _LARGEST + 1, dtype=np.float64)
# dense where most optima lie, then 6 % apart, which costs up to 4 % of an epsilon below 0.1 (benchmarks/peers.py)
ORDERS: Floats = np.array([*range(2, 97), *(round(96 * 1.06**k) for k in range(1, 41)), _LARGEST], dtype=np.float64)
_AT = ORDERS.astype(np.int64) - 2  # where ORDERS lie in _ALL
_ROUNDING = 1e-11  # of one logarithm in the binomial sum: four ulp of log(1024!)
_ULPS = 2.0**-50
_TINY = 1e-300
_NEAR = 1e-3  # 1/b below which both exponentials are near 1
_MAX_EXPONENT = 700.0


def _quotient(square: float, v: float) -> float:
    return square / v if v > 0 else math.inf


def _discrete_gaussian(noise: DiscreteGaussian) -> Floats:
    v = noise.contributors * noise.sigma * noise.sigma
    tau = sum_distance(noise.sigma, noise.contributors)
    precision = _quotient(noise.l2 * noise.l2, v)
    other = math.sqrt(precision) + tau * math.sqrt(noise.dim)
    square = min(precision + tau * noise.dim / 2, other * other)
    return _ALL * (square / 2)


def _skellam(noise: Skellam) -> Floats:
    v = noise.contributors * noise.sigma * noise.sigma
    square, l1 = noise.l2 * noise.l2, noise.l1
    with np.errstate(over="ignore"):
        second = _quotient(1.0, v) * ((2 * _ALL - 1) * _quotient(square, v) + 6 * _quotient(l1, v)) / 4
        return _ALL * (_quotient(square, v) / 2) + np.minimum(second, 1.5 * _quotient(l1, v))


def _laplace(scale: float) -> Floats:
    """log((a e^((a-1)/b) + (a-1) e^(-a/b)) / (2a - 1)) / (a - 1), no cancellation: excess over 1 is summed."""
    rate = 1 / max(scale, _TINY)
    share = _ALL / (2 * _ALL - 1)
    far = (_ALL - 1) * rate + np.log(share + (1 - share) * np.exp(-np.minimum((2 * _ALL - 1) * rate, _MAX_EXPONENT)))
    small = min(rate, _NEAR)
    grow, shrink = np.expm1((_ALL - 1) * small), np.expm1(-_ALL * small)
    near = np.log1p(np.maximum(share * grow + (1 - share) * shrink, 0.0))
    # both first-order terms are a (a-1) / ((2a-1) b): what their difference may have lost
    lost = _ULPS * _ALL * rate
    return np.minimum((np.where(rate > _NEAR, far, near) + lost) / (_ALL - 1), rate)


def _pure(epsilon: float) -> Floats:
    if epsilon > _MAX_EXPONENT:
        return np.full_like(_ALL, epsilon)
    response = _ALL * epsilon + np.log1p(np.exp((1 - 2 * _ALL) * epsilon)) - epsilon - math.log1p(math.exp(-epsilon))
    response = (response + _ULPS * (1 + _ALL * epsilon)) / (_ALL - 1)
    return np.minimum(np.minimum(response, _ALL * epsilon * epsilon / 2), epsilon)


def _divergences(noise: Noise) -> Floats:
    """Upper bounds at orders 2 ... 1024, shape (1023,), in both directions."""
    match noise:
        case Gaussian(noise_multiplier=z):
            return _ALL * (_quotient(1 / max(z, _TINY), max(z, _TINY)) / 2)
        case DiscreteGaussian():
            return _discrete_gaussian(noise)
        case Skellam():
            return _skellam(noise)
        case Laplace(noise_multiplier=scale):
            return _laplace(scale)
        case Pure(epsilon=epsilon):
            return _pure(epsilon)
        case PoissonBinomial():
            return binomial.divergences(noise, _ALL)


def pure_epsilon(bundle: Bundle, rate: float) -> float:
    """The epsilon of the (epsilon, 0) guarantee of one use; infinite where there is none."""
    total = 0.0
    for noise, count in bundle:
        match noise:
            case Pure(epsilon=epsilon):
                total += count * epsilon
            case Laplace(noise_multiplier=scale):
                total += count / max(scale, _TINY)
            case _:
                return math.inf
    if rate == 1 or not math.isfinite(total):
        return total
    return total + math.log(rate + (1 - rate) * math.exp(-total)) if total > 1 else math.log1p(rate * math.expm1(total))


@lru_cache(maxsize=1)
def _log_binomials() -> tuple[Floats, Floats, Floats]:
    """Logarithms of C(a, k), a and k for every pair of an order a and 2 <= k <= a, one after the other."""
    orders = np.concatenate([np.full(int(a) - 1, a) for a in ORDERS])
    chosen = np.concatenate([np.arange(2.0, a + 1) for a in ORDERS])
    lgamma = np.array([math.lgamma(n + 1) for n in range(_LARGEST + 1)])
    at, k = orders.astype(np.int64), chosen.astype(np.int64)
    return lgamma[at] - lgamma[k] - lgamma[at - k], orders, chosen


def _amplified(divergences: Floats, rate: float) -> Floats:
    """The sampled divergences at ORDERS from the unsampled ones at 2 ... 1024."""
    binomials, orders, chosen = _log_binomials()
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        power = (_ALL - 1) * divergences
        growth = np.where(power < 1, np.log(np.expm1(np.minimum(power, 1))), power + np.log1p(-np.exp(-power)))
        logs = binomials + (orders - chosen) * math.log1p(-rate) + chosen * math.log(rate)
        logs += growth[chosen.astype(np.int64) - 2] + _ROUNDING
        starts = np.concatenate([[0], np.cumsum(ORDERS - 1)[:-1]]).astype(np.int64)
        most = np.maximum.reduceat(logs, starts)
        inside = np.where(np.isfinite(most), most, 0.0)
        sums = np.add.reduceat(np.exp(logs - np.repeat(inside, (ORDERS - 1).astype(np.int64))), starts)
        total = np.where(np.isfinite(most), inside + np.log(sums), most)
    return np.minimum(np.logaddexp(0.0, total) / (ORDERS - 1), divergences[_AT])


@lru_cache(maxsize=256)
def bundle_divergences(bundle: Bundle, rate: float) -> Floats:
    """Upper bound on the Renyi divergence, either way, of one use of `bundle` behind a coin, at ORDERS."""
    divergences = np.sum([count * _divergences(noise) for noise, count in bundle], axis=0)
    bound: Floats = divergences[_AT]
    if rate < 1 and not any(isinstance(noise, PoissonBinomial) for noise, _ in bundle):
        bound = _amplified(divergences, rate)
    pure = pure_epsilon(bundle, rate)
    return np.minimum(bound, _pure(pure)[_AT]) if math.isfinite(pure) else bound
