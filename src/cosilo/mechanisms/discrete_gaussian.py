"""Discrete Gaussian noise, the default: P(k) ~ exp(-k^2 / (2 sigma^2)) on the integers.

Statement: see `privacy.DiscreteGaussian`; the sum of contributors is only close to a discrete Gaussian, and the event
keeps sigma and the number of contributors apart so that the accountant can charge the difference (Kairouz, Liu,
Steinke 2021, "The Distributed Discrete Gaussian Mechanism", Theorem 1: below 1e-37 a coordinate for sigma >= 3).
Assumption: the stream's words are uniform. Sampler: exact alias table or histogram (`tables`), sigma taken as the
rational number that the float64 is; float64 takes no part in a probability.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from cosilo.mechanisms.base import Mechanism, check_range, root_sum
from cosilo.mechanisms.draws import draw
from cosilo.mechanisms.tables import BITS, INEXACT, TAIL, AliasTable, Histogram, Law, exp_minus, table
from cosilo.privacy import DiscreteGaussian, Event

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.mechanisms.base import Integers

__all__ = ["DISCRETE_GAUSSIAN"]

_SMALLEST_ALONE = 0.5
_SMALLEST_SHARE = 3.0  # below, the sum of shares is not close enough to a discrete Gaussian
_LARGEST = 2.0**36


def _tail(sigma: float, draws: int, probability: float) -> float:
    """Sub-Gaussian bound, rounded up: P(|sum| >= B) <= 2 exp(-B^2 / (2 draws sigma^2)).

    E exp(t X) <= exp(t^2 sigma^2 / 2) (Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential
    Privacy", the lemma on sub-Gaussian tails), and exponents of independent draws add.
    """
    return sigma * math.sqrt(2 * draws * math.log(2 / probability)) * (1 + 1e-12)


def _heights(sigma: float, step: int, count: int) -> list[int]:
    """f(j step) = f((j-1) step) q^(2j-1), q = exp(-step^2 / (2 sigma^2)), within 2^-300.

    In units of 2^-384: q is within 2, q^2 within 5, its odd powers within 6 j, so f(j step) within 4 (j + 1)^2, which
    is below 2^36 for the at most 2^17 values asked for.
    """
    top, bottom = sigma.as_integer_ratio()
    factor = exp_minus((step * bottom) ** 2, 2 * top * top)
    square = factor * factor >> BITS
    height, out = 1 << BITS, []
    for _ in range(count):
        out.append(height)
        height = height * factor >> BITS
        factor = factor * square >> BITS
    return out


def _at(sigma: float, x: int) -> int:
    top, bottom = sigma.as_integer_ratio()
    return exp_minus((x * bottom) ** 2, 2 * top * top)


@lru_cache(maxsize=16)
def _table(sigma: float) -> tuple[Law, AliasTable | Histogram]:
    law = Law(
        reach=math.ceil(_tail(sigma, 1, TAIL)),
        heights=lambda step, count: _heights(sigma, step, count),
        at=lambda x: _at(sigma, x),
        quadratic=0.5 / sigma / sigma,
    )
    return law, table(law)


def _sample(stream: Stream, dim: int, sigma: float) -> Integers:
    """`dim` independent draws, shape (dim,), int64; sigma must pass `_check` for a single contributor."""
    check_range("Discrete Gaussian", sigma, 1, _SMALLEST_ALONE, _LARGEST)
    return draw(*_table(sigma), stream, dim)


def _event(*, l1: float, l2: float, sigma: float, contributors: int, dim: int) -> Event:
    del l1
    return DiscreteGaussian(l2=l2, sigma=sigma, contributors=contributors, dim=dim)


def _check(sigma: float, contributors: int) -> None:
    smallest = _SMALLEST_ALONE if contributors == 1 else _SMALLEST_SHARE
    check_range("Discrete Gaussian", sigma, contributors, smallest, _LARGEST)


def _inexact(sigma: float) -> float:
    """For every sigma of the validated range, see `tables.table`."""
    check_range("Discrete Gaussian", sigma, 1, _SMALLEST_ALONE, _LARGEST)
    return INEXACT


DISCRETE_GAUSSIAN = Mechanism(
    name="discrete-gaussian",
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
