"""From a table and a stream to a vector of integer noise.

Words come in blocks that stay in a core's cache. The compiled pass decides nearly every position; what it leaves
(ties of an alias draw, wedges of a histogram) is decided here with fresh words of the same stream, so every position
is an independent draw of the law, wherever its words come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cosilo.errors import ConfigError
from cosilo.mechanisms.tables import BITS, AliasTable, Histogram, Law

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.mechanisms.base import Integers
    from cosilo.mechanisms.kernels import Cells, Decay

__all__ = ["draw", "draw_alias", "draw_histogram", "kernel_arguments", "new_vector"]

_BLOCK_WORDS = 1 << 15  # 256 KiB
_MARGIN = 2.0**-40  # of the larger side of a wedge's comparison
_LATE_WORDS = BITS // 64 - 1  # further words with which an undecided wedge is compared


def new_vector(dim: int) -> Integers:
    """An uninitialised int64 vector of shape (dim,).

    Raises:
        ConfigError: dim < 1.
    """
    if dim < 1:
        raise ConfigError(f"Noise needs dim >= 1, got {dim}.", "This is a bug in the caller: say where it came from.")
    return np.empty(dim, dtype=np.int64)


def draw(law: Law, table: AliasTable | Histogram, stream: Stream, dim: int) -> Integers:
    """`dim` independent draws of `law` from its table, shape (dim,), int64."""
    if isinstance(table, AliasTable):
        return draw_alias(table, stream, dim)
    return draw_histogram(law, table, stream, dim)


def draw_alias(table: AliasTable, stream: Stream, dim: int) -> Integers:
    """`dim` independent draws of an alias table, shape (dim,), int64: 32 bits a draw, 160 where those tie."""
    from cosilo.mechanisms import kernels

    out = new_vector(dim)
    words = np.empty(min(_BLOCK_WORDS, (dim + 1) // 2), dtype=np.uint64)
    ties = np.empty(2 * words.size, dtype=np.int64)
    for start in range(0, dim, 2 * words.size):
        block = out[start : start + 2 * words.size]
        stream.fill(words[: (block.size + 1) // 2])
        halves = words.view(np.uint32)[: block.size]
        found = kernels.alias_draws(halves, table.packed, table.bits, table.offset, block, ties)
        if found:
            _settle_ties(table, stream, halves, ties[:found], block)
    return out


def _settle_ties(
    table: AliasTable, stream: Stream, halves: np.ndarray[tuple[int], np.dtype[np.uint32]], at: Integers, out: Integers
) -> None:
    """Compare 128 fresh bits with the rest of the threshold."""
    cell = (halves[at] >> np.uint32(32 - table.bits)).astype(np.int64)
    first, second = stream.words(2 * at.size).reshape(2, at.size)
    keep = (first < table.first[cell]) | ((first == table.first[cell]) & (second < table.second[cell]))
    other = (table.packed[cell] & np.uint32((1 << table.bits) - 1)).astype(np.int64)
    out[at] = np.where(keep, cell, other) - table.offset


def draw_histogram(law: Law, table: Histogram, stream: Stream, dim: int, margin: float = _MARGIN) -> Integers:
    """`dim` independent draws of `law` by its histogram, shape (dim,), int64: 64 bits a trial.

    float64 decides a wedge outside `margin`: level and height are at most 1, their relative errors below 2^-45 (the
    exponent inside a bucket is below 1 and has three roundings; exp, divisions and the table have a few 2^-53
    each; u stands for an interval of 2^-64). Inside, integers decide (`_accepts`).
    """
    from cosilo.mechanisms import kernels

    out = new_vector(dim)
    words = np.empty(min(_BLOCK_WORDS, dim), dtype=np.uint64)
    slow = np.empty(words.size + 1, dtype=np.int64)
    for start in range(0, dim, words.size):
        block = out[start : start + words.size]
        pending = words[: block.size]
        stream.fill(pending)
        found = kernels.region_draws(pending, table.packed, table.bits, table.lowbits, table.buckets, block, slow)
        if found:
            _settle_wedges(law, table, stream, (pending, slow[:found], block), margin)
    return out


def _settle_wedges(
    law: Law, table: Histogram, stream: Stream, work: tuple[np.ndarray, Integers, Integers], margin: float
) -> None:
    from cosilo.mechanisms import kernels

    words, slow, out = work
    cells, decay = kernel_arguments(law, table, margin)
    fresh, at = stream.words(3 * slow.size + 16), 0
    while True:
        at, used, status, value, word = kernels.settle_regions(words, slow, at, fresh, cells, decay, out)
        if status == kernels.ACCEPTED:
            return
        fresh = np.concatenate([fresh[used:], stream.words(2 * (slow.size - at) + 16)])
        if status == kernels.HARD:
            if _accepts(law, table, int(value), int(word), stream):
                out[slow[at]] = value
                at += 1
            else:
                words[slow[at]], fresh = fresh[0], fresh[1:]


def kernel_arguments(law: Law, table: Histogram, margin: float) -> tuple[Cells, Decay]:
    """What `kernels.settle_regions` wants to know of a law."""
    cells = (table.packed, table.bits, table.lowbits, table.buckets, table.first, table.second, table.floor, table.top)
    return cells, (law.linear, law.quadratic, table.values, margin)


def _accepts(law: Law, table: Histogram, value: int, word: int, stream: Stream) -> bool:
    """Whether lower + U (upper - lower) < f(value), U of BITS bits that begin with `word`.

    f is known within 2^-300 and U within 2^-384, so the answer differs from the exact one on a set of U of relative
    size <= 2^-299 scale / (upper - lower); weighted with the wedges' masses and summed over at most 2^13 of them,
    that is below 2^-280 a draw.
    """
    uniform = word
    for late in stream.words(_LATE_WORDS).tolist():
        uniform = uniform << 64 | late
    bucket = (value if value >= 0 else -1 - value) >> table.lowbits
    lower, upper = table.lower[bucket], table.upper[bucket]
    level = (lower << BITS) + uniform * (upper - lower)
    return level < law.at(abs(value)) * table.scale
