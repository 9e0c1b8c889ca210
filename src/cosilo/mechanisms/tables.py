"""Exact tables for integer noise: fixed-point heights, integer alias tables, histograms of rectangles and wedges.

A `Law` is a symmetric distribution on the integers, P(x) ~ f(|x|), f(0) = 1, f not increasing; f is known in fixed
point to 2^-300. Everything below is Python integer arithmetic: no float takes part in a probability.

Alias table (reach <= 2^16 - 1). Values -reach..reach get integer masses that sum to exactly 2^160; Vose's
construction (1991) is carried out in integers, so a draw that compares all 160 bits has exactly these masses.

Histogram (wider laws). Buckets of equal width W = 2^lowbits; in each, `lower` <= f <= `upper` for the whole bucket,
both integers in units of the total. Region j is the rectangle under `lower` (a draw in it is accepted as it is),
region buckets + j the wedge between (accepted where a further uniform falls under f), the last region is refused
always: it fills the total up to 2^(compared bits + 128) per cell exactly. Rejection from any valid envelope gives f
exactly, so rounding a height costs acceptance rate and no accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

__all__ = [
    "BITS",
    "INEXACT",
    "TAIL",
    "AliasTable",
    "Histogram",
    "Law",
    "alias_table",
    "exp_minus",
    "histogram",
    "table",
    "uses_alias",
]

Ints: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint64]]
Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]

BITS = 384  # of a fixed-point height
TAIL = 2.0**-128  # mass of a law beyond its reach, at most
INEXACT = 2.0**-127  # total variation of a draw: the tail, and <= 2^-142 (`alias_table`) or <= 2^-200 (`histogram`)
_GUARD = 96
_WORD = 32  # bits of keystream an alias draw spends unless it ties
_LOW = 128  # threshold bits resolved by fresh words
_CELL_BITS = 14  # of a histogram: 8190 rectangles and as many wedges, 128 KiB of table
_MOST_CELLS = 17
_MOST_BUCKETS = 4095  # a side


def exp_minus(numerator: int, denominator: int) -> int:
    """exp(-numerator / denominator) in units of 2^-BITS, within 2 units, for a non-negative argument.

    Halve the argument below 2^-16, sum the series, square back. Working precision is 2^-96 units: at most 40
    roundings in the series, doubled by each of at most 16 + 9 squarings (beyond 2^9 the value is below 2^-700), and
    one in each of them, stay below 2^-60 units; the last shift drops less than one.
    """
    argument = (numerator << (BITS + _GUARD)) // denominator
    if argument >> (BITS + _GUARD + 9):
        return 0
    one = 1 << (BITS + _GUARD)
    halvings = max(0, argument.bit_length() - (BITS + _GUARD) + 16)
    argument >>= halvings
    total, term, n = one, one, 0
    while term:
        n += 1
        term = (term * argument >> (BITS + _GUARD)) // n
        total += -term if n % 2 else term
    for _ in range(halvings):
        total = total * total >> (BITS + _GUARD)
    return total >> _GUARD


@dataclass(frozen=True, slots=True)
class Law:
    """A symmetric law on the integers.

    Attributes:
        reach: P(|x| > reach) <= TAIL.
        heights: (step, count) -> f(0), f(step), .., each within 2^-300, in units of 2^-BITS.
        at: x -> f(x), the same.
        linear, quadratic: -ln f(x) = linear |x| + quadratic x^2, for the float64 test; unused with `floats`.
        floats: count -> (count,) float64 of f(0), f(1), .., each within 2^-50 of itself, for laws without a closed
            form; None otherwise.
    """

    reach: int
    heights: Callable[[int, int], list[int]]
    at: Callable[[int], int]
    linear: float = 0.0
    quadratic: float = 0.0
    floats: Callable[[int], Floats] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AliasTable:
    """Cells of the alias method in the layout of `kernels.alias_draws`; first, second: (2^bits,) uint64."""

    bits: int
    offset: int
    packed: np.ndarray[tuple[int], np.dtype[np.uint32]]
    first: Ints
    second: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Regions in the layout of `kernels.region_draws` and `settle_regions`.

    Attributes:
        bits: of a cell number.
        lowbits: log2 of a bucket's width.
        buckets: even; bucket buckets/2 + i covers [i W, (i + 1) W).
        packed, first, second: (2^bits,) uint64, thresholds and aliases.
        floor, top: (buckets / 2,) float64 by distance from 0: lower / upper, and f at the near end / upper.
        lower, upper: (buckets / 2,) bounds of the height in units of the total mass.
        scale: units of the total mass per unit of f.
        values: see Law.floats; empty where the closed form is used.
    """

    bits: int
    lowbits: int
    buckets: int
    packed: Ints
    first: Ints
    second: Ints
    floor: Floats
    top: Floats
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    scale: int
    values: Floats


def uses_alias(law: Law) -> bool:
    """Whether every value of the law gets a cell of its own."""
    return 2 * law.reach + 1 <= 1 << _MOST_CELLS


def _vose(masses: list[int], capacity: int) -> tuple[list[int], list[int]]:
    """Thresholds and aliases for masses that sum to len(masses) * capacity.

    Cell i keeps i with probability thresholds[i] / capacity, exactly; a cell that keeps always is its own alias with
    threshold 0.
    """
    rest, alias, threshold = list(masses), list(range(len(masses))), [0] * len(masses)
    small = [i for i, mass in enumerate(rest) if mass < capacity]
    large = [i for i, mass in enumerate(rest) if mass >= capacity]
    while small:
        cell, donor = small.pop(), large[-1]
        threshold[cell], alias[cell] = rest[cell], donor
        rest[donor] -= capacity - rest[cell]
        if rest[donor] < capacity:
            small.append(large.pop())
    return threshold, alias


def _low_words(threshold: list[int]) -> tuple[Ints, Ints]:
    mask = (1 << 64) - 1
    first = np.array([t >> 64 & mask for t in threshold], dtype=np.uint64)
    return first, np.array([t & mask for t in threshold], dtype=np.uint64)


def alias_table(law: Law) -> AliasTable:
    """The table of a law with `uses_alias(law)`.

    A draw has law Q with TV(Q, f) <= TAIL + (2 reach + 1) 2^-160 + 2^-280 <= 2^-127: conditioning on |x| <= reach
    moves exactly the tail mass; each mass is the conditioned one rounded down to a multiple of 2^-160 (at most one
    multiple each, all given to 0); heights carry 2^-300 each, at most 2^17 of them, against a sum >= 1.
    """
    heights = law.heights(1, law.reach + 1)
    total = 1 << (_WORD + _LOW)
    divisor = heights[0] + 2 * sum(heights[1:])
    half = [h * total // divisor for h in heights]
    masses = half[:0:-1] + half
    masses[law.reach] += total - sum(masses)
    bits = max(4, (len(masses) - 1).bit_length())
    masses += [0] * ((1 << bits) - len(masses))
    threshold, alias = _vose(masses, total >> bits)
    packed = np.array([(t >> _LOW) << bits | a for t, a in zip(threshold, alias, strict=True)], dtype=np.uint32)
    return AliasTable(bits, law.reach, packed, *_low_words(threshold))


def histogram(law: Law) -> Histogram:
    """The table of a law too wide for an alias table; see the module's docstring for why it is exact.

    What is left: TV <= TAIL + 2^-200, the tail beyond the buckets and decisions that 384 bits leave open
    (`draws._accepts`).
    """
    lowbits = (law.reach // _MOST_BUCKETS).bit_length()  # at most so many buckets a side, at least half of that
    step = 1 << lowbits
    half = law.reach // step + 1
    compared = 64 - _CELL_BITS - lowbits
    capacity = 1 << (compared + _LOW)
    heights = law.heights(step, half + 1)
    error = 1 << (BITS - 300)
    scale = (capacity << (_CELL_BITS + BITS)) // (2 * sum(heights[:-1]))
    scale -= scale >> 64  # room for the heights to be rounded up
    upper = [((h + error) * scale >> BITS) + 1 for h in heights[:-1]]
    lower = [max(0, (h - error) * scale >> BITS) for h in heights[1:]]
    wedges = [u - w for u, w in zip(upper, lower, strict=True)]
    masses = lower[::-1] + lower + wedges[::-1] + wedges
    masses.append((capacity << _CELL_BITS) - sum(masses))
    masses += [0] * ((1 << _CELL_BITS) - len(masses))
    threshold, alias = _vose(masses, capacity)
    packed = [(t >> _LOW) << _CELL_BITS | a for t, a in zip(threshold, alias, strict=True)]
    return Histogram(
        _CELL_BITS,
        lowbits,
        2 * half,
        np.array(packed, dtype=np.uint64),
        *_low_words(threshold),
        np.array([w / u for w, u in zip(lower, upper, strict=True)]),
        np.array([h * scale / (u << BITS) for h, u in zip(heights, upper, strict=False)]),
        tuple(lower),
        tuple(upper),
        scale,
        law.floats(half * step + 1) if law.floats else np.empty(0),
    )


def table(law: Law) -> AliasTable | Histogram:
    """The table of a law, whichever fits; a draw from it is within INEXACT of the law in total variation."""
    return alias_table(law) if uses_alias(law) else histogram(law)
