from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosilo.data import Encoding
from cosilo.errors import DataError
from cosilo.job import Column

SCHEMA = {
    "age": Column(low=0, high=100, bins=(18, 65)),
    "sick": Column(levels=("no", "yes")),
    "sex": Column(levels=("f", "m")),
    "dose": Column(low=-1, high=1, missing=0.5),
}


def encoding(**columns: Column) -> Encoding:
    return Encoding.from_schema({**columns, "sick": SCHEMA["sick"]}, "sick")


def test_features_follow_the_schema_without_the_target() -> None:
    found = Encoding.from_schema(SCHEMA, "sick")
    assert found.feature_names == (
        *("age", "age in [-inf, 18)", "age in [18, 65)", "age in [65, inf)"),
        *("sex = f", "sex = m", "sex = other", "dose"),
    )
    assert found.levels == ("no", "yes")


def test_numbers_scale_clamp_and_fall_into_bins() -> None:
    encoded = encoding(age=SCHEMA["age"]).encode(pa.table({"age": [0.0, 18.0, 64.9, 100.0, 150.0, -np.inf]}))
    np.testing.assert_allclose(encoded.x[:, 0], [-1, -0.64, 0.298, 1, 1, -1], rtol=1e-6)
    assert encoded.x[:, 1:].argmax(axis=1).tolist() == [0, 1, 1, 2, 2, 0]  # an edge belongs to the bin above
    assert (encoded.x[:, 1:].sum(axis=1) == 1).all()
    assert encoded.clamped == {"age": 2}
    assert encoded.x.dtype == np.float32


def test_levels_are_one_hot_and_unknown_ones_count_as_other() -> None:
    encoded = encoding(sex=SCHEMA["sex"]).encode(pa.table({"sex": ["m", "f", "x", "", None, "f "]}))
    assert encoded.x.argmax(axis=1).tolist() == [1, 0, 2, 2, 2, 2]
    assert (encoded.x.sum(axis=1) == 1).all()
    assert encoded.unknown == {"sex": 2}  # "x" and "f "; empty cells are "other" but not unknown


def test_a_level_may_be_called_like_a_missing_cell_or_like_the_extra_level() -> None:
    encoded = encoding(land=Column(levels=("NA", "other", "DE"))).encode(pa.table({"land": ["NA", "FR", "DE", ""]}))
    assert encoded.x.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]
    assert encoded.unknown == {"land": 1}


def test_a_number_replaces_empty_cells_without_counting_as_clamped() -> None:
    encoded = encoding(dose=SCHEMA["dose"]).encode(pa.table({"dose": ["NA", "", "1"]}))
    assert encoded.x.tolist() == [[0.5], [0.5], [1.0]]
    assert encoded.clamped == {}


@pytest.mark.parametrize("column", [Column(low=0, high=1, missing="drop"), Column(levels=("0", "1"), missing="drop")])
def test_drop_leaves_the_row_out(column: Column) -> None:
    encoded = encoding(age=Column(low=0, high=1), v=column).encode(pa.table({"v": ["1", "NA", "0"], "age": [0, 9, 1]}))
    assert encoded.kept.tolist() == [True, False, True]
    assert encoded.x[:, 0].tolist() == [-1.0, 1.0]
    assert encoded.clamped == {}  # cells of rows that were left out do not count


@pytest.mark.parametrize(
    ("cells", "what", "fix", "training_fix"),
    [
        (
            ["3", ""],
            "Column 'my age' has empty cells and no rule for them.",
            "Fill those cells or leave those rows out.",
            'Write missing = "drop" (leave such rows out) or missing = NUMBER in [data.schema."my age"].',
        ),
        (
            ["3", "secret"],
            "Column 'my age' has cells that are not numbers.",
            'Mend those cells (empty, "NA" and "NaN" are missing).',
            'Mend those cells (empty, "NA" and "NaN" are missing), or give the column levels in [data.schema."my age"].',  # noqa: E501 - one sentence
        ),
    ],
)
def test_numeric_cells_that_do_not_fit_are_an_error_and_only_training_can_change_the_schema(
    cells: list[str], what: str, fix: str, training_fix: str
) -> None:
    found = encoding(**{"my age": SCHEMA["age"]})
    with pytest.raises(DataError) as caught:
        found.encode(pa.table({"my age": cells}))
    assert (caught.value.what, caught.value.fix) == (what, fix)
    with pytest.raises(DataError) as caught:
        found.encode_labelled(pa.table({"my age": cells, "sick": ["no", "yes"]}))
    assert (caught.value.what, caught.value.fix) == (what, training_fix)


@pytest.mark.parametrize(
    ("levels", "cells", "expected"),
    [
        (("0", "1"), ["1.0", "01", "1e0", " 1", "+1", "0.0", "-0", "0", "1"], [1, 1, 1, 1, 1, 0, 0, 0, 1]),
        (("0", "1"), ["2.0", "10", "", "NA", "nan", "inf", "one", "1.0001", "true", None], [2] * 10),
        (("1.0", "2.0"), ["1", "2", "2.00", "3"], [0, 1, 1, 2]),
        (("f", "0.5", "1"), ["1.0", ".5", "f", "f ", "0.50"], [2, 1, 0, 3, 1]),
        (("01", "1", "1.0"), ["1.0", "1", "01", "001"], [2, 1, 0, 0]),  # the same text first, then the first number
        (("NA", "1"), ["NA", "1.0", "NaN"], [0, 1, 2]),
        (("9007199254740993", "1"), ["9007199254740992", "9007199254740993", "9007199254740993.0"], [2, 0, 2]),
        (("1e999", "inf"), ["1e998", "inf", "1e999"], [2, 1, 0]),
    ],
)
def test_a_cell_is_the_level_that_is_the_same_number(
    levels: tuple[str, ...], cells: list[str | None], expected: list[int]
) -> None:
    table = pa.table({"v": pa.array(cells, pa.string()), "sick": ["no"] * len(cells)})
    encoded = encoding(v=Column(levels=levels)).encode(table)
    assert encoded.x.argmax(axis=1).tolist() == expected
    empty = {"", "NA", "NaN", None} - set(levels)
    outside = sum(i == len(levels) and cell not in empty for i, cell in zip(expected, cells, strict=True))
    assert encoded.unknown == ({"v": outside} if outside else {})
    as_target = Encoding.from_schema({"age": Column(low=0, high=1), "v": Column(levels=levels)}, "v")
    rows, counts = as_target.encode_labelled(table.append_column("age", pa.array([0.5] * len(cells))))
    assert rows.y.tolist() == [i for i in expected if i < len(levels)]
    assert counts.unknown == encoded.unknown


@pytest.mark.parametrize(
    "cells", [pa.array([1, 0]), pa.array([1.0, 0.0]), pa.array(["1.0", "0.0"]).dictionary_encode()]
)
def test_levels_of_other_column_types_are_numbers_too(cells: pa.Array) -> None:
    encoded = encoding(v=Column(levels=("0.00", "1.00"))).encode(pa.table({"v": cells}))
    assert encoded.x.argmax(axis=1).tolist() == [1, 0]


def test_a_column_is_doubtful_from_half_of_its_cells_on() -> None:
    table = pa.table(
        {
            "age": [200.0, 50.0, 51.0, 52.0],
            "sex": ["m", "x", None, "f"],  # a third of the three that are not empty
            "dose": ["9", "", "NA", "0"],  # half of two
            "sick": ["no", "no", "yes", "no"],
        }
    )
    _, counts = Encoding.from_schema(SCHEMA, "sick").encode_labelled(table)
    assert counts.doubtful == ("dose",)
    wrong = table.set_column(3, "sick", pa.array(["n", "n", None, "no"]))
    _, counts = Encoding.from_schema(SCHEMA, "sick").encode_labelled(wrong)
    assert counts.doubtful == ("sick",)
    assert counts.unknown == {"sick": 2}


def test_target_becomes_an_index_and_rows_without_a_known_target_are_left_out_and_counted() -> None:
    table = pa.table({"age": [1, 2, 3, 4, 200], "sick": ["yes", "perhaps", None, "no", "Yes"]})
    rows, counts = encoding(age=Column(low=0, high=100)).encode_labelled(table)
    assert rows.y.tolist() == [1, 0]
    assert rows.y.dtype == np.int64
    np.testing.assert_allclose(rows.x[:, 0], [-0.98, -0.92], rtol=1e-6)
    assert (counts.rows, counts.dropped, counts.unknown, counts.clamped) == (2, 3, {"sick": 2}, {})


def test_integer_targets_match_levels_written_as_text() -> None:
    table = pa.table({"age": [1, 2, 3], "sick": [1.0, 0.0, float("nan")]})
    rows, counts = Encoding.from_schema(
        {"age": Column(low=0, high=9), "sick": Column(levels=("0", "1"))}, "sick"
    ).encode_labelled(table)
    assert (rows.y.tolist(), counts.dropped, counts.unknown) == ([1, 0], 1, {})


@pytest.mark.parametrize("sick", [None, Column(low=0, high=1), Column(levels=("1",))])
def test_a_target_without_levels_is_told_what_to_write(sick: Column | None) -> None:
    schema = {"age": SCHEMA["age"]} | ({"sick": sick} if sick else {})
    with pytest.raises(DataError, match=r"'sick' .* Write \[data\.schema\.sick\] levels = \[\"0\", \"1\"\]"):
        Encoding.from_schema(schema, "sick")
    with pytest.raises(DataError, match=r"Write \[data\.schema\.\"is sick\"\] levels"):
        Encoding.from_schema(schema, "is sick")


def test_a_schema_of_the_target_alone_is_an_error() -> None:
    with pytest.raises(DataError, match=r"no feature column\. Add a \[data\.schema\.NAME\] table"):
        encoding()


def test_json_reads_back_to_an_equal_encoding() -> None:
    found = Encoding.from_schema(SCHEMA | {"n": Column(levels=("a",), missing="drop")}, "sick")
    again = Encoding.from_json(found.to_json())
    assert again == found
    assert list(again.columns) == list(found.columns)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"columns": [["a", {"low": 2, "high": 1}]], "target": "t"}'])
def test_broken_json_is_a_data_error(text: str) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        Encoding.from_json(text)


CELLS = st.fixed_dictionaries(
    {
        "age": st.sampled_from(["0", "18", "40.5", "1e9", "-3"]),
        "sex": st.sampled_from(["f", "m", "x", "", "NA"]),
        "dose": st.sampled_from(["", "0.25", "-7", "NaN"]),
        "sick": st.sampled_from(["yes", "no", "", "?"]),
    }
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(CELLS, min_size=1, max_size=8), data=st.data())
def test_no_row_changes_the_encoding_of_another(rows: list[dict[str, str]], data: st.DataObject) -> None:
    """Taking any row out takes exactly its features and label out."""
    found = Encoding.from_schema(SCHEMA, "sick")
    gone = data.draw(st.integers(0, len(rows) - 1))
    whole, _ = found.encode_labelled(_table(rows))
    less, _ = found.encode_labelled(_table(rows[:gone] + rows[gone + 1 :]))
    alone, _ = found.encode_labelled(_table([rows[gone]]))
    position = sum(row["sick"] in ("yes", "no") for row in rows[:gone])
    np.testing.assert_array_equal(np.insert(less.x, [position] * len(alone), alone.x, axis=0), whole.x)
    np.testing.assert_array_equal(np.insert(less.y, [position] * len(alone), alone.y), whole.y)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in SCHEMA})
