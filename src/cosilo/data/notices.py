"""What a silo is told when its table and the public schema hardly fit: a mistake that stops no run, but its learning.

The line goes to the silo's own log and names columns only; how many cells and rows it was is in silos.json, which
stays at the silo as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cosilo.data.rows import Counts

__all__ = ["tell_silos"]

_LOG = logging.getLogger("cosilo.silo")


def tell_silos(counts: Mapping[str, Counts]) -> None:
    """One warning per silo with a complaint, or one for all when all have the same."""
    complaints = {name: text for name, text in ((name, _complaint(counts[name])) for name in counts) if text}
    if len(complaints) == len(counts) > 1 and len(set(complaints.values())) == 1:
        complaints = {"every silo": next(iter(complaints.values()))}
    else:
        complaints = {f"silo {name!r}": text for name, text in complaints.items()}
    for who, complaint in complaints.items():
        _LOG.warning("In %s %s: compare [data.schema] with the table.", who, complaint)


def _complaint(counts: Counts) -> str:
    """What is wrong with at least half of a silo's cells or rows; "" when nothing is."""
    parts = []
    if counts.doubtful:
        columns = ", ".join(map(repr, counts.doubtful))
        s = "s" if len(counts.doubtful) > 1 else ""
        parts.append(f"at least half of the cells of column{s} {columns} lie outside the levels or the range")
    if counts.dropped and 2 * counts.dropped >= counts.rows + counts.held_out + counts.dropped:
        parts.append("at least half of the rows were left out")
    return " and ".join(parts)
