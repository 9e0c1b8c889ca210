"""Continuous Laplace noise in float64, rounded to the lattice: research only.

Statement: an integer vector of l1 sensitivity D1 plus one contributor's Laplace noise of scale b = sigma / sqrt(2) is
(D1 / b, 0)-private (Dwork, McSherry, Nissim, Smith 2006, Theorem 1); rounding the sum is post-processing. Sums of
Laplace variables are not Laplace: the others' noise is not counted.
Assumption: real-number noise, rounded once; float64 draws (Mironov 2012) and the rounding of each share are not
bounded in delta, and the statement of a run says so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cosilo.mechanisms.base import Mechanism, check_range, root_sum
from cosilo.mechanisms.draws import new_vector
from cosilo.privacy import Event, Laplace

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.mechanisms.base import Integers

__all__ = ["LAPLACE"]

_SMALLEST = 1.0
_LARGEST = 2.0**47  # the sampler reaches 64 ln 2 scales, 32 sd: integers up to 2^53 are exact in float64
_FINEST = 2.0**24
_CHUNK = 1 << 15
_TILTS = tuple(1 - 0.97**i for i in range(1, 300)) + tuple(10.0 ** (-i / 20) for i in range(30, 160))


def _sample(stream: Stream, dim: int, sigma: float) -> Integers:
    """`dim` independent Laplace draws of sd sigma by inversion, rounded to integers, shape (dim,), int64.

    One 64-bit word a draw: the lowest bit is the sign, the upper 63 a uniform k; the size is
    -(sigma / sqrt(2)) ln((k + 1/2) / 2^63).
    """
    check_range("Laplace", sigma, 1, _SMALLEST, _LARGEST)
    out = new_vector(dim)
    scale = sigma / math.sqrt(2)
    for start in range(0, dim, _CHUNK):
        words = stream.words(min(_CHUNK, dim - start))
        uniform = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-63
        sign = 1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64)
        out[start : start + words.size] = np.rint(-scale * sign * np.log(uniform))
    return out


def _event(*, l1: float, l2: float, sigma: float, contributors: int, dim: int) -> Event:
    """Own noise only: `contributors` does not enter."""
    del l2, contributors, dim
    return Laplace(sigma / math.sqrt(2) * (1 - 2.0**-50) / l1)


def _total(share_multiplier: float, contributors: int) -> float:
    """The share itself: the others' noise is not counted."""
    return root_sum(share_multiplier, min(contributors, 1))


def _tail(sigma: float, draws: int, probability: float) -> float:
    """Chernoff at the best of a fixed list of tilts t = x / b, 0 < x < 1, each of which is a valid bound.

    E exp(t X) = 1 / (1 - x^2), P(|sum| >= B) <= 2 E[exp(t X)]^draws exp(-t B); for one draw also
    P(|X| >= B) = exp(-B / b). Rounded up; rounding adds at most 1/2 a draw.
    """
    scale, needed = sigma / math.sqrt(2), math.log(2 / probability)
    best = scale * needed if draws == 1 else math.inf
    for x in _TILTS:
        best = min(best, (needed - draws * math.log1p(-x * x)) * scale / x)
    return best * (1 + 1e-9) + draws / 2


def _check(sigma: float, contributors: int) -> None:
    check_range("Laplace", sigma, contributors, _SMALLEST, _LARGEST)


def _inexact(sigma: float) -> None:
    """No bound: the law of float64 logarithms is not proved close to the Laplace law."""
    del sigma


LAPLACE = Mechanism(
    name="laplace",
    sample=_sample,
    event=_event,
    total=_total,
    tail=_tail,
    check=_check,
    inexact=_inexact,
    largest_sigma=_LARGEST,
    finest_sigma=_FINEST,
    sum_dominating="yes",  # the sum's largest privacy loss is one contributor's: its far tail decays at the same rate
    limits=(
        "Floating point: the proof is for real-number Laplace noise rounded once. Draws are float64 and every silo "
        "rounds its own share to the lattice; the distance of their law from the ideal one is not part of delta."
    ),
)
