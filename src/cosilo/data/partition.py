"""Who holds a row, and whether it is held out: functions of that row alone (design 10, section 11).

A shuffled split of n rows moves every row when one is added, which voids any per-row guarantee. Here a row's
membership is a keyed hash of its own content, so equal rows of a silo share it: no test row has a twin among
the training rows of its silo.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cosilo.data.tables import column_text, empty_cells
from cosilo.data.wording import closest, listing, toml_key
from cosilo.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from cosilo.data.rows import Rows

__all__ = ["check_names", "held_out_mask", "split_by_column"]

_CONTEXT = b"cosilo/held-out/v1"  # domain separation: no other hash of a row equals this one
_DRAW_BYTES = 8  # a 64-bit draw: fractions are met to 2^-64


def held_out_mask(rows: Rows, *, silo: str, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are held out, bool (n,): a row is when its keyed hash, as a number in [0, 1), is below `fraction`.

    The key is the job's seed; the hashed content is the silo's name, the label (int64) and the features
    (float32), little-endian.
    """
    if fraction == 0:
        return np.zeros(len(rows), dtype=np.bool_)
    # One state per class; a row's draw continues a copy of it with the row's features.
    states = {int(label): _state(silo, int(label), seed) for label in np.unique(rows.y)}
    features = np.ascontiguousarray(rows.x, dtype="<f4").reshape(-1).view(np.uint8).data
    width = features.nbytes // max(len(rows), 1)
    draws = bytearray()
    for i, label in enumerate(rows.y.tolist()):
        state = states[label].copy()
        state.update(features[i * width : (i + 1) * width])
        draws += state.digest()
    return np.asarray(np.frombuffer(draws, dtype="<u8") < fraction * 2.0**64)


def _state(silo: str, label: int, seed: int) -> hashlib.blake2b:
    key = hashlib.blake2b(_CONTEXT + str(seed).encode(), digest_size=32).digest()
    prefix = hashlib.blake2b(silo.encode(), digest_size=32).digest()  # fixed length: no name runs into the content
    return hashlib.blake2b(prefix + label.to_bytes(8, "little"), key=key, digest_size=_DRAW_BYTES)


def split_by_column(table: pa.Table, column: str) -> dict[str, pa.Table]:
    """One table per value of `column`, sorted by value, rows in file order.

    Raises:
        DataError: there is no row, or one that does not say which silo it belongs to.
    """
    if table.num_rows == 0:
        raise DataError("The table has a header and no rows.", "Give a table with at least one row per silo.")
    text = column_text(table, column)
    if empty_cells(text).any():
        raise DataError(
            f"Some rows have an empty cell in the silo column {column!r}, so nobody holds them.",
            "Fill those cells or remove those rows.",
        )
    codes = text.combine_chunks().dictionary_encode()
    names = codes.dictionary.to_pylist()
    index = codes.indices.to_numpy()
    order = np.argsort(index, kind="stable")
    ends = np.searchsorted(index[order], np.arange(len(names)), side="right")
    parts = dict(zip(names, np.split(order, ends[:-1]), strict=True))
    return {name: table.take(pa.array(parts[name])) for name in sorted(parts)}


def check_names(found: Iterable[str], listed: Iterable[str], *, column: str | None = None) -> None:
    """The silos found, in the silo column or else among silos=, are exactly those the job lists, when it lists any.

    Silos' names are public, so they are told.

    Raises:
        DataError: a silo is not listed, or a listed one has no rows.
    """
    found, listed = set(found), set(listed)
    if not listed:
        return
    unlisted = found - listed
    for name in sorted(listed - found):
        absent = "is not among silos=" if column is None else f"has no rows in column {column!r}"
        raise DataError(f"Silo {name!r}, which the job lists, {absent}.", _instead(name, unlisted))
    if unlisted:
        where = "silos=" if column is None else f"column {column!r}"
        raise DataError(
            f"{len(unlisted)} of the {len(found)} silos in {where} have no [silos.NAME] table in the job: "
            f"{listing(unlisted)}.",
            "Add a table for each of them, remove their rows, or remove all [silos] tables to take every silo.",
        )


def _instead(name: str, unlisted: set[str]) -> str:
    """What to do about a listed silo without rows, when these others have some."""
    meant, key = closest(name, unlisted), toml_key(name)
    if meant is not None:
        return f"Did you mean [silos.{toml_key(meant)}]?"
    if unlisted:
        return f"Rename [silos.{key}] to one of those not listed ({listing(unlisted)}), or remove it."
    return f"Bring its rows, or remove [silos.{key}]."
