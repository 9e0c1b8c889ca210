"""Compiled inner loops of the samplers: one table look-up a draw, doubtful positions listed for a second pass.

Compiled at first use and cached on disk, so only the first process on a machine pays (import this module lazily).
Nothing here decides a doubtful case: a tie with a threshold and everything outside the certain part of a histogram
bucket goes to the list, or back to the caller.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from cosilo.compiled import compiled

__all__ = ["ACCEPTED", "HARD", "REFILL", "alias_draws", "region_draws", "settle_regions"]

Ints: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Words: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint64]]
Halves: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint32]]
Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Cells: TypeAlias = tuple[Words, int, int, int, Words, Words, Floats, Floats]
Decay: TypeAlias = tuple[float, float, Floats, float]

_RESCAN = 512  # draws between two looks at the tie counter: the first pass stays free of branches
_MOST_FRESH = 4  # words that one trial and its successor can take
ACCEPTED, REFILL, HARD = 0, 1, 2


@compiled
def alias_draws(words: Halves, packed: Halves, bits: int, offset: int, out: Ints, ties: Ints) -> int:
    """One draw a 32-bit word: out[i] = cell or alias, minus offset; positions of undecided words into `ties`.

    Args:
        words: (n,) uint32; top `bits` the cell, the rest compared with the top of the cell's threshold.
        packed: (2^bits,) uint32, threshold << bits | alias.
        bits: bits of a cell number.
        offset: value of cell 0 is -offset.
        out: (n,) int64, written.
        ties: (n,) int64, written from the front.

    Returns:
        Number of ties.
    """
    shift = np.uint32(32 - bits)
    width = np.uint32(bits)
    low = np.uint32((1 << (32 - bits)) - 1)
    other = np.uint32((1 << bits) - 1)
    found = 0
    for begin in range(0, words.size, _RESCAN):
        end = min(begin + _RESCAN, words.size)
        hits = 0
        for i in range(begin, end):
            cell = words[i] >> shift
            entry = packed[cell]
            rest = words[i] & low
            threshold = entry >> width
            pick = cell if rest < threshold else entry & other
            out[i] = np.int64(pick) - offset
            hits += int(rest == threshold)
        if hits:
            for i in range(begin, end):
                if (words[i] & low) == packed[words[i] >> shift] >> width:
                    ties[found] = i
                    found += 1
    return found


@compiled
def region_draws(  # noqa: PLR0913, PLR0917
    words: Words, packed: Words, bits: int, lowbits: int, buckets: int, out: Ints, slow: Ints
) -> int:
    """One trial a 64-bit word; certain ones are written, the others' positions go into `slow`.

    Args:
        words: (n,) uint64: cell | compared bits | position in the bucket, from the top.
        packed: (2^bits,) uint64, threshold << bits | alias.
        bits: bits of a cell number.
        lowbits: log2 of the bucket's width.
        buckets: regions below this number are certain.
        out: (n,) int64, written.
        slow: (n + 1,) int64, written from the front.

    Returns:
        Number of positions in `slow`.
    """
    width = np.uint64(bits)
    low = np.uint64(lowbits)
    shift = np.uint64(64 - bits)
    skip = np.uint64(bits + lowbits)
    other = np.uint64((1 << bits) - 1)
    inside = np.uint64((1 << lowbits) - 1)
    certain = np.uint64(buckets)
    reach = np.int64(buckets // 2) << np.int64(lowbits)
    found = 0
    for i in range(words.size):
        x = words[i]
        cell = x >> shift
        entry = packed[cell]
        rest = (x << width) >> skip
        threshold = entry >> width
        pick = cell if rest < threshold else entry & other
        out[i] = np.int64((pick << low) | (x & inside)) - reach
        slow[found] = i
        found += int((rest == threshold) | (pick >= certain))
    return found


@compiled
def _region(x: np.uint64, fresh: Words, used: int, cells: Cells) -> tuple[np.int64, int]:
    """The region of a trial's word, a tie decided by two fresh words; and the words used since."""
    packed, bits, lowbits, _, first, second, _, _ = cells
    cell = x >> np.uint64(64 - bits)
    entry = packed[cell]
    rest, threshold = (x << np.uint64(bits)) >> np.uint64(bits + lowbits), entry >> np.uint64(bits)
    keep = rest < threshold
    if rest == threshold:
        high, low = fresh[used], fresh[used + 1]
        used += 2
        keep = high < first[cell] or (high == first[cell] and low < second[cell])
    return np.int64(cell if keep else entry & np.uint64((1 << bits) - 1)), used


@compiled
def _gap(value: np.int64, word: np.uint64, cells: Cells, decay: Decay) -> float:
    """Height of the law minus the level of a wedge's trial, in units of its bucket's upper bound."""
    linear, quadratic, values, _ = decay
    lowbits, floor, top = cells[2], cells[6], cells[7]
    j = (value if value >= 0 else -1 - value) >> lowbits
    far, near = abs(value), j << lowbits
    if values.size:
        height = values[far] / values[near]
    else:
        height = math.exp(-float(far - near) * (linear + quadratic * float(far + near)))
    return float(height * top[j] - (floor[j] + (1.0 - floor[j]) * (float(word) * 2.0**-64)))


@compiled
def settle_regions(  # noqa: PLR0913, PLR0917
    words: Words, slow: Ints, at: int, fresh: Words, cells: Cells, decay: Decay, out: Ints
) -> tuple[int, int, int, np.int64, np.uint64]:
    """Decide the positions slow[at:], drawing rejected ones again from `fresh`.

    Args:
        words: (n,) uint64; a position's pending word is put back before a return that asks for help.
        slow: positions in doubt.
        at: first one to decide.
        fresh: (m,) uint64 unused words.
        cells: (packed, bits, lowbits, buckets, first, second, floor, top): first and second are the threshold bits
            after the compared ones; floor[j] = lower / upper height of a bucket, top[j] = height at its near end over
            its upper height.
        decay: (linear, quadratic, values, margin): -ln f(x) = linear |x| + quadratic x^2, or f itself for every |x|
            where `values` is not empty, and the margin within which float64 may not decide.
        out: (n,) int64, written.

    Returns:
        (next position in slow, words used of fresh, ACCEPTED / REFILL / HARD, value, its uniform word).
    """
    lowbits, buckets = cells[2], cells[3]
    inside = np.uint64((1 << lowbits) - 1)
    reach = (buckets // 2) << lowbits
    used = 0
    for i in range(at, slow.size):
        x = words[slow[i]]
        while True:
            if used + _MOST_FRESH > fresh.size:
                words[slow[i]] = x
                return i, used, REFILL, np.int64(0), np.uint64(0)
            region, used = _region(x, fresh, used, cells)
            value = ((region % buckets) << lowbits) + np.int64(x & inside) - reach
            if region < buckets:
                out[slow[i]] = value
                break
            if region < 2 * buckets:
                word = fresh[used]
                used += 1
                gap = _gap(value, word, cells, decay)
                if abs(gap) <= decay[3]:
                    return i, used, HARD, value, word
                if gap > 0:
                    out[slow[i]] = value
                    break
            x = fresh[used]
            used += 1
    return slow.size, used, ACCEPTED, np.int64(0), np.uint64(0)
