"""The ring Z_{2^bits} in which silos add: residues, their signed meaning, and the proof that a sum cannot wrap.

Addition modulo 2^bits is what masks need (a uniform mask hides a residue perfectly). It is the integers' addition
as long as the total stays in [-2^(bits-1), 2^(bits-1)); `require_fit` is called once, when a job is loaded, with a
bound on the total, so that no round can leave that range (except with the probability in which the bound on
the noise was stated).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from cosilo.errors import ConfigError

__all__ = ["Integers", "Residues", "add", "fits", "require_fit", "smallest_ring", "unwrap", "wrap"]

Integers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Residues: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint64]]

SMALLEST_BITS = 8
LARGEST_BITS = 64


def mask(bits: int) -> np.uint64:
    """2^bits - 1, after checking that `bits` is one of 8..64 (ConfigError otherwise)."""
    if not SMALLEST_BITS <= bits <= LARGEST_BITS:
        raise ConfigError(
            f"A ring has {SMALLEST_BITS} to {LARGEST_BITS} bits, got {bits}.", "Use 16, 32 or 64, or leave it to auto."
        )
    return np.uint64((1 << bits) - 1)


def wrap(integers: Integers, bits: int) -> Residues:
    """Residues modulo 2^bits of int64 integers, shape (n,) to (n,).

    int64 arithmetic that overflowed before is harmless here: it is exact modulo 2^64, which 2^bits divides.
    """
    return np.asarray(np.ascontiguousarray(integers, dtype=np.int64).view(np.uint64) & mask(bits))


def unwrap(residues: Residues, bits: int) -> Integers:
    """The integers in [-2^(bits-1), 2^(bits-1)) of these residues, shape (n,) to (n,). Inverse of `wrap` there.

    Bits above `bits` are ignored, so a sum of residues needs no reduction first.
    """
    mask(bits)
    shift = LARGEST_BITS - bits
    top = np.ascontiguousarray(residues, dtype=np.uint64) << np.uint64(shift)
    return np.asarray(top.view(np.int64) >> np.int64(shift))  # the arithmetic shift copies the sign downwards


def add(vectors: Sequence[Residues], bits: int) -> Residues:
    """Sum of residue vectors of one shape (n,) modulo 2^bits; order does not matter."""
    keep = mask(bits)
    if not vectors:
        raise ConfigError("There is no vector to add.", "Pass at least one.")
    total = np.array(vectors[0], dtype=np.uint64)
    for vector in vectors[1:]:
        if vector.shape != total.shape:
            raise ConfigError(f"Vectors of {total.shape} and {vector.shape} do not add.", "Use one dimension.")
        total += vector
    total &= keep
    return total


def _whole(total_bound: float) -> int:
    """The bound as an integer, rounded up; a Python int stays exact at any size."""
    if not 0 <= total_bound < math.inf:
        raise ConfigError(f"A bound on the total must be finite and at least 0, got {total_bound}.", "Check the noise.")
    return math.ceil(total_bound)


def fits(bits: int, total_bound: float) -> bool:
    """Whether every total with |total| <= total_bound lies in [-2^(bits-1), 2^(bits-1)), so addition cannot wrap."""
    mask(bits)
    return _whole(total_bound) < 1 << (bits - 1)


def smallest_ring(total_bound: float) -> int:
    """The fewest bits, 8 to 64, in which every total with |total| <= total_bound fits; ConfigError beyond 64 bits."""
    whole = _whole(total_bound)
    bits = max(SMALLEST_BITS, whole.bit_length() + 1)
    if bits > LARGEST_BITS:
        raise ConfigError(
            f"The sum can reach 2^{whole.bit_length() - 1} lattice units or more; 64 ring bits hold less than 2^63.",
            f"Make the granularity at least 2^{bits - LARGEST_BITS} times coarser.",
        )
    return bits


def require_fit(bits: int, total_bound: float) -> None:
    """Raise ConfigError, with the numbers and the smallest ring that works, unless `fits(bits, total_bound)`."""
    if not fits(bits, total_bound):
        raise ConfigError(
            f"The sum can reach {_whole(total_bound)} lattice units, but {bits} ring bits hold at most "
            f"{(1 << (bits - 1)) - 1}.",
            f"Write aggregation.ring_bits = {smallest_ring(total_bound)} or more, or a larger aggregation.granularity.",
        )
