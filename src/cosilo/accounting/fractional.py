"""Renyi divergences of one Poisson-sampled Gaussian at fractional orders, by a sum with a proved error.

The divergence of order a is log(A) / (a - 1), where (Mironov, Talwar, Zhang 2019: the larger of both directions)

    A = E (1 - q + q e^w)^a,  w = (2x - 1) / (2 z^2),  x ~ N(0, z^2).

The sum of the integrand over multiples of h, times h, differs from A by at most 2 M / (e^(2 pi c / h) - 1), M a bound
on the integral of its absolute value along every line Im x = y, |y| <= c, in a strip where it is analytic (Trefethen,
Weideman 2014, Theorem 5.1). The power has its first singularity where e^w is negative, |y| = pi z^2; for smaller |y|
it is largest on the real line, and the density grows by e^(y^2 / (2 z^2)): M <= e^(c^2 / (2 z^2)) A.

The sum stops `_REACH` sd beyond 0 and beyond a, the means of the densities in (1 - q + q e^w)^a <= 1 - q + q e^(a w).
What lies outside is at most Phi(-_REACH) (1 + q e^(a(a-1)/(2 z^2))); as A is at least 1 and q^a e^(a(a-1)/(2 z^2)),
that is at most Phi(-_REACH) (1 + q^(1-a)) A. Both errors together are far below `_REST` for rates above `_LEAST_RATE`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cosilo.accounting.gaussian import Floats

__all__ = ["FRACTIONS", "fractional_divergences"]

FRACTIONS: Floats = np.array([1 + k / 10 for k in range(1, 100) if k % 10])
_LEAST_RATE = 1e-9
_LEAST_NOISE = 0.02  # below, the sum is longer than it is worth
_REACH = 22.0  # Phi(-22) = 1e-107, and q^(1 - a) <= 1e90
_EXPONENT = 40.0  # of the error of the sum: e^-40 = 4e-18
_REST = 2.0**-40  # both errors, relative to A
_ULPS = 2.0**-50  # rounding of a logarithm, relative to its largest terms
_MOST_NOISE = 1e7  # above, even unsampled uses cost nothing
_BLOCK = 1 << 14
_TINY = 1e-300


@lru_cache(maxsize=256)
def fractional_divergences(noise_multiplier: float, sampling_rate: float) -> Floats:
    """Upper bounds at FRACTIONS, shape (90,), noise_multiplier > 0; infinite where the sum is not worth its time."""
    z, q = noise_multiplier, sampling_rate
    unsampled: Floats = FRACTIONS * (1 / max(z, _TINY) / max(z, _TINY) / 2)  # sampling never costs privacy
    if q == 1 or z > _MOST_NOISE:
        return unsampled
    if z < _LEAST_NOISE or q < _LEAST_RATE:
        return np.full_like(FRACTIONS, math.inf)
    strip = min(math.pi * z * z, 2 * math.pi * z)
    step = 2 * math.pi * strip / (_EXPONENT + strip * strip / (2 * z * z))
    lowest, highest = math.floor(-_REACH * z / step), math.ceil((FRACTIONS[-1] + _REACH * z) / step)
    log_sum = np.full_like(FRACTIONS, -math.inf)
    for start in range(lowest, highest + 1, _BLOCK):
        x = np.arange(start, min(start + _BLOCK, highest + 1)) * step
        log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))
        logs = FRACTIONS[:, None] * log_ratio - (x / z) ** 2 / 2
        most = logs.max(axis=1)
        log_sum = np.logaddexp(log_sum, most + np.log(np.exp(logs - most[:, None]).sum(axis=1)))
    log_moment = np.maximum(log_sum + math.log(step / z) - 0.5 * math.log(2 * math.pi), 0.0)
    # terms as large as order * log(1/q) and order^2 / (2 z^2) meet in one logarithm
    sizes = 1 + FRACTIONS * (math.log(1 / q) + (2 * FRACTIONS[-1] + 1) / (2 * z * z))
    sampled: Floats = (log_moment * (1 + _ULPS) + _REST + _ULPS * sizes) / (FRACTIONS - 1)
    return np.minimum(sampled, unsampled)
