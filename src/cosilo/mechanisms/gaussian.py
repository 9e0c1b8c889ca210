"""Continuous Gaussian noise in float64, for the plain protocol and for research.

Statement: adding N(0, sd^2) to every coordinate of a vector with l2 sensitivity D2 is the Gaussian mechanism
with noise_multiplier sd / D2; independent shares of N contributors add in variance. What leaves a silo is that sum
rounded to a public grid (`_add_share`), which is post-processing.
Assumption: real-number Gaussians. The draws are float64 approximations; the grid takes away the low-order bits by
which such noise gives its input away (Mironov 2012, "On significance of the least significant bits for differential
privacy"), but how far the law of the rounded draws lies from the ideal one is not bounded in delta. The statement of
a run says so; discrete noise has no such gap.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cosilo.errors import ConfigError
from cosilo.mechanisms.base import Mechanism
from cosilo.privacy import Gaussian

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.mechanisms.base import Vector

__all__ = ["GAUSSIAN"]

_GRID_BITS = 24  # of noise sd: fine enough to cost no accuracy, far coarser than the sampler's 2^-53
_EXACT = 2.0**53  # integers up to here add exactly in float64
_FAR = 16.0  # sd: beyond the sampler's 9.2, also with noise sized for a grid and many dimensions
_SMALLEST_SD = 1e-100  # squares stay in float64
_CHUNK = 1 << 16  # draws at a time: words, uniforms and quantiles stay in cache


def _sample(stream: Stream, dim: int, sd: float) -> Vector:
    """`dim` independent N(0, sd^2) draws by inversion.

    One 64-bit word a draw: the lowest bit is the sign, the upper 63 a uniform k; the draw is
    sd * Phi^-1((k + 1/2) / 2^64), always <= 0 before the sign, so both tails have the resolution of the lower
    one and reach to 9.2 sd.
    """
    if dim < 1 or not (math.isfinite(sd) and sd > 0):
        raise ConfigError(f"Gaussian noise needs dim >= 1 and sd > 0, got dim {dim}, sd {sd}.", "Check the plan.")
    from scipy.special import ndtri

    out = np.empty(dim)
    for start in range(0, dim, _CHUNK):
        words = stream.words(min(_CHUNK, dim - start))
        lower_half = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        sign = 1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64)
        out[start : start + words.size] = sign * ndtri(lower_half)
    out *= sd
    return out


def _grid(l2: float, share_multiplier: float) -> float:
    return 2.0 ** (math.floor(math.log2(share_multiplier * l2)) - _GRID_BITS)


def _check(clipping_norm: float, share_multiplier: float, rows: int, silos: int) -> None:
    """The sum of all silos' messages is a float64 integer multiple of the grid, below 2^53 of it."""
    sd = clipping_norm * share_multiplier
    if not _SMALLEST_SD < sd < 1 / _SMALLEST_SD:
        raise ConfigError(
            f"A noise sd of {sd:g} (share multiplier {share_multiplier:g} times clipping norm {clipping_norm:g}) is "
            "out of the range of floating point.",
            "Change local.clipping_norm or the noise multiplier.",
        )
    if silos * (rows * clipping_norm + _FAR * sd) >= _EXACT * _grid(clipping_norm, share_multiplier):
        raise ConfigError(
            f"A share multiplier of {share_multiplier:g} is too small beside sums of {rows} rows in {silos} silos.",
            "Use more noise: so little protects nobody.",
        )


def _add_share(vector: Vector, l2: float, share_multiplier: float, stream: Stream) -> Vector:
    """Round vector and noise to a grid of 2^-24 sd and add them exactly (`_check` has seen to that).

    Rounding to the nearest multiple of g moves a coordinate by at most g/2, so the rounded vector has sensitivity at
    most l2 + g sqrt(dim); the noise is sized for that. On the grid, round(vector) + round(noise) is
    round(round(vector) + noise): post-processing of the Gaussian mechanism. The message is a multiple of g, whatever
    the input was.
    """
    grid = _grid(l2, share_multiplier)
    noise = _sample(stream, vector.size, share_multiplier * (l2 + grid * math.sqrt(vector.size)))
    return np.asarray((np.rint(vector / grid) + np.rint(noise / grid)) * grid)


def _total(share_multiplier: float, contributors: int) -> float:
    if contributors < 1:
        raise ConfigError(f"A sum needs at least one honest contributor, got {contributors}.", "Raise the cohort.")
    return share_multiplier * math.sqrt(contributors)


GAUSSIAN = Mechanism(
    name="gaussian",
    sample=_sample,
    add_share=_add_share,
    check=_check,
    total=_total,
    event=Gaussian,
    limits=(
        "Floating point: the proof is for real-number Gaussian noise. Draws are float64 and leave a silo rounded to a "
        "grid of 2^-24 of their sd; the distance of their law from the ideal one is not part of delta."
    ),
)
