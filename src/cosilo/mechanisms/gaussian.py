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
_EXACT = 2.0**52  # integers up to here add exactly in float64, twice
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


def _add_share(vector: Vector, l2: float, share_multiplier: float, stream: Stream) -> Vector:
    """Round vector and noise to a grid of 2^-24 sd and add them exactly.

    Rounding to the nearest multiple of g moves a coordinate by at most g/2, so the rounded vector has sensitivity at
    most l2 + g sqrt(dim); the noise is sized for that. On the grid, round(vector) + round(noise) is
    round(round(vector) + noise): post-processing of the Gaussian mechanism. The message is a multiple of g, whatever
    the input was.
    """
    grid = 2.0 ** (math.floor(math.log2(share_multiplier * l2)) - _GRID_BITS)
    on_grid = np.rint(vector / grid)
    noise = _sample(stream, vector.size, share_multiplier * (l2 + grid * math.sqrt(vector.size)))
    if not np.abs(on_grid).max() < _EXACT:
        raise ConfigError(
            "A sum is too large to carry its noise in float64.", "Lower the capacity or raise the noise multiplier."
        )
    return np.asarray((on_grid + np.rint(noise / grid)) * grid)


def _total(share_multiplier: float, contributors: int) -> float:
    if contributors < 1:
        raise ConfigError(f"A sum needs at least one honest contributor, got {contributors}.", "Raise the cohort.")
    return share_multiplier * math.sqrt(contributors)


GAUSSIAN = Mechanism(
    name="gaussian",
    sample=_sample,
    add_share=_add_share,
    total=_total,
    event=Gaussian,
    limits=(
        "Floating point: the proof is for real-number Gaussian noise. Draws are float64 and leave a silo rounded to a "
        "grid of 2^-24 of their sd; the distance of their law from the ideal one is not part of delta."
    ),
)
