"""Continuous Gaussian noise in float64, for the plain protocol and for research.

Statement: adding N(0, sd^2) to every coordinate of a vector with l2 sensitivity D2 is the Gaussian mechanism
with noise_multiplier sd / D2; independent shares of N contributors add in variance.
Assumption: real-number Gaussians. Floating-point noise is not that: its low-order bits can depend on the value it
was added to (Mironov 2012, "On significance of the least significant bits for differential privacy"). The
statement of a run says so.
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

__all__ = ["GAUSSIAN"]

_CHUNK = 1 << 16  # draws at a time: words, uniforms and quantiles stay in cache


def _sample(stream: Stream, dim: int, sd: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
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


def _total(share_multiplier: float, contributors: int) -> float:
    if contributors < 1:
        raise ConfigError(f"A sum needs at least one honest contributor, got {contributors}.", "Raise the cohort.")
    return share_multiplier * math.sqrt(contributors)


GAUSSIAN = Mechanism(
    name="gaussian",
    sample=_sample,
    total=_total,
    event=Gaussian,
    limits="The noise is continuous and added in floating point; its low-order bits are not covered by the proof.",
)
