"""Renyi accounting: an upper bound for any mix of uses, always available.

Integer orders: `cosilo.accounting.renyi`. Gaussian uses alone: fractional orders too (`cosilo.accounting.fractional`),
exact for add-or-remove-one (Mironov, Talwar, Zhang 2019, "Renyi differential privacy of the sampled Gaussian
mechanism"). Divergences add up over adaptively chosen uses (Mironov 2017, Proposition 1) and become (epsilon, delta) by
Canonne, Kamath, Steinke 2020, Proposition 12 ("tight"), or by Mironov 2017, Proposition 3 ("mironov": larger, for
comparison with published numbers).

Every logarithm of a sum is charged its rounding error, once a use: at small sampling rates the sum itself rounds to
zero, which would claim epsilon = 0 for any number of uses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from cosilo.accounting.fractional import FRACTIONS, fractional_divergences
from cosilo.accounting.renyi import ORDERS, bundle_divergences

if TYPE_CHECKING:
    from cosilo.accounting.flat import Flat
    from cosilo.accounting.gaussian import Floats

__all__ = ["Conversion", "delta_upper", "epsilon_upper"]

Conversion: TypeAlias = Literal["tight", "mironov"]

_BOTH = np.concatenate([FRACTIONS, ORDERS])


def _composed(flat: Flat) -> tuple[Floats, Floats]:
    """Orders, shape (m,), and upper bounds on the divergences of everything at them, shape (m,)."""
    whole = np.sum([count * bundle_divergences(*use) for use, count in flat.bundles.items()], axis=0)
    if flat.others:
        return ORDERS, whole
    between = np.sum([count * fractional_divergences(*use) for use, count in flat.gaussian.items()], axis=0)
    return _BOTH, np.concatenate([between, whole])


def epsilon_upper(flat: Flat, delta: float, conversion: Conversion = "tight") -> float:
    """Upper bound on epsilon at `delta` for the uses of `flat`: at least one, every one noisy."""
    orders, divergences = _composed(flat)
    if conversion == "mironov":
        return float(np.min(divergences - math.log(delta) / (orders - 1)))
    # total variation <= sqrt(1 - exp(-KL)), and KL is at most any Renyi divergence of order > 1
    if np.any(-np.expm1(-divergences) < delta * delta):
        return 0.0
    found = divergences + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(float(np.min(found)), 0.0)


def delta_upper(flat: Flat, epsilon: float, conversion: Conversion = "tight") -> float:
    """Upper bound on delta at `epsilon` >= 0 for the uses of `flat`: at least one, every one noisy."""
    orders, divergences = _composed(flat)
    if conversion == "mironov":
        log = np.min((orders - 1) * (divergences - epsilon))
    else:
        log = np.min((orders - 1) * (divergences - epsilon + np.log1p(-1 / orders)) - np.log(orders))
        variation = np.sqrt(-np.expm1(-np.min(divergences)))
        log = min(log, np.log(max(variation, math.ulp(0.0))))
    # exp underflows to zero at large epsilon; the smallest float is still an upper bound
    return max(math.exp(min(float(log), 0.0)), math.ulp(0.0))
