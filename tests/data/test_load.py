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


def test_capacity_is_raised_where_it_was_set(make_job: MakeJob, catalogued: dict[str, str]) -> None:
    def fix(data: dict[str, Any], silos: dict[str, Any]) -> str:
        with pytest.raises(DataError, match="holds more rows") as caught:
            load(make_job(data, silos=silos, evaluation={"held_out": 0.0}))
        return caught.value.fix

    few = catalogued | {"capacity": 7}
    assert fix(few, {}).startswith("Raise [data] capacity, or")
    assert fix(few, {"x": {}, "y": {}}).startswith("Raise [data] capacity, or")
    assert fix(few, {"x": {"capacity": 8}, "y": {}}).startswith("Raise [silos.x] capacity, or")
    # The catalogue's for x is 150, of which `small` has 133; y's own is 80 and it has 67.
    assert fix(catalogued | {"dataset": "full"}, {"x": {}, "y": {}}).startswith("Add [silos.x] capacity, or")
    alone = fix(catalogued | {"dataset": "full"}, {})
    assert alone.startswith("Add [silos.x] capacity and a [silos.NAME] table for every other silo, or")


def test_keys_in_sentences_are_toml(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    path = Path(hospitals["dataset"])
    path.write_text(CSV.replace("north", "?"), encoding="utf-8")
    with pytest.raises(DataError, match=r"Raise \[silos\.\"\?\"\] capacity"):
        load(make_job(hospitals, silos={"?": {"capacity": 1}, "south": {}}))
    del hospitals["capacity"]
    with pytest.raises(DataError, match=r"Set \[data\] capacity or \[silos\.\"\?\"\] capacity"):
        load(make_job(hospitals))


def test_capacity_counts_training_rows_only(make_job: MakeJob) -> None:
    job = make_job({"capacity": 15}, evaluation={"source": "public", "held_out": 0.5})
    assert len(from_arrays(job, ARRAYS).silos["a"]) <= 15


def test_listed_silos_must_be_those_in_the_file(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"1 of the 2 silos in column 'hospital' have no .*: 'south'\. Add"):
        load(make_job(hospitals, silos={"north": {}}))
    with pytest.raises(DataError, match=r"Silo 'west', .*, has no rows in column 'hospital'\. .* \[silos\.west\]"):
        load(make_job(hospitals, silos={"north": {}, "south": {}, "west": {}}))
    with pytest.raises(DataError, match=r"Silo 'norht', .* Did you mean \[silos\.north\]\?"):
        load(make_job(hospitals, silos={"norht": {}, "south": {}}))


def test_a_silo_without_a_row_to_train_on_is_told_why(make_job: MakeJob, hospitals: dict[str, Any]) -> None:
    hospitals["schema"] = SCHEMA | {"sick": {"levels": ["0", "1"]}}
    with pytest.raises(
        DataError,
        match=r"No cell of the target column 'sick' in silo 'north' .* \[data\.schema\.sick\]\. Write the levels",
    ):
        load(make_job(hospitals))
    hospitals["schema"] = SCHEMA
    Path(hospitals["dataset"]).write_text("hospital,age,sex,sick\nnorth,1,f,no\nsouth,,f,no\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"Every row of silo 'south' has an empty cell .* \('age'\)\. Fill those cells"):
        load(make_job(hospitals))


HALF_UNKNOWN = """hospital,age,sex,sick
north,10,female,no
north,20,male,yes
north,300,f,yes
south,10,Female,no
south,20,m,yes
"""


OUTSIDE, LEFT_OUT = "lie outside the levels or the range", "at least half of the rows were left out"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (HALF_UNKNOWN.replace("female", "f").replace("Female", "f"), []),  # a third
        (HALF_UNKNOWN, [f"In every silo at least half of the cells of column 'sex' {OUTSIDE}: "]),
        (
            HALF_UNKNOWN.replace("Female", "f"),
            [f"In silo 'north' at least half of the cells of column 'sex' {OUTSIDE}: "],
        ),
        (
            HALF_UNKNOWN.replace("10", "-5").replace("20", "-5").replace("Female", "f") + "south,,m,no\nsouth,,m,no\n",
            [
                f"In silo 'north' at least half of the cells of columns 'age', 'sex' {OUTSIDE}: ",
                f"In silo 'south' at least half of the cells of column 'age' {OUTSIDE} and {LEFT_OUT}: ",
            ],
        ),
        (
            HALF_UNKNOWN.replace("Female", "f").replace("female", "f").replace("20,m,yes", "20,m,ill"),
            [f"In silo 'south' at least half of the cells of column 'sick' {OUTSIDE} and {LEFT_OUT}: "],
        ),
    ],
)
def test_a_silo_whose_table_hardly_fits_the_schema_is_told_in_one_line(
    make_job: MakeJob, hospitals: dict[str, Any], caplog: pytest.LogCaptureFixture, text: str, lines: list[str]
) -> None:
    Path(hospitals["dataset"]).write_text(text, encoding="utf-8")
    load(make_job(hospitals))
    assert [record.name for record in caplog.records] == ["cosilo.silo"] * len(lines)
    assert caplog.messages == [line + "compare [data.schema] with the table." for line in lines]


def test_ready_arrays_give_no_such_line(make_job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    from_arrays(make_job({"capacity": 20}), ARRAYS)
    assert not caplog.records


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
    full = replace(entry, capacities={"x": 100, "y": 80})
    monkeypatch.setitem(cast("dict[str, Entry]", CATALOGUE), "full", full)
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
    with pytest.raises(DataError, match=r"held_out = 1 leaves silo 'a' no row to train on\. Lower held_out"):
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
