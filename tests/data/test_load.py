from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosilo.data import CATALOGUE, Entry, FederatedRows, Rows, from_arrays, load
from cosilo.errors import DataError, JobError
from cosilo.job import Column, Job

MakeJob = Callable[..., Job]

SCHEMA = {
    "age": {"low": 0, "high": 100, "missing": "drop"},
    "sex": {"levels": ["f", "m"]},
    "sick": {"levels": ["no", "yes"]},
}
CSV = """hospital,age,sex,sick,note
north,10,f,no,x
south,150,m,yes,x
north,20,x,yes,x
north,NA,f,no,x
north,30,m,,x
"""
ARRAYS = {"a": (np.arange(60, dtype=np.float32).reshape(20, 3), np.arange(20) % 2)}


@pytest.fixture
def hospitals(tmp_path: Path) -> dict[str, Any]:
    """[data] of a job over a small CSV file."""
    path = tmp_path / "rows.csv"
    path.write_text(CSV, encoding="utf-8")
    return {
        "dataset": str(path), "target": "sick", "silo_column": "hospital", "capacity": 9, "schema": SCHEMA
    }  # fmt: skip


def test_a_file_becomes_silos(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    found = load(make_job(hospitals))
    assert list(found.silos) == ["north", "south"]
    np.testing.assert_allclose(found.silos["north"].x, [[-0.8, 1, 0, 0], [-0.6, 0, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(found.silos["south"].x, [[1, 0, 1, 0]])
    assert found.silos["north"].y.tolist() == [0, 1]
    assert found.test is None  # these rows are private
    assert (found.capacities, found.classes, found.feature_shape) == ({"north": 9, "south": 9}, 2, (4,))
    assert found.encoding is not None
    assert found.encoding.feature_names == ("age", "sex = f", "sex = m", "sex = other")


def test_counts_stay_per_silo(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    counts = load(make_job(hospitals)).counts
    assert (counts["north"].rows, counts["north"].dropped, counts["north"].unknown) == (2, 2, {"sex": 1})
    assert (counts["south"].rows, counts["south"].dropped, counts["south"].clamped) == (1, 0, {"age": 1})


def test_the_silo_column_is_a_feature_where_the_schema_lists_it(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    schema = SCHEMA | {"hospital": {"levels": ["north", "south"]}}
    assert load(make_job(hospitals | {"schema": schema})).feature_shape == (7,)


@pytest.mark.parametrize("key", ["target", "silo_column", "schema"])
def test_a_file_needs_target_silo_column_and_schema(make_job: MakeJob, hospitals: dict[str, Any], key: str) -> None:
    del hospitals[key]
    with pytest.raises(DataError, match=rf"{key}\]? is missing.* (Name the column|Add \[data\.schema\.NAME\])"):
        load(make_job(hospitals))


def test_capacity_comes_from_the_silo_then_the_job(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    found = load(make_job(hospitals, silos={"north": {"capacity": 4}, "south": {}}))
    assert found.capacities == {"north": 4, "south": 9}


def test_a_missing_capacity_is_an_error_that_tells_no_count(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    del hospitals["capacity"]
    with pytest.raises(
        DataError, match=r"'north' has no capacity.* \[silos\.north\] capacity, chosen without"
    ) as caught:
        load(make_job(hospitals))
    assert not any(character.isdigit() for character in str(caught.value))


def test_more_rows_than_the_capacity_are_refused_without_their_count(make_job: MakeJob) -> None:
    with pytest.raises(DataError, match=r"'a' holds more rows than its capacity of 19.* Raise") as caught:
        from_arrays(make_job({"capacity": 19}), ARRAYS)
    assert "20" not in str(caught.value)
    assert len(from_arrays(make_job({"capacity": 20}), ARRAYS).silos["a"]) == 20


def test_capacity_counts_training_rows_only(make_job: MakeJob) -> None:
    job = make_job({"capacity": 15}, evaluation={"source": "public", "held_out": 0.5})
    assert len(from_arrays(job, ARRAYS).silos["a"]) <= 15


def test_listed_silos_must_be_those_in_the_file(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"1 of the 2 silos in column 'hospital' have no"):
        load(make_job(hospitals, silos={"north": {}}))
    with pytest.raises(DataError, match="Silo 'west' is empty"):
        load(make_job(hospitals, silos={"north": {}, "south": {}, "west": {}}))


def test_levels_that_fit_no_row_leave_an_empty_silo(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    hospitals["schema"] = SCHEMA | {"sick": {"levels": ["0", "1"]}}
    with pytest.raises(DataError, match=r"Silo 'north' is empty: .* Check its rows and the target's levels"):
        load(make_job(hospitals))


@pytest.fixture
def catalogued(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """[data] of a job over a small catalogue entry: 200 rows in silos "x" and "y"."""
    numbers = np.arange(200)
    table = pa.table({"s": np.where(numbers % 3, "x", "y"), "n": numbers, "t": np.where(numbers % 2, "no", "yes")})
    entry = replace(
        CATALOGUE["flights"],
        silo_column="s",
        target="t",
        columns={"n": Column(low=0, high=200), "t": Column(levels=("no", "yes"))},
        capacities={"x": 150, "y": 80},
        read=lambda: table,
    )
    monkeypatch.setitem(cast("dict[str, Entry]", CATALOGUE), "small", entry)
    return {"dataset": "small"}


def test_catalogue_rows_are_public_and_bring_their_schema_and_capacities(
    make_job: MakeJob, catalogued: dict[str, str]
) -> None:
    found = load(make_job(catalogued))
    assert found.capacities == {"x": 150, "y": 80}
    assert found.test is not None
    # 200 coins of probability 0.2: 40, and 24 is four standard deviations (and the seed is fixed).
    assert abs(len(found.test) - 40) < 24
    assert load(make_job(catalogued, evaluation={"held_out": 0.0})).test is None
    assert load(make_job(catalogued, silos={"x": {"capacity": 140}, "y": {}})).capacities == {"x": 140, "y": 80}
    assert load(make_job(catalogued | {"capacity": 199})).capacities == {"x": 199, "y": 199}


def test_a_job_may_bring_its_own_silos_and_schema_to_catalogue_rows(
    make_job: MakeJob, catalogued: dict[str, str]
) -> None:
    schema = {"n": {"low": 0, "high": 200, "bins": [100]}, "s": {"levels": ["x", "y"]}}
    data = catalogued | {"silo_column": "t", "target": "s", "schema": schema}
    with pytest.raises(DataError, match="Silo 'no' has no capacity"):
        load(make_job(data))  # the catalogue's capacities are for its own silos
    found = load(make_job(data | {"capacity": 100}))
    assert list(found.silos) == ["no", "yes"]
    assert found.feature_shape == (3,)


def test_unknown_sources_list_the_catalogue_and_the_endings(make_job: MakeJob) -> None:
    with pytest.raises(
        DataError, match=r"'flight' is neither .* Catalogue: flights; .* \.csv or \.csv\.gz or \.parquet"
    ):
        load(make_job({"dataset": "flight"}))
    with pytest.raises(DataError, match=r"names no data\. Set \[data\] dataset = \"flights\" or a path"):
        load(make_job())


def test_classes_belong_to_arrays(make_job: MakeJob) -> None:
    with pytest.raises(JobError, match=r"classes belongs to ready arrays.* Remove it"):
        make_job({"dataset": "flights", "classes": 3})


def test_private_rows_are_not_held_out(make_job: MakeJob) -> None:
    assert from_arrays(make_job({"capacity": 20}), ARRAYS).test is None
    assert from_arrays(make_job({"capacity": 20}, evaluation={"held_out": 0.0}), ARRAYS).test is None
    job = make_job({"capacity": 20}, evaluation={"held_out": 0.3})
    with pytest.raises(DataError, match=r"held_out = 0\.3 .* costs privacy.*source = \"public\" .* or held_out = 0"):
        from_arrays(job, ARRAYS)


@pytest.mark.parametrize("evaluation", [{"source": "public"}, {"source": "public", "held_out": 0.5}])
def test_public_rows_are_held_out_and_leave_training(make_job: MakeJob, evaluation: dict[str, Any]) -> None:
    found = from_arrays(make_job({"capacity": 20}, evaluation=evaluation), ARRAYS)
    assert found.test is not None
    assert 0 < len(found.test) < 20
    assert _multiset(found.test) + _multiset(found.silos["a"]) == _multiset(Rows(*ARRAYS["a"]))
    assert (found.counts["a"].rows, found.counts["a"].held_out) == (len(found.silos["a"]), len(found.test))


def test_the_seed_fixes_the_split(make_job: MakeJob) -> None:
    def test_rows(seed: int) -> list[float]:
        job = make_job({"capacity": 20}, evaluation={"source": "public", "held_out": 0.5}, seed=seed)
        found = from_arrays(job, ARRAYS).test
        assert found is not None
        return found.x[:, 0].tolist()  # type: ignore[no-any-return]  # numpy's tolist

    assert test_rows(1) == test_rows(1) != test_rows(2)


def test_a_split_without_test_or_training_rows_is_an_error(make_job: MakeJob) -> None:
    few = make_job({"capacity": 20}, evaluation={"source": "public", "held_out": 1e-9})
    with pytest.raises(DataError, match=r"held_out = 1e-09 holds no row out of so few\. Raise it"):
        from_arrays(few, ARRAYS)
    most = make_job({"capacity": 20}, evaluation={"source": "public", "held_out": 1 - 1e-9})
    with pytest.raises(DataError, match="Silo 'a' is empty"):
        from_arrays(most, ARRAYS)


ROW = st.tuples(
    st.sampled_from(["north", "south"]),
    st.sampled_from(["1", "50", "99", "-4", "NA"]),
    st.sampled_from(["f", "m", "x"]),
    st.sampled_from(["no", "yes", "NA"]),
)
# Rows that are there whatever is drawn, so that no silo and no test set is ever empty.
BASE = [(silo, str(age), sex, "no") for silo in ("north", "south") for age in range(40) for sex in "fm"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, max_size=6), extra=ROW, data=st.data())
def test_adding_a_row_to_a_file_moves_no_other(
    make_job: MakeJob, rows: list[tuple[str, ...]], extra: tuple[str, ...], data: st.DataObject
) -> None:
    """With one row more, one silo or the test set has one row more, or nothing changes (the row is dropped)."""
    rows = BASE + rows
    at = data.draw(st.integers(0, len(rows)))
    with tempfile.TemporaryDirectory() as folder:
        before = _loaded(make_job, Path(folder), rows)
        after = _loaded(make_job, Path(folder), [*rows[:at], extra, *rows[at:]])
    added = 0
    for name in ("north", "south", "test"):
        assert not _part(before, name) - _part(after, name)
        more = _part(after, name) - _part(before, name)
        assert name in ("test", extra[0]) or not more
        added += more.total()
    assert added == (0 if "NA" in extra else 1)


def _loaded(make_job: MakeJob, folder: Path, rows: list[tuple[str, ...]]) -> FederatedRows:
    path = folder / "rows.csv"
    path.write_text("\n".join(["hospital,age,sex,sick", *map(",".join, rows)]), encoding="utf-8")
    data = {"dataset": str(path), "target": "sick", "silo_column": "hospital", "capacity": 200, "schema": SCHEMA}
    return load(make_job(data, evaluation={"source": "public", "held_out": 0.3}))


def _part(found: FederatedRows, name: str) -> Counter[bytes]:
    if name != "test":
        return _multiset(found.silos[name])
    assert found.test is not None
    return _multiset(found.test)


def _multiset(rows: Rows) -> Counter[bytes]:
    return Counter(x.astype(np.float32).tobytes() + bytes([y]) for x, y in zip(rows.x, rows.y.tolist(), strict=True))
