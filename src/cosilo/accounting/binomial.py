"""Renyi divergence of Poisson-binomial counts: the worst case over all values of everyone, numerically.

One coordinate is a sum of contributors * trials coins of probabilities inside [low, high]; neighbours differ in the
common probability of one contributor's coins. Claim: no pair is further apart than `trials` coins of `high` against
`trials` coins of `low`, beside j coins of `high` and the rest of `low`, for some j (or the mirror image, which is
the same by low = 1 - high). Proof.

1. A coin of probability p is a mixture of coins of `high` and `low`. Mixing the other contributors' coins alike, and
   the changed coins by the monotone coupling, writes both distributions as one mixture of pairs in which u changed
   coins are (high, low) and all others are equal, each `low` or `high`. Renyi divergences are jointly quasi-convex.
2. Turning one more coin from low to high moves a sum of independent coins up in likelihood ratio order (sums of
   coins are log-concave). For Q <= R <= P in that order dR/dQ and dP/dQ increase and cross once, so
   E_Q f(dR/dQ) <= E_Q f(dP/dQ) for convex f: D(R || Q) <= D(P || Q), likewise D(P || R) <= D(P || Q). Hence u may be
   taken as `trials`.
3. The j are covered by intervals: a pool that j shares with its whole interval is left over when the rest of the
   coins is dropped, and dropping independent coins only increases divergences (they are post-processing).

Coordinates are independent, so their divergences add up; every coordinate is charged the worst.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cosilo.accounting.gaussian import Floats
    from cosilo.privacy import PoissonBinomial

__all__ = ["divergences"]

_INTERVALS = 48  # over which j is covered: the pool loses 1/48 of its coins
_MOST_COINS = 2048  # in the pool; more are dropped, which overstates the divergence
_MOST_TRIALS = 2048
_MARGIN = 1 + 1e-9  # rounding of logarithms of sums of at most 4096 positive terms


def _binomial_logs(coins: int, probability: float) -> Floats:
    """Logarithms of P(k heads of `coins`), shape (coins + 1,)."""
    lgamma = np.array([math.lgamma(n + 1) for n in range(coins + 1)])
    k = np.arange(coins + 1)
    choose = lgamma[coins] - lgamma - lgamma[::-1]
    return np.asarray(choose + k * math.log(probability) + (coins - k) * math.log1p(-probability), dtype=np.float64)


def _sum_logs(first: Floats, second: Floats) -> Floats:
    """Logarithms of the law of an independent sum: positive terms only, so every value keeps its precision."""
    if len(first) < len(second):
        first, second = second, first
    total = np.full(len(first) + len(second) - 1, -np.inf)
    for shift, log in enumerate(second):
        part = total[shift : shift + len(first)]
        np.logaddexp(part, first + log, out=part)
    return total


def _extreme(pool: Floats, trials: int, low: float, orders: Floats) -> Floats:
    """The larger of both directions' divergences at `orders`, shape (m,)."""
    up, down = _sum_logs(pool, _binomial_logs(trials, 1 - low)), _sum_logs(pool, _binomial_logs(trials, low))
    worst = np.zeros_like(orders)
    for p, q in ((up, down), (down, up)):
        logs = q[None, :] + orders[:, None] * (p - q)[None, :]
        most = logs.max(axis=1)
        sums = most + np.log(np.exp(logs - most[:, None]).sum(axis=1))
        worst = np.maximum(worst, sums / (orders - 1))
    return worst


@lru_cache(maxsize=32)
def _one_coordinate(trials: int, theta: float, contributors: int, largest: int) -> Floats:
    low, others = 0.5 - theta, min(trials * (contributors - 1), _MOST_COINS)
    orders = np.arange(2, largest + 1, dtype=np.float64)
    edges = sorted({round(others * i / _INTERVALS) for i in range(_INTERVALS + 1)})
    exact = len(edges) > others  # every j is an edge
    pairs = [(j, j) for j in edges] if exact else list(pairwise(edges))
    worst = np.zeros_like(orders)
    for fewest, most in pairs:
        pool = _sum_logs(_binomial_logs(fewest, 1 - low), _binomial_logs(others - most, low))
        worst = np.maximum(worst, _extreme(pool, trials, low, orders))
    return worst


def divergences(noise: PoissonBinomial, orders: Floats) -> Floats:
    """Upper bound at integer `orders` 2, 3, ..., shape (m,), infinite where it is not computed.

    Never above the bound of one contributor's coins alone, which is pure: trials * log(high / low) a coordinate.
    """
    low = 0.5 - noise.theta
    most = noise.trials * math.log((1 - low) / low)
    found = np.full_like(orders, most)
    if noise.trials <= _MOST_TRIALS:
        largest = int(min(orders[-1], 128))
        one = _one_coordinate(noise.trials, noise.theta, noise.contributors, largest)
        found[: len(one)] = np.minimum(one * _MARGIN + 1e-12, most)
    return noise.dim * found
