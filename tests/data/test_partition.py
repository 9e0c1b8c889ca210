from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cosilo.data import Rows
from cosilo.data.partition import check_names, held_out_mask, split_by_column
from cosilo.errors import DataError

ROWS = Rows(np.random.default_rng(0).random((20_000, 3), dtype=np.float32), np.arange(20_000) % 2)


def test_the_fraction_is_met() -> None:
    """20,000 independent coins of probability 0.2: seven standard deviations are 0.02 (false alarm 3e-12)."""
    assert abs(held_out_mask(ROWS, silo="a", fraction=0.2, seed=1).mean() - 0.2) < 0.02


def test_a_larger_fraction_keeps_every_row_that_was_held_out() -> None:
    small = held_out_mask(ROWS, silo="a", fraction=0.1, seed=1)
    large = held_out_mask(ROWS, silo="a", fraction=0.3, seed=1)
    assert not (small & ~large).any()


def test_membership_is_pinned() -> None:
    """Golden: a changed hash would move test rows of runs that were already published."""
    mask = held_out_mask(ROWS.take(np.arange(len(ROWS)) < 16), silo="a", fraction=0.5, seed=7)
    assert "".join("01"[int(held)] for held in mask) == "0110100000000110"


def test_seed_silo_label_and_features_all_count() -> None:
    base = held_out_mask(ROWS, silo="a", fraction=0.5, seed=1)
    others = [
        held_out_mask(ROWS, silo="b", fraction=0.5, seed=1),
        held_out_mask(ROWS, silo="a", fraction=0.5, seed=2),
        held_out_mask(Rows(ROWS.x, 1 - ROWS.y), silo="a", fraction=0.5, seed=1),
        held_out_mask(Rows(ROWS.x[:, ::-1], ROWS.y), silo="a", fraction=0.5, seed=1),
    ]
    for other in others:  # independent coins agree half the time; 0.03 is eight standard deviations
        assert abs((base == other).mean() - 0.5) < 0.03


def test_nothing_is_held_out_at_zero() -> None:
    assert not held_out_mask(ROWS, silo="a", fraction=0.0, seed=1).any()


@settings(max_examples=60, deadline=None)
@given(
    x=hnp.arrays(np.float32, (9, 2), elements=st.sampled_from([0.0, 0.5, 1.0])),
    y=hnp.arrays(np.int64, 9, elements=st.integers(0, 2)),
    at=st.integers(0, 8),
)
def test_no_row_moves_another(x: np.ndarray, y: np.ndarray, at: int) -> None:
    whole = held_out_mask(Rows(x, y), silo="a", fraction=0.5, seed=3)
    less = held_out_mask(Rows(np.delete(x, at, axis=0), np.delete(y, at)), silo="a", fraction=0.5, seed=3)
    np.testing.assert_array_equal(np.delete(whole, at), less)


def test_silos_are_the_sorted_values_of_the_column_and_keep_row_order() -> None:
    table = pa.table({"h": ["b", "a", "b", "c", "a"], "n": [0, 1, 2, 3, 4]})
    found = split_by_column(table, "h")
    assert list(found) == ["a", "b", "c"]
    assert [part.column("n").to_pylist() for part in found.values()] == [[1, 4], [0, 2], [3]]


def test_a_table_without_rows_is_an_error() -> None:
    with pytest.raises(DataError, match=r"a header and no rows\. Give a table"):
        split_by_column(pa.table({"h": pa.array([], pa.string())}), "h")


def test_silo_values_may_be_numbers() -> None:
    assert list(split_by_column(pa.table({"h": [10, 9, 10]}), "h")) == ["10", "9"]


@pytest.mark.parametrize("cell", ["", "NA", None])
def test_a_row_without_silo_is_an_error(cell: str | None) -> None:
    with pytest.raises(DataError, match=r"empty cell in the silo column 'h'.* Fill those cells or remove"):
        split_by_column(pa.table({"h": ["a", cell]}), "h")


def test_listed_silos_must_be_those_found() -> None:
    check_names(["a", "b"], [], column="h")
    check_names(["a", "b"], ["b", "a"], column="h")
    with pytest.raises(
        DataError, match=r"2 of the 3 silos in column 'h' have no .* in the job: 'b', 'c'\. Add a table"
    ):
        check_names(["a", "b", "c"], ["a"], column="h")
    with pytest.raises(DataError, match=r"4 of the 5 .* in the job: 'b', 'c', 'd' and more\. Add a table"):
        check_names("abcde", ["a"], column="h")
    with pytest.raises(DataError, match=r"Silo 'c', .*, has no rows in column 'h'\. Bring its rows, .* \[silos\.c\]"):
        check_names(["a", "b"], ["a", "b", "c"], column="h")


@pytest.mark.parametrize(
    ("listed", "fix"),
    [
        ("Privat", "Did you mean [silos.Private]?"),
        ("PRIVATE", "Did you mean [silos.Private]?"),
        ("selfemp", 'Did you mean [silos."Self emp"]?'),
        ("x y", "Rename [silos.\"x y\"] to one of those not listed ('?', 'Private', 'Self emp'), or remove it."),
    ],
)
def test_a_listed_silo_without_rows_is_told_what_was_meant(listed: str, fix: str) -> None:
    with pytest.raises(DataError) as caught:
        check_names(["?", "Private", "Self emp", "a"], ["a", listed], column="workclass")
    assert caught.value.what == f"Silo {listed!r}, which the job lists, has no rows in column 'workclass'."
    assert caught.value.fix == fix
