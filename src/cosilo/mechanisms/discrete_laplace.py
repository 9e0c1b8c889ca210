"""Discrete Laplace noise: P(k) ~ exp(-a |k|) on the integers, a = 2 asinh(1 / (sqrt(2) sigma)), sd sigma.

Statement: one contributor's noise on an integer vector of l1 sensitivity D1 is (a D1, 0)-private (Ghosh, Roughgarden,
Sundararajan 2012, "Universally Utility-Maximizing Privacy Mechanisms"; the ratio of two shifted masses is at most
exp(a |shift|) on each coordinate). The sum of several is not of the family: only a silo's own noise is counted, and
the others' add error without adding to the promise.
Assumption: the stream's words are uniform. Sampler: exact alias table or histogram (`tables`) for the float64 a, read
as a rational number; any scale of the range.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from cosilo.mechanisms.base import Mechanism, check_range, root_sum
from cosilo.mechanisms.draws import draw
from cosilo.mechanisms.tables import BITS, INEXACT, TAIL, AliasTable, Histogram, Law, exp_minus, table
from cosilo.privacy import Event, Pure

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.mechanisms.base import Integers

__all__ = ["DISCRETE_LAPLACE", "decay"]

_SMALLEST, _LARGEST = 0.5, 2.0**36
_TILTS = tuple(1 - 0.97**i for i in range(1, 300)) + tuple(10.0 ** (-i / 20) for i in range(30, 160))


def decay(sigma: float) -> float:
    """The rate a of the law that the sampler draws at this sigma: variance 1 / (2 sinh^2(a / 2)) = sigma^2."""
    return 2 * math.asinh(1 / (math.sqrt(2) * sigma))


def _tail(sigma: float, draws: int, probability: float) -> float:
    """Chernoff at the best of a fixed list of tilts t = x a, 0 < x < 1, each of which is a valid bound.

    P(|sum| >= B) <= 2 E[exp(t X)]^draws exp(-t B), E exp(t X) = (1 - p)^2 / ((1 - p e^t) (1 - p e^-t)), p = e^-a;
    for one draw also P(|X| >= k) = 2 p^k / (1 + p). Rounded up.
    """
    a, needed = decay(sigma), math.log(2 / probability)
    best = needed / a if draws == 1 else math.inf
    for x in _TILTS:
        moment = 2 * math.log(-math.expm1(-a)) - math.log(math.expm1(a * (x - 1)) * math.expm1(-a * (1 + x)))
        best = min(best, (draws * max(moment, 0.0) + needed) / (x * a))
    return best * (1 + 1e-9) + 1


def _heights(sigma: float, step: int, count: int) -> list[int]:
    """f(j step) = q^j, q = exp(-a step) within 2 units of 2^-384: f(j step) within 3 j units, below 2^-300."""
    top, bottom = decay(sigma).as_integer_ratio()
    factor, height, out = exp_minus(step * top, bottom), 1 << BITS, []
    for _ in range(count):
        out.append(height)
        height = height * factor >> BITS
    return out


def _at(sigma: float, x: int) -> int:
    top, bottom = decay(sigma).as_integer_ratio()
    return exp_minus(x * top, bottom)


@lru_cache(maxsize=8)
def _table(sigma: float) -> tuple[Law, AliasTable | Histogram]:
    law = Law(
        reach=math.ceil(_tail(sigma, 1, TAIL)),
        heights=lambda step, count: _heights(sigma, step, count),
        at=lambda x: _at(sigma, x),
        linear=decay(sigma),
    )
    return law, table(law)


def _sample(stream: Stream, dim: int, sigma: float) -> Integers:
    """`dim` independent draws, shape (dim,), int64."""
    _check(sigma, 1)
    return draw(*_table(sigma), stream, dim)


def _event(*, l1: float, l2: float, sigma: float, contributors: int, dim: int) -> Event:
    """Own noise only: `contributors` does not enter; rounded up."""
    del l2, contributors, dim
    return Pure(l1 * decay(sigma) * (1 + 2.0**-50))


def _total(share_multiplier: float, contributors: int) -> float:
    """The share itself: the others' noise is not counted."""
    return root_sum(share_multiplier, min(contributors, 1))


def _check(sigma: float, contributors: int) -> None:
    check_range("Discrete Laplace", sigma, contributors, _SMALLEST, _LARGEST)


def _inexact(sigma: float) -> float:
    """For every sigma of the validated range, see `tables.table`."""
    _check(sigma, 1)
    return INEXACT


DISCRETE_LAPLACE = Mechanism(
    name="discrete-laplace",
    sample=_sample,
    event=_event,
    total=_total,
    tail=_tail,
    check=_check,
    inexact=_inexact,
    largest_sigma=_LARGEST,
    finest_sigma=None,
    sum_dominating="yes",  # the sum's largest privacy loss is one contributor's: its far tail decays at the same rate
    limits=None,
)
