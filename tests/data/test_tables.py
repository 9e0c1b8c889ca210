from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cosilo.data import read_table
from cosilo.data.tables import cells_as_numbers, column_numbers, column_text
from cosilo.errors import DataError

CSV = 'age,city,city\n 41 ,"Bonn, West",a\nNA,NA,b\n1e1," x ",c\n'


def test_csv_cells_are_read_as_text_exactly_as_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,city\n007,NA\n1.50, x \n", encoding="utf-8")
    table = read_table(path)
    assert table.to_pydict() == {"id": ["007", "1.50"], "city": ["NA", " x "]}


def test_gzip_csv_and_quoted_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b'a,b\n"two\nlines",1\n'))
    assert read_table(path).to_pydict() == {"a": ["two\nlines"], "b": ["1"]}


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, None], pa.int32()), "s": ["x", "y"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert read_table(tmp_path / "rows.parquet").equals(table)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ragged.csv", b"a,b\nsecret,2\nsecret\n"),
        ("latin1.csv", "a,b\nsecret\xe9,1\n".encode("latin-1")),
        ("empty.csv", b""),
        ("broken.csv.gz", b"secret"),
        ("broken.parquet", b"secret"),
        ("latin1_header.csv", "secret\xe9,b\n1,2\n".encode("latin-1")),
        ("utf16.csv", "secret,b\n1,2\n".encode("utf-16")),
        ("binary.csv", bytes(range(256)) * 20),
        ("blank.csv", b"\n\n"),
        ("cut.csv.gz", gzip.compress(b"a,b\n" + b"secret,2\n" * 9999, mtime=0)[:60]),
        ("checksum.csv.gz", gzip.compress(b"a,b\nsecret,2\n", mtime=0)[:-8] + b"12345678"),
        ("empty.csv.gz", b""),
        ("empty.parquet", b""),
    ],
)
def test_unreadable_files_are_errors_that_quote_no_cell(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"Cannot read .* as a table .* Write it as UTF-8 CSV") as caught:
        read_table(tmp_path / name)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__  # Arrow's own message, which quotes the line, is not shown with it


def test_parquet_text_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    offsets = pa.array([0, 7], pa.int32()).buffers()[1]
    latin1 = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"secret\xe9")])
    pq.write_table(pa.table({"s": latin1}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"Cannot read .* as a table") as caught:
        read_table(tmp_path / "rows.parquet")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
def test_a_folder_is_not_a_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=r"is a folder, not a table\. Give the path of a file"):
        read_table(tmp_path / name)


def test_a_file_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("pyarrow.csv.open_csv", refuse)  # root may read everything
    with pytest.raises(DataError, match=r"rows\.csv' may not be read\. Give yourself the right"):
        read_table(tmp_path / "rows.csv")


def test_absent_files_and_other_kinds_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for name in ("nope.csv", "nope/nope.csv", "file/nope.csv", "nope.parquet"):
        with pytest.raises(DataError, match=r"There is no file .*nope\.\w+'\. Check the path\.$"):
            read_table(tmp_path / name)
    with pytest.raises(DataError, match=r"rows\.xlsx' is not a table .* ends in \.csv or \.csv\.gz or \.parquet"):
        read_table(tmp_path / "rows.xlsx")


def test_numbers_take_space_and_three_words_for_missing() -> None:
    table = pa.table({"n": [" 1.5", "-2e1", "", "NA", "NaN", None, "inf"]})
    np.testing.assert_array_equal(column_numbers(table, "n"), [1.5, -20, np.nan, np.nan, np.nan, np.nan, np.inf])


@pytest.mark.parametrize(
    "cells", [pa.array([1, 0], pa.uint8()), pa.array([True, False]), pa.array(["1", "0"]).dictionary_encode()]
)
def test_numbers_from_every_kind_of_column(cells: pa.Array) -> None:
    np.testing.assert_array_equal(column_numbers(pa.table({"n": cells}), "n"), [1.0, 0.0])


def test_cells_that_are_not_numbers_name_the_column_and_not_the_cell() -> None:
    with pytest.raises(DataError, match=r"Column 'n' has cells that are not numbers\. Mend those cells") as caught:
        column_numbers(pa.table({"n": ["1", "secret"]}), "n")
    assert "secret" not in str(caught.value)


def test_text_cells_as_numbers_where_they_are_decimal_numbers() -> None:
    cells = ["1", "01", " 1.0 ", "1e0", "+.1E1", "1.", "-0", None, "", "NA", "nan", "inf", "1e999", "0x1", "1_0", "1,0"]
    found = cells_as_numbers(pa.chunked_array([pa.array(cells)]))
    np.testing.assert_array_equal(found, [1.0] * 6 + [0.0] + [np.nan] * 9)


def test_text_of_whole_numbers_is_the_same_from_integers_and_floats() -> None:
    table = pa.table({"i": [3, None], "f": [3.0, float("nan")], "b": [True, None]})
    assert [column_text(table, name).to_pylist() for name in "ifb"] == [["3", None], ["3", None], ["true", None]]


def test_columns_without_text_are_refused() -> None:
    with pytest.raises(DataError, match=r"Column 'v' holds list<.*> cells, which are not text\. Convert"):
        column_text(pa.table({"v": [[1], [2]]}), "v")


def test_absent_and_repeated_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(CSV, encoding="utf-8")
    table = read_table(path)
    with pytest.raises(
        DataError, match="The table has no column 'town'. Compare that name with the table's header line."
    ):
        column_text(table, "town")
    with pytest.raises(DataError, match="The table has 2 columns called 'city'"):
        column_text(table, "city")
