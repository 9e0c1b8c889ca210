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


def test_empty_numeric_cells_without_a_rule_are_an_error() -> None:
    with pytest.raises(DataError, match=r"Column 'age' has empty cells .* missing = \"drop\" .* \[data\.schema\.age\]"):
        encoding(age=SCHEMA["age"]).encode(pa.table({"age": ["3", ""]}))


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
