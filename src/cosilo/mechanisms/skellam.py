"""Skellam noise: the difference of two Poisson variables of mean sigma^2 / 2; P(k) = exp(-v) I_k(v), v = sigma^2.

Statement: see `privacy.Skellam`; the sum of N contributors is Skellam of variance N sigma^2 exactly, so its curve has
no approximation in N (Agarwal, Kairouz, Liu 2021, "The Skellam Mechanism for Differentially Private Federated
Learning"). v is the *variance*; part of the literature calls the rate of one Poisson variable by that letter.
Assumption: the stream's words are uniform. Sampler: exact alias table or histogram (`tables`) from Bessel ratios by
Miller's backward recurrence in integers, v taken as the exact square of the float64 sigma.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cosilo.mechanisms.base import Mechanism, check_range, root_sum
from cosilo.mechanisms.draws import draw
from cosilo.mechanisms.tables import BITS, INEXACT, TAIL, AliasTable, Histogram, Law, table
from cosilo.privacy import Event, Skellam

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.mechanisms.base import Integers
    from cosilo.mechanisms.tables import Floats

__all__ = ["SKELLAM"]

_SMALLEST, _LARGEST = 0.5, 2.0**17
_START = 2.0**-320  # tail probability where the backward recurrence starts


def _exponent(ratio: float) -> float:
    """Supremum over t of ratio t - (cosh t - 1): at sinh t = ratio; cosh t - 1 = ratio^2 / (1 + sqrt(1 + ratio^2))."""
    return ratio * math.asinh(ratio) - ratio * ratio / (1 + math.sqrt(1 + ratio * ratio))


def _tail(sigma: float, draws: int, probability: float) -> float:
    """Chernoff bound: P(|sum| >= B) <= 2 exp(-v e(B / v)), v = draws sigma^2, e = `_exponent`.

    E exp(t X) = exp(v (cosh t - 1)); B by bisection, the upper end, rounded up.
    """
    variance, needed = draws * sigma * sigma, math.log(2 / probability)
    low, high = 0.0, 1.0
    while variance * _exponent(high / variance) < needed:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if variance * _exponent(middle / variance) >= needed else (middle, high)
    return high * (1 + 1e-9)


def _bessel(sigma: float, count: int) -> list[int]:
    """I_k(v) / I_0(v), k = 0 .. count - 1, in units of 2^-BITS, each within 2^-300 (count <= reach + buckets' rest).

    Backward from K with I_{K+1} := 0: r_{k-1} = 1 / (2k / v + r_k) for r_k = I_{k+1} / I_k. Two starts differ after
    the steps K .. k by the product of their ratios r r' (each below 1), here about (P(K) / P(k))^2, K being where
    the tail is 2^-320, k where it is 2^-128: below 2^-350 relative (the tests bracket it). All terms are positive and
    at least 2^384 units, so each of the K <= 2^22 steps rounds by at most 2^-383 relative.
    """
    top, bottom = sigma.as_integer_ratio()
    top, bottom = top * top, 2 * bottom * bottom
    start = max(count, math.ceil(_tail(sigma, 1, _START))) + 2
    above, here, out = 0, 1 << BITS, []
    for k in range(start, 0, -1):
        if k < count:
            out.append(here)
        above, here = here, above + here * bottom * k // top
    out.append(here)
    return [(value << BITS) // here for value in reversed(out)]


def _floats(heights: list[int]) -> Floats:
    scale = math.ldexp(1.0, -BITS)
    return np.array([float(height) * scale for height in heights])


@lru_cache(maxsize=8)
def _table(sigma: float) -> tuple[Law, AliasTable | Histogram]:
    known = lru_cache(maxsize=1)(lambda count: _bessel(sigma, count))  # heights and floats ask for the same one
    law = Law(
        reach=math.ceil(_tail(sigma, 1, TAIL)),
        heights=lambda step, count: known(step * (count - 1) + 1)[::step],
        at=lambda x: _bessel(sigma, x + 1)[x],
        floats=lambda count: _floats(known(count)),
    )
    made = table(law)
    known.cache_clear()  # 200 MB at the largest sigma
    return law, made


def _sample(stream: Stream, dim: int, sigma: float) -> Integers:
    """`dim` independent draws, shape (dim,), int64."""
    _check(sigma, 1)
    return draw(*_table(sigma), stream, dim)


def _event(*, l1: float, l2: float, sigma: float, contributors: int, dim: int) -> Event:
    return Skellam(l1=l1, l2=l2, sigma=sigma, contributors=contributors, dim=dim)


def _check(sigma: float, contributors: int) -> None:
    check_range("Skellam", sigma, contributors, _SMALLEST, _LARGEST)


def _inexact(sigma: float) -> float:
    """For every sigma of the validated range, see `tables.table`."""
    _check(sigma, 1)
    return INEXACT


SKELLAM = Mechanism(
    name="skellam",
    sample=_sample,
    event=_event,
    total=root_sum,
    tail=_tail,
    check=_check,
    inexact=_inexact,
    largest_sigma=_LARGEST,
    finest_sigma=None,
    sum_dominating="proper",
    limits=None,
)
