"""Columns become features by public constants only: nothing is estimated from rows, and no row changes another's.

| column | features | cell outside | empty cell |
|---|---|---|---|
| low, high | 2 (v - low) / (high - low) - 1 | clamped to [-1, 1], counted | `missing`: a number, "drop", or an error |
| bins | beside it, one of len(bins) + 1 is 1; v on an edge belongs to the upper bin | outermost bin | as above |
| levels | one of len(levels) + 1 is 1, the last being "other" | "other", counted | "other", or "drop" |
| target | class index = position in levels | row left out, counted | row left out, counted |

A cell is a level when it reads the same, or else when it is the same number: "1.0", "01" and "1e0" are the level "1".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cosilo.data.rows import Counts, Rows
from cosilo.data.tables import cells_as_numbers, column_numbers, column_text, empty_cells
from cosilo.data.wording import toml_key
from cosilo.errors import DataError
from cosilo.job import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["OTHER", "Encoded", "Encoding"]

OTHER = "other"
_EXACT = 2.0**53  # from here on different whole numbers share a float64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoded:
    """Features `x`, float32 (k, width), of the k rows where `kept`, bool (n,), is true.

    `clamped` and `unknown` count those rows' cells per column; of `doubtful` columns they are at least half of the
    non-empty ones.
    """

    x: NDArray[np.float32]
    kept: NDArray[np.bool_]
    clamped: dict[str, int]
    unknown: dict[str, int]
    doubtful: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a table's columns become features, in the order of `columns`, and the target's cells class indices."""

    columns: dict[str, Column]
    target: str
    levels: tuple[str, ...]

    @classmethod
    def from_schema(cls, schema: Mapping[str, Column], target: str) -> Self:
        """All columns of `schema` but the target are features.

        Raises:
            DataError: the target has no levels in the schema, or nothing else is there.
        """
        column = schema.get(target)
        if column is None or len(column.levels) < 2:  # noqa: PLR2004 - a class and another
            state = "is not in the schema" if column is None else "has not at least two levels in the schema"
            raise DataError(
                f"The target column {target!r} {state}, so its classes are not known.",
                f'Write [data.schema.{toml_key(target)}] levels = ["0", "1"], '
                "or whatever its cells say, negative class first.",
            )
        features = {name: column for name, column in schema.items() if name != target}
        if not features:
            raise DataError("The schema has no feature column.", "Add a [data.schema.NAME] table for each feature.")
        return cls(columns=features, target=target, levels=column.levels)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature: "age", "age in [30, 40)", "sex = f", "sex = other"."""
        return tuple(name for column, facts in self.columns.items() for name in _names(column, facts))

    def encode(self, table: pa.Table) -> Encoded:
        """Features of the rows of `table`; the target column is not needed. Other columns are ignored.

        Raises:
            DataError: a column is absent, a numeric cell does not parse, or is empty without a rule for it.
        """
        return self._encode(table, training=False)

    def _encode(self, table: pa.Table, *, training: bool) -> Encoded:
        """`training`: whoever reads the errors can still change the schema."""
        numbers = {name: _numbers(table, name, c, training=training) for name, c in self.columns.items() if c.numeric}
        levels = {name: _levels(table, name, c) for name, c in self.columns.items() if not c.numeric}
        kept = np.ones(table.num_rows, dtype=np.bool_)
        for name, column in self.columns.items():
            if column.missing == "drop":
                kept &= ~(numbers[name][1] if column.numeric else levels[name][1])
        x = np.zeros((int(kept.sum()), len(self.feature_names)), dtype=np.float32)
        clamped, unknown, doubtful, start = {}, {}, [], 0
        for name, column in self.columns.items():
            stop = start + len(_names(name, column))
            if column.numeric:
                values, empty = numbers[name]
                outside = clamped[name] = _write_numbers(x[:, start:stop], values[kept], column)
            else:
                index, empty = levels[name]
                outside = unknown[name] = _write_levels(x[:, start:stop], index[kept], empty[kept], column)
            if _doubtful(outside, empty[kept]):
                doubtful.append(name)
            start = stop
        return Encoded(x=x, kept=kept, clamped=_nonzero(clamped), unknown=_nonzero(unknown), doubtful=tuple(doubtful))

    def encode_labelled(self, table: pa.Table) -> tuple[Rows, Counts]:
        """Features and class indices of one silo's rows that have both.

        A target cell that is none of the levels leaves its row out: to stop the run there would tell that such a
        row exists. A silo left without rows is for the caller to refuse.
        """
        y, empty = self._target(table)
        known = y >= 0
        encoded = self._encode(table.filter(pa.array(known)), training=True)
        rows = Rows(encoded.x, y[known][encoded.kept])
        outside = int((~known & ~empty).sum())
        return rows, Counts(
            rows=len(rows),
            dropped=table.num_rows - len(rows),
            clamped=encoded.clamped,
            unknown=encoded.unknown | _nonzero({self.target: outside}),
            doubtful=(*encoded.doubtful, *([self.target] if _doubtful(outside, empty) else ())),
        )

    def knows_target(self, table: pa.Table) -> bool:
        """Whether any target cell of `table` is one of the levels."""
        return bool((self._target(table)[0] >= 0).any())

    def _target(self, table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        return _levels(table, self.target, Column(levels=self.levels))

    def to_json(self) -> str:
        """Canonical JSON that `from_json` reads back to an equal encoding."""
        columns = [[name, c.model_dump(mode="json", exclude_defaults=True)] for name, c in self.columns.items()]
        return json.dumps({"columns": columns, "target": self.target, "levels": self.levels}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The encoding that `to_json` wrote."""
        try:
            tree = json.loads(text)
            columns = {name: Column.model_validate(facts) for name, facts in tree["columns"]}
            return cls(columns=columns, target=str(tree["target"]), levels=tuple(map(str, tree["levels"])))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                "The encoding of columns saved with this model cannot be read.", "Take the model from its run again."
            ) from error


def _names(name: str, column: Column) -> list[str]:
    """Names of the features that one column becomes."""
    if column.numeric:
        edges = ["-inf", *(f"{edge:g}" for edge in column.bins), "inf"]
        bins = [f"{name} in [{low}, {high})" for low, high in pairwise(edges)]
        return [name, *(bins if column.bins else ())]
    return [f"{name} = {level}" for level in _with_other(column.levels)]


def _with_other(levels: tuple[str, ...]) -> tuple[str, ...]:
    """The levels and the extra one; a schema that lists "other" itself means the same by it."""
    return levels if OTHER in levels else (*levels, OTHER)


def _numbers(
    table: pa.Table, name: str, column: Column, *, training: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Values, float64 (n,), empty cells replaced by `missing`; and which were empty, bool (n,)."""
    place = f"[data.schema.{toml_key(name)}]"
    values = column_numbers(table, name, or_else=f", or give the column levels in {place}" if training else "")
    empty = np.isnan(values)
    if column.missing is None and empty.any():
        raise DataError(
            f"Column {name!r} has empty cells and no rule for them.",
            f'Write missing = "drop" (leave such rows out) or missing = NUMBER in {place}.'
            if training
            else "Fill those cells or leave those rows out.",
        )
    if isinstance(column.missing, float):
        values = np.where(empty, column.missing, values)
    return values, empty


def _levels(table: pa.Table, name: str, column: Column) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Positions in `levels`, int64 (n,), -1 where no level fits; and which cells were empty, bool (n,)."""
    text = column_text(table, name)
    found = pc.fill_null(pc.index_in(text, value_set=pa.array(column.levels, pa.string())), -1)
    index = found.to_numpy().astype(np.int64)
    outside = index < 0
    numbers = cells_as_numbers(pa.array(column.levels, pa.string()))
    numbers[np.abs(numbers) >= _EXACT] = np.nan
    if outside.any() and not np.isnan(numbers).all():
        index[outside] = _same_number(cells_as_numbers(text.filter(pa.array(outside))), numbers)
    return index, empty_cells(text, column.levels)


def _same_number(cells: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.int64]:
    """Positions of `cells`, (n,), among `levels`, the first of equal ones; -1 where none is equal. nan equals none."""
    order = np.argsort(levels, kind="stable")  # nan comes last
    ascending = levels[order]
    place = np.minimum(np.searchsorted(ascending, cells), len(levels) - 1)
    return np.where(ascending[place] == cells, order[place], -1)


def _write_numbers(out: NDArray[np.float32], values: NDArray[np.float64], column: Column) -> int:
    """Fill `out`, (k, 1 + bins), and return how many values were clamped."""
    if column.low is None or column.high is None:  # the schema refuses such a column; this is for the type checker
        raise AssertionError
    inside = np.clip(values, column.low, column.high)
    out[:, 0] = 2 * (inside - column.low) / (column.high - column.low) - 1
    if column.bins:
        position = 1 + np.searchsorted(np.asarray(column.bins), inside, side="right")
        out[np.arange(len(values)), position] = 1
    return int((inside != values).sum())


def _write_levels(out: NDArray[np.float32], index: NDArray[np.int64], empty: NDArray[np.bool_], column: Column) -> int:
    """Fill `out`, (k, levels), and return how many cells were neither a level nor empty."""
    outside = index < 0
    out[np.arange(len(index)), np.where(outside, _with_other(column.levels).index(OTHER), index)] = 1
    return int((outside & ~empty).sum())


def _doubtful(outside: int, empty: NDArray[np.bool_]) -> bool:
    """Whether at least half of a column's non-empty cells are outside."""
    return outside > 0 and bool(2 * outside >= np.count_nonzero(~empty))


def _nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
