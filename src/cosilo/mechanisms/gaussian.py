"""Continuous Gaussian noise in float64, rounded to the lattice: research only.

Statement: an integer vector of l2 sensitivity D2 plus N(0, sigma^2) is the Gaussian mechanism with noise_multiplier
sigma / D2; rounding that sum is post-processing, and equals the vector plus the rounded noise (the vector is
integer). Independent shares of N contributors add in variance.
Assumption: real-number Gaussians, and one rounding. The draws are float64 approximations and every contributor rounds
its own share; neither is bounded in delta, and the statement of a run says so. Discrete noise has no such gap.
The lattice takes away the low-order bits by which float noise gives its input away (Mironov 2012, "On significance
of the least significant bits for differential privacy").
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cosilo.mechanisms.base import Mechanism, check_range, root_sum
from cosilo.mechanisms.draws import new_vector
from cosilo.privacy import Event, Gaussian

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.mechanisms.base import Integers

__all__ = ["GAUSSIAN"]

_SMALLEST = 1.0
_LARGEST = 2.0**49  # the sampler reaches 9.2 sd: integers up to 2^53 are exact in float64
_FINEST = 2.0**24  # rounding to the lattice changes the variance by 2^-51
_CHUNK = 1 << 15  # draws at a time: words, uniforms and quantiles stay in cache


def _sample(stream: Stream, dim: int, sigma: float) -> Integers:
    """`dim` independent N(0, sigma^2) draws by inversion, rounded to integers, shape (dim,), int64.

    One 64-bit word a draw: the lowest bit is the sign, the upper 63 a uniform k; the draw is
    sigma * Phi^-1((k + 1/2) / 2^64), always <= 0 before the sign, so both tails have the resolution of the lower
    one and reach to 9.2 sd.
    """
    check_range("Gaussian", sigma, 1, _SMALLEST, _LARGEST)
    from scipy.special import ndtri

    out = new_vector(dim)
    for start in range(0, dim, _CHUNK):
        words = stream.words(min(_CHUNK, dim - start))
        lower_half = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        sign = 1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64)
        out[start : start + words.size] = np.rint(sigma * sign * ndtri(lower_half))
    return out


def _event(*, l1: float, l2: float, sigma: float, contributors: int, dim: int) -> Event:
    del l1, dim
    return Gaussian(root_sum(sigma, contributors) / l2)


def _tail(sigma: float, draws: int, probability: float) -> float:
    """P(|N(0, v)| >= B) <= 2 exp(-B^2 / (2 v)), v = draws sigma^2; rounding adds at most 1/2 a draw."""
    return sigma * math.sqrt(2 * draws * math.log(2 / probability)) * (1 + 1e-12) + draws / 2


def _check(sigma: float, contributors: int) -> None:
    check_range("Gaussian", sigma, contributors, _SMALLEST, _LARGEST)


def _inexact(sigma: float) -> None:
    """No bound: the law of float64 quantiles is not proved close to the Gaussian's."""
    del sigma


GAUSSIAN = Mechanism(
    name="gaussian",
    sample=_sample,
    event=_event,
    total=root_sum,
    tail=_tail,
    check=_check,
    inexact=_inexact,
    largest_sigma=_LARGEST,
    finest_sigma=_FINEST,
    sum_dominating="proper",
    limits=(
        "Floating point: the proof is for real-number Gaussian noise rounded once. Draws are float64 and every silo "
        "rounds its own share to the lattice; the distance of their law from the ideal one is not part of delta."
    ),
)
