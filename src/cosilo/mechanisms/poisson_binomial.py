"""The Poisson-binomial mechanism (Chen, Ozgur, Kairouz 2022): unbiased, bounded, no additive noise. A library.

Every contributor turns a coordinate x in [-bound, bound] into a count of `trials` coins of probability
p = 1/2 + theta x / bound; the sum of the counts is released. What it costs depends on what the others sent, so the
number of contributors is fixed and absent ones are replaced by the counts of a zero vector (`padding`), and the
accountant takes the worst of the others' values.

Statement: see `privacy.PoissonBinomial`; it needs only that every p lies in [1/2 - theta, 1/2 + theta], which the
clamp in `encode` ensures after rounding too.
Assumption: the stream's words are uniform. Coins are exact for the float64 p: p >= 1/4 is a multiple of 2^-54, so
p 2^64 is an integer, and a 64-bit word is below it with probability p. Nothing is approximated: total variation 0.
Not sum-dominating in the sense of the additive families ("no"): the others' counts are not independent of their data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cosilo.errors import ConfigError
from cosilo.mechanisms.draws import new_vector
from cosilo.privacy import PoissonBinomial

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.mechanisms.base import Integers

__all__ = ["LIMITS", "SUM_DOMINATING", "check", "decode", "encode", "event", "padding", "sample"]

LIMITS = (
    "The number of contributors is fixed before the round: absent ones must be replaced by counts of zeros, or the "
    "promise does not hold."
)
SUM_DOMINATING = "no"

_LARGEST_THETA = 0.25  # the paper's range; p stays a multiple of 2^-54
_MOST_TRIALS = 1 << 16
_BLOCK_WORDS = 1 << 18

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def check(trials: int, theta: float, contributors: int) -> None:
    """Raise ConfigError unless 1 <= trials <= 65536, 0 < theta <= 1/4 and contributors >= 1."""
    if not 1 <= trials <= _MOST_TRIALS:
        raise ConfigError(f"trials must lie in [1, {_MOST_TRIALS}], got {trials}.", "More coins cost privacy and time.")
    if not 0 < theta <= _LARGEST_THETA:
        raise ConfigError(f"theta must lie in (0, {_LARGEST_THETA}], got {theta}.", "Smaller theta, more privacy.")
    if contributors < 1:
        raise ConfigError(f"A sum needs at least one contributor, got {contributors}.", "Raise the cohort.")


def encode(vector: Floats, bound: float, theta: float) -> Floats:
    """Probabilities 1/2 + theta x / bound, clamped to [1/2 - theta, 1/2 + theta]; shape of `vector`, (dim,).

    Raises:
        ConfigError: theta out of range, bound not finite and > 0, or a coordinate that is not a number.
    """
    check(1, theta, 1)
    if not (math.isfinite(bound) and bound > 0):
        raise ConfigError(f"bound must be finite and > 0, got {bound}.", "Give the largest coordinate.")
    if np.isnan(vector).any():
        raise ConfigError("A vector holds a coordinate that is not a number.", "Clip before encoding.")
    return np.asarray(np.clip(0.5 + theta * np.clip(vector / bound, -1, 1), 0.5 - theta, 0.5 + theta))


def sample(stream: Stream, probabilities: Floats, trials: int) -> Integers:
    """Binomial(trials, p) for every p of `probabilities` in [1/4, 3/4], shape (dim,), int64; one word a coin.

    Raises:
        ConfigError: trials or a probability out of range.
    """
    check(trials, _LARGEST_THETA, 1)
    if not bool(np.all(np.abs(probabilities - 0.5) <= _LARGEST_THETA)):
        raise ConfigError("A probability lies outside [1/4, 3/4].", "Use encode.")
    threshold = np.ldexp(probabilities, 64).astype(np.uint64)
    out = new_vector(threshold.size)
    rows = max(1, _BLOCK_WORDS // trials)
    for start in range(0, threshold.size, rows):
        block = threshold[start : start + rows]
        words = stream.words(block.size * trials).reshape(block.size, trials)
        out[start : start + rows] = (words < block[:, None]).sum(axis=1)
    return out


def padding(stream: Stream, dim: int, trials: int) -> Integers:
    """The counts of an absent contributor: those of a zero vector, shape (dim,), int64."""
    return sample(stream, np.full(dim, 0.5), trials)


def decode(total: Integers, bound: float, trials: int, theta: float, contributors: int) -> Floats:
    """Unbiased estimate of the sum of the contributors' clamped vectors, shape (dim,), float64."""
    check(trials, theta, contributors)
    return np.asarray((total - trials * contributors / 2) * (bound / (theta * trials)))


def event(*, trials: int, theta: float, contributors: int, dim: int) -> PoissonBinomial:
    """What releasing the sum costs; float64 rounding of 1/2 +- theta is inside the clamp's own end points.

    The end points that `encode` can reach are the float64 numbers 1/2 - theta and 1/2 + theta, at most 2^-54 from
    the real ones; theta is enlarged by that.
    """
    check(trials, theta, contributors)
    return PoissonBinomial(trials=trials, theta=theta + 2.0**-53, contributors=contributors, dim=dim)
