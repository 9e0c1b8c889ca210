"""CSV and Parquet files as Arrow tables, and their columns as text or numbers.

No error here quotes a cell: error texts can leave the silo.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from cosilo.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "MISSING",
    "SUFFIXES",
    "cells_as_numbers",
    "column_numbers",
    "column_text",
    "empty_cells",
    "is_table_path",
    "pick",
    "read_table",
]

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
MISSING = ("", "NA", "NaN")  # text cells that are empty, unless the job lists them as levels


def is_table_path(name: str) -> bool:
    """Whether `name` ends like a table cosilo reads."""
    return name.lower().endswith(SUFFIXES)


def read_table(path: str | Path) -> pa.Table:
    """The table in a CSV file (plain or gzip, a header line, UTF-8, every cell as text) or a Parquet file.

    Raises:
        DataError: the file is absent, unreadable, broken, or of another kind.
    """
    name = str(path)
    if not is_table_path(name):
        raise DataError(f"{name!r} is not a table cosilo reads.", f"Give a path that ends in {' or '.join(SUFFIXES)}.")
    if Path(name).is_dir():
        raise DataError(f"{name!r} is a folder, not a table.", "Give the path of a file.")
    try:
        table = pa.parquet.read_table(name) if name.lower().endswith(".parquet") else _read_csv(name)
        table.validate(full=True)  # text of a Parquet file may not be UTF-8
        _ = table.column_names  # nor its header, which Arrow decodes when asked
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"There is no file {name!r}.", "Check the path.") from None
    except PermissionError:
        raise DataError(f"The file {name!r} may not be read.", "Give yourself the right to read it.") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        # Their messages quote the offending line, which is a private row.
        raise DataError(
            f"Cannot read {name!r} as a table ({type(error).__name__}).",
            "Write it as UTF-8 CSV with one header line and equally many cells in every line, or as Parquet.",
        ) from None
    return table


def _read_csv(name: str) -> pa.Table:
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    with pa.csv.open_csv(name, parse_options=parse) as reader:
        names = reader.schema.names
    as_text = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    return pa.csv.read_csv(name, parse_options=parse, convert_options=as_text)


def pick(table: pa.Table, name: str) -> pa.ChunkedArray:
    """The one column called `name`."""
    found = table.schema.get_all_field_indices(name)
    if len(found) != 1:
        problem = f"has {len(found)} columns called" if found else "has no column"
        # Without quoting the header: where it is missing, the first line is a private row.
        raise DataError(f"The table {problem} {name!r}.", "Compare that name with the table's header line.")
    return table.column(found[0])


def column_text(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Column `name` as text, exactly as written; whole numbers held as floats read "3", truth values "true"."""
    column = pick(table, name)
    if pa.types.is_floating(column.type):
        # A table library turns whole numbers into floats as soon as one cell is empty: 3.0 is the level "3".
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowException:
        raise DataError(
            f"Column {name!r} holds {column.type} cells, which are not text.", "Convert the column to text."
        ) from None


def column_numbers(table: pa.Table, name: str, *, or_else: str = "") -> NDArray[np.float64]:
    """Column `name` as float64 of shape (n,); nan where the cell is empty.

    `or_else`: what the reader of the error may do besides mending cells that are not numbers, ", or ...".
    """
    column = pick(table, name)
    try:
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.utf8_trim_whitespace(column)
            empty = pc.is_in(column, value_set=pa.array(MISSING, column.type))
            column = pc.if_else(empty, pa.scalar(None, column.type), column)
        if pa.types.is_boolean(column.type):
            column = pc.cast(column, pa.int8())
        numbers = pc.cast(column, pa.float64(), safe=False)
    except pa.ArrowException:
        raise DataError(
            f"Column {name!r} has cells that are not numbers.",
            f'Mend those cells (empty, "NA" and "NaN" are missing){or_else}.',
        ) from None
    return np.asarray(pc.fill_null(numbers, np.nan).to_numpy(), dtype=np.float64)


def cells_as_numbers(text: pa.ChunkedArray) -> NDArray[np.float64]:
    """Cells of a text column as float64 of shape (n,); nan where a cell is no finite decimal number."""
    trimmed = pc.utf8_trim_whitespace(text)
    written = pc.fill_null(pc.match_substring_regex(trimmed, _DECIMAL), False)
    numbers = pc.cast(pc.if_else(written, trimmed, pa.scalar(None, trimmed.type)), pa.float64())
    values = np.asarray(pc.fill_null(numbers, np.nan).to_numpy(), dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def empty_cells(text: pa.ChunkedArray, levels: tuple[str, ...] = ()) -> NDArray[np.bool_]:
    """Which cells of a text column are missing, bool (n,); a word of `levels` never is ("NA" may be Namibia)."""
    words = pa.array([word for word in MISSING if word not in levels], pa.string())
    empty = pc.or_(pc.is_null(text), pc.fill_null(pc.is_in(text, value_set=words), False))
    return np.asarray(empty.to_numpy(), dtype=np.bool_)
