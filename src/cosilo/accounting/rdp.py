"""Renyi accounting: an upper bound for any mix of uses, always available.

Gaussian uses alone: the Renyi divergence of one sampled use is dp_accounting's (Mironov, Talwar, Zhang 2019, "Renyi
differential privacy of the sampled Gaussian mechanism": exact for add-or-remove-one), at fractional orders too. With
other noise: `cosilo.accounting.renyi`, integer orders. Divergences add up over adaptively chosen uses (Mironov 2017,
Proposition 1) and become (epsilon, delta) by Canonne, Kamath, Steinke 2020, Proposition 12 ("tight"), or by Mironov
2017, Proposition 3 ("mironov": larger, for comparison with published numbers).

dp_accounting computes log E[ratio^order] as a floating-point sum near zero; at small sampling rates the sum
rounds to zero or below, which would claim epsilon = 0 for any number of uses. So every order is charged the
rounding error of that sum, once a use.
"""

from __future__ import annotations

import logging
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from cosilo.accounting.renyi import ORDERS, bundle_divergences
from cosilo.privacy import Gaussian

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cosilo.accounting.flat import Bundle, Flat
    from cosilo.accounting.gaussian import Floats

__all__ = ["Conversion", "delta_upper", "epsilon_upper"]

Conversion: TypeAlias = Literal["tight", "mironov"]

_SERIES_REST = 2.0**-40  # dp_accounting stops its fractional series at exp(-30) of the sum: 1e-13, ten times over
_ULPS = 2.0**-50  # four roundings in every log binomial and log power
_NO_FRACTIONS = 100.0  # noise_multiplier from which dp_accounting's fractional series converges slowly, then not
_LEAST_ORDER = 1.01
_ORDERS = [*range(2, 65), 128, 256, 512, 1024]


@lru_cache(maxsize=64)
def _one_use(noise_multiplier: float, sampling_rate: float, *, fractions: bool) -> tuple[Floats, Floats]:
    """Orders, shape (m,), and an upper bound on the Renyi divergence of one use at each of them, shape (m,).

    `fractions`: with dp_accounting's fractional orders; all uses of a composition need the same orders.
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(None if fractions else _ORDERS)
    base = GaussianDpEvent(noise_multiplier)
    # A fractional order whose series does not converge becomes infinite, which is valid; it also logs a warning.
    logging.getLogger("absl").addFilter(_not_converging := lambda record: "converge" not in record.getMessage())
    accountant.compose(base if sampling_rate == 1 else PoissonSampledDpEvent(sampling_rate, base))
    logging.getLogger("absl").removeFilter(_not_converging)
    orders = np.asarray(accountant.orders, dtype=np.float64)
    computed = np.asarray(accountant.rdp, dtype=np.float64)
    lgamma = np.array([math.lgamma(order + 1) for order in orders])
    rounding = (_SERIES_REST + _ULPS * (lgamma - orders * math.log(sampling_rate))) / (orders - 1)
    return orders, np.maximum(computed, 0.0) * (1 + _ULPS) + (rounding if sampling_rate < 1 else 0.0)


def _gaussians(uses: Mapping[tuple[float, float], int]) -> tuple[Floats, Floats]:
    fractions = all(noise_multiplier <= _NO_FRACTIONS for noise_multiplier, _ in uses)
    parts = [(count, *_one_use(*use, fractions=fractions)) for use, count in uses.items()]
    return parts[0][1], np.sum([count * one for count, _, one in parts], axis=0)


def _composed(flat: Flat) -> tuple[Floats, Floats]:
    """Orders above 1.01, where conversions are stable, and bounds on the divergences of everything at them."""
    if not flat.others:
        orders, divergences = _gaussians(flat.gaussian)
        return orders[orders > _LEAST_ORDER], divergences[orders > _LEAST_ORDER]
    bundles: dict[tuple[Bundle, float], int] = dict(flat.others)
    bundles |= {(((Gaussian(z), 1),), rate): count for (z, rate), count in flat.gaussian.items()}
    return ORDERS, np.sum([count * bundle_divergences(*use) for use, count in bundles.items()], axis=0)


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
