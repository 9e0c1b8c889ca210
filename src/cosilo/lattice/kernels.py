"""Compiled loops of this package: rounding, packing, Hadamard butterflies. Imported by the first call that needs one.

No fast-math: every error bound of codec.py counts one IEEE rounding per operation written here. The loops
release the GIL and check no bounds: the callers in this package own every array and its size.
"""

from __future__ import annotations

import numpy as np

from cosilo.compiled import compiled
from cosilo.lattice.ring import Integers, Residues

__all__ = ["butterflies", "pack_words", "round_dithered", "unpack_words"]

Reals = np.ndarray[tuple[int], np.dtype[np.float64]]

_TWO_64 = 2.0**64


@compiled
def round_dithered(values: Reals, granularity: float, clamp: float, words: Residues, out: Integers) -> bool:
    """Write floor(clamped values / granularity + r), r = 1 - (word + 1)/2^64; False if a value was not finite.

    With y the float64 quotient, t its integer part towards zero and f = y - t (exact), s = floor(f 2^64) is exact
    too: scaling by 2^64 is, and floor of a float64 is. y + r >= t + 1 exactly when word < s (f >= 0), and
    y + r >= t exactly when word < 2^64 + s (f < 0; tiny negative y: s = -1, rounded up to 0 unless word = 2^64 - 1).
    """
    finite = True
    for i in range(values.size):
        value = values[i]
        finite &= abs(value) < np.inf
        y = min(max(value, -clamp), clamp) / granularity
        whole = np.trunc(y)
        scaled = np.floor((y - whole) * _TWO_64)
        magnitude = np.uint64(abs(scaled))
        negative = scaled < 0
        threshold = np.uint64(0) - magnitude if negative else magnitude
        out[i] = np.int64(whole) - np.int64(negative) + np.int64(words[i] < threshold)
    return finite


@compiled
def pack_words(residues: Residues, bits: int, out: Residues) -> bool:
    """Write residues as a little-endian bit stream into the words `out`; False if one has a bit above `bits`.

    `out` has ceil(n bits / 64) words. A residue that crosses a word's end leaves its upper part for the next word.
    """
    word = np.uint64(0)
    filled = 0
    position = 0
    above = np.uint64(0)
    for i in range(residues.size):
        value = residues[i]
        above |= (value >> np.uint64(bits - 1)) >> np.uint64(1)  # two shifts: a shift by 64 is undefined
        word |= value << np.uint64(filled)
        filled += bits
        if filled >= 64:  # noqa: PLR2004
            out[position] = word
            position += 1
            filled -= 64
            word = (value >> np.uint64(bits - filled - 1)) >> np.uint64(1)
    if filled:
        out[position] = word
    return bool(above == np.uint64(0))


@compiled
def unpack_words(words: Residues, bits: int, out: Residues) -> None:
    """Inverse of `pack_words`; `words` has one word more than the stream, so that reading ahead stays inside."""
    keep = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - bits)
    for i in range(out.size):
        start = i * bits
        position = start >> 6
        offset = np.uint64(start & 63)
        low = words[position] >> offset
        high = (words[position + 1] << np.uint64(1)) << (np.uint64(63) - offset)  # nothing when offset is 0
        out[i] = (low | high) & keep


@compiled
def butterflies(values: Reals) -> None:
    """In place, the unnormalised Walsh-Hadamard transform of a power-of-two length: log2(n) stages of a+b, a-b."""
    half = 1
    while half < values.size:
        for start in range(0, values.size, 2 * half):
            for i in range(start, start + half):
                one, other = values[i], values[i + half]
                values[i] = one + other
                values[i + half] = one - other
        half *= 2
