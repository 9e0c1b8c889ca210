"""`cosilo predict`: a run's model on new rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosilo.cli.console import DebugFlag, JsonFlag, QuietFlag, VerboseFlag, note, print_json
from cosilo.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(help="A run's folder, such as runs/flights.")],
    rows: Annotated[Path, typer.Argument(help="CSV or Parquet with the columns of the job's schema.")],
    output: Annotated[Path | None, typer.Option(help="CSV to write; without it, stdout.")] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write one line of class probabilities for every row."""
    del debug  # read by main
    _check_output(rows, output, json=json)
    from cosilo import engines
    from cosilo.data import read_table

    model = engines.load_model(run)
    if model.encoding is None:
        raise DataError(
            "This model was trained on ready arrays and has no columns.",
            "From Python: cosilo.load_model(run).predict_proba(x).",
        )
    done = model.privacy["rounds"]
    if done["done"] < done["planned"]:
        note(f"caution: this model has {done['done']} of {done['planned']} rounds.", quiet=quiet)
    note(f"columns: {', '.join(model.encoding.columns)}", quiet=quiet or not verbose)
    table = _csv(model.classes, model.predict_proba(read_table(rows)))
    if output is None:
        sys.stdout.write(table)
        return
    output.write_text(table, encoding="utf-8")
    count = table.count("\n") - 1
    note(f"Wrote {count} rows to {output}.", quiet=quiet or json)
    if json:
        print_json({"rows": count, "output": str(output)})


def _check_output(rows: Path, output: Path | None, *, json: bool) -> None:
    """Before any work: somewhere to write to, and not the table that is read."""
    if output is None:
        if json:
            raise ConfigError("--json leaves stdout to one JSON object.", "Add --output FILE for the predictions.")
        return
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {str(output.parent)!r}.", "Make it, or choose another --output.")
    if output.exists() and rows.exists() and output.samefile(rows):
        raise ConfigError(f"--output {output} is the table that is read.", "Choose another file.")


def _csv(classes: tuple[str, ...], probabilities: np.ndarray) -> str:
    header = ",".join(_quoted(f"p({name})") for name in classes)
    lines = (",".join(f"{p:.6g}" for p in row) for row in probabilities)
    return "\n".join([header, *lines]) + "\n"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n') else name
