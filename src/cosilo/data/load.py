"""From a job to every silo's rows: the one entrance for catalogue data, files, loaders and arrays in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cosilo.data.arrays import call_loader, check_mapping, read_arrays
from cosilo.data.catalogue import CATALOGUE, Entry
from cosilo.data.encoding import Encoding
from cosilo.data.notices import tell_silos
from cosilo.data.partition import check_names, held_out_mask, split_by_column
from cosilo.data.rows import Counts, FederatedRows, Rows
from cosilo.data.tables import SUFFIXES, is_table_path, read_table
from cosilo.data.wording import toml_key
from cosilo.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from cosilo.job import Column, Job

__all__ = ["from_arrays", "load"]

_PUBLIC_HELD_OUT = 0.2  # of rows that are public by declaration, where the job does not say
_BINARY = 2


def load(job: Job) -> FederatedRows:
    """The rows that the job's [data] names: a catalogue data set, a CSV or Parquet file, or the silos' loader.

    Raises:
        DataError: what is wrong with source, schema, silos, capacity or rows, and what to write instead.
    """
    if job.data.loader is not None:
        if not job.silos:
            raise DataError(
                "data.loader is called once per silo, and the job names no silo.",
                "Add a [silos.NAME] table with its capacity for each.",
            )
        given = call_loader(job.data.loader, sorted(job.silos), job.job.folder)
        return _ready_rows(job, given)
    if job.data.dataset is None:
        raise DataError(
            "The job names no data.",
            f'Set [data] dataset = "flights" or a path that ends in {" or ".join(SUFFIXES)}, or a loader.',
        )
    return _table_rows(job, job.data.dataset)


def from_arrays(job: Job, silos: Mapping[str, Any]) -> FederatedRows:
    """Rows given in memory: `silos[name]` is (x, y), arrays of shapes (n, ...) and (n,), or a torch Dataset of pairs.

    Raises:
        DataError: as `load`, and when the job names a source of its own.
    """
    named = [key for key in ("dataset", "loader", "target", "silo_column") if getattr(job.data, key) is not None]
    named += ["schema"] if job.data.columns else []
    if named:
        raise DataError(
            f"The job's [data] sets {', '.join(named)}, but the silos' rows were given as arrays.",
            "Remove those keys, or run the job without silos=.",
        )
    check_mapping(silos)
    check_names(silos, job.silos)
    return _ready_rows(job, silos)


def _ready_rows(job: Job, given: Mapping[str, Any]) -> FederatedRows:
    # The number of classes shapes the released model: it is public, never the largest class seen.
    classes = job.data.classes or _BINARY
    rows = read_arrays(given, classes)
    for name, part in rows.items():
        if not len(part):
            raise DataError(f"Silo {name!r} brought no rows.", "Give it at least one row, or leave it out.")
    counts = {name: Counts(rows=len(part)) for name, part in rows.items()}
    capacities = _capacities(job, rows, {})
    return _federated(job, rows, counts, capacities, encoding=None, public=False, classes=classes)


def _table_rows(job: Job, dataset: str) -> FederatedRows:
    entry = _entry(dataset)
    target, column, schema = _table_facts(job, entry)
    encoding = Encoding.from_schema(schema, target)
    tables = split_by_column(entry.read() if entry else read_table(dataset), column)
    check_names(tables, job.silos, column=column)
    rows, counts = {}, {}
    for name, table in tables.items():
        rows[name], counts[name] = encoding.encode_labelled(table)
        if not len(rows[name]):
            raise _no_usable_row(name, table, encoding)
    # Another silo column makes other silos, of which the catalogue says nothing.
    known = entry.capacities if entry and column == entry.silo_column else {}
    capacities = _capacities(job, rows, known)
    classes = len(encoding.levels)
    return _federated(job, rows, counts, capacities, encoding=encoding, public=entry is not None, classes=classes)


def _entry(dataset: str) -> Entry | None:
    """The catalogue's entry, or None when `dataset` is a path of a table."""
    if is_table_path(dataset):
        return None
    if dataset not in CATALOGUE:
        raise DataError(
            f"[data] dataset = {dataset!r} is neither in the catalogue nor a table cosilo reads.",
            f"Catalogue: {', '.join(sorted(CATALOGUE))}; a path ends in {' or '.join(SUFFIXES)}.",
        )
    return CATALOGUE[dataset]


def _table_facts(job: Job, entry: Entry | None) -> tuple[str, str, Mapping[str, Column]]:
    """Target, silo column and schema: the job's, else the catalogue's."""
    data = job.data
    target = data.target or (entry and entry.target)
    column = data.silo_column or (entry and entry.silo_column)
    schema = data.columns or (entry and entry.columns)
    if not target:
        raise DataError("[data] target is missing.", "Name the column that the model shall predict.")
    if not column:
        raise DataError("[data] silo_column is missing.", "Name the column that says which silo holds a row.")
    if not schema:
        raise DataError(
            "[data.schema] is missing, and cosilo estimates nothing from rows.",
            "Add [data.schema.NAME] with low and high, or levels, for the target and every feature.",
        )
    return target, column, schema


def _no_usable_row(name: str, table: pa.Table, encoding: Encoding) -> DataError:
    """Why encoding left out every row of a silo that has some."""
    if not encoding.knows_target(table):
        return DataError(
            f"No cell of the target column {encoding.target!r} in silo {name!r} is one of the levels of "
            f"[data.schema.{toml_key(encoding.target)}].",
            "Write the levels there as the table's cells are written.",
        )
    columns = [repr(column) for column, facts in encoding.columns.items() if facts.missing == "drop"]
    return DataError(
        f'Every row of silo {name!r} has an empty cell in a column with missing = "drop" ({", ".join(columns)}).',
        "Fill those cells, or give such columns another rule for missing cells.",
    )


def _capacities(job: Job, silos: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    """Public capacity of each silo: its own in the job, else the job's common one, else the catalogue's."""
    capacities = {}
    for name in silos:
        own = job.silos[name].capacity if name in job.silos else None
        capacity = own or job.data.capacity or known.get(name)
        if capacity is None:
            raise DataError(
                f"Silo {name!r} has no capacity, the number of rows it may hold at most.",
                f"Set [data] capacity or [silos.{toml_key(name)}] capacity, chosen without looking at the rows.",
            )
        capacities[name] = capacity
    return capacities


def _check_size(job: Job, name: str, size: int, capacity: int) -> None:
    if size > capacity:
        raise DataError(
            f"Silo {name!r} holds more rows than its capacity of {capacity}, on which the guarantee rests.",
            f"{_larger_capacity(job, name)}, or let the silo leave rows out; its count itself is private.",
        )


def _larger_capacity(job: Job, name: str) -> str:
    """How to raise a silo's capacity, where it was set."""
    own = f"[silos.{toml_key(name)}] capacity"
    if name in job.silos and job.silos[name].capacity is not None:
        return f"Raise {own}"
    if job.data.capacity is not None:
        return "Raise [data] capacity"
    # The catalogue's. A job that lists a silo lists them all.
    return f"Add {own}" if job.silos else f"Add {own} and a [silos.NAME] table for every other silo"


def _federated(  # noqa: PLR0913 - parts of one result
    job: Job,
    rows: Mapping[str, Rows],
    counts: Mapping[str, Counts],
    capacities: dict[str, int],
    *,
    encoding: Encoding | None,
    public: bool,
    classes: int,
) -> FederatedRows:
    """Hold rows out, then refuse silos without training rows or above capacity."""
    fraction = _held_out_fraction(job, public=public)
    tell_silos(counts)
    train, test = {}, []
    for name in rows:
        held = held_out_mask(rows[name], silo=name, fraction=fraction, seed=job.job.seed)
        train[name] = rows[name].take(~held)
        test.append(rows[name].take(held))
        if not len(train[name]):  # every silo had rows: `_table_rows` and `_ready_rows` saw to it
            raise DataError(
                f"evaluation.held_out = {fraction:g} leaves silo {name!r} no row to train on.", "Lower held_out."
            )
        _check_size(job, name, len(train[name]), capacities[name])
    if fraction and not any(map(len, test)):
        raise DataError(
            f"evaluation.held_out = {fraction:g} holds no row out of so few.", "Raise it, or set held_out = 0."
        )
    return FederatedRows(
        silos=train,
        test=Rows.concatenate(test) if fraction else None,
        capacities=capacities,
        encoding=encoding,
        classes=classes,
        counts={
            name: replace(counts[name], rows=len(train[name]), held_out=len(held))
            for (name, held) in zip(train, test, strict=True)
        },
    )


def _held_out_fraction(job: Job, *, public: bool) -> float:
    """`public`: the catalogue declares the rows public, whatever the job says."""
    fraction = job.evaluation.held_out
    declared = public or job.evaluation.source == "public"
    if fraction is None:
        return _PUBLIC_HELD_OUT if declared else 0.0
    if fraction > 0 and not declared:
        raise DataError(
            f"evaluation.held_out = {fraction:g} would test on private rows, which costs privacy that this "
            "statement would not contain.",
            'Set evaluation.source = "public" if these rows are public, or held_out = 0.',
        )
    return fraction
