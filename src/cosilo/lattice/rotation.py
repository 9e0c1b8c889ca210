"""Randomised Hadamard rotation: public signs, then an orthonormal Walsh-Hadamard transform.

It spreads a vector's energy over all coordinates, so that a small ring's clamp rarely binds. The signs come from a
public seed (per round) and are known to everyone: the rotation protects nothing and costs no privacy, being
orthogonal (l2 sensitivity is unchanged up to the float error that `codec.integer_sensitivity` adds).
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from cosilo.entropy import Stream
from cosilo.errors import ConfigError

__all__ = ["rotate", "rotate_back", "signs"]

Reals = np.ndarray[tuple[int], np.dtype[np.float64]]


def signs(seed: bytes, count: int) -> Reals:
    """`count` public signs +-1.0, shape (count,): bits of AES-256-CTR under SHA-256 of the seed.

    Assumption: a sender cannot choose its vector after learning the seed to defeat the spreading; where it can,
    only its own clamp binds more often.
    """
    if not seed:
        raise ConfigError("A rotation needs the round's public seed.", "Pass the seed.")
    words = Stream(hashlib.sha256(b"cosilo/1/rotation" + seed).digest()).words((count + 63) // 64)
    bits = np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), count=count, bitorder="little")
    return np.asarray(1.0 - 2.0 * bits)


def rotate(vector: Reals, coordinates: int, seed: bytes) -> Reals:
    """H D x padded with zeros, shape (dim,) to (coordinates,), coordinates a power of two >= dim; float64.

    Error: each of the L = log2(coordinates) stages writes a+b or a-b with one rounding, relative 2^-53, and is
    orthogonal up to scale; the final scaling adds one more a coordinate, and an error of the factor itself, which is
    the same in every coordinate of both neighbours and at most 2^-52. So the result is within
    ((1 + 2^-53)^(L+2) - 1) ||x||_2 <= 1.1 (L+2) 2^-53 ||x||_2 of the exact rotation in l2.
    """
    from cosilo.lattice.kernels import butterflies

    padded = np.zeros(coordinates)
    padded[: vector.size] = vector * signs(seed, vector.size)
    butterflies(padded)
    padded *= 1.0 / math.sqrt(coordinates)
    return padded


def rotate_back(rotated: Reals, dim: int, seed: bytes) -> Reals:
    """D H z cut to dim, shape (coordinates,) to (dim,): the inverse of `rotate`, up to the same error."""
    from cosilo.lattice.kernels import butterflies

    values = np.array(rotated, dtype=np.float64)
    butterflies(values)
    values *= 1.0 / math.sqrt(values.size)
    return np.asarray(values[:dim] * signs(seed, dim))
