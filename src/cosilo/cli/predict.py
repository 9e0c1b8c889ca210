"""`cosilo predict`: a run's model on new rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cosilo.cli.console import DebugFlag, JsonFlag, QuietFlag, note, print_json
from cosilo.errors import ConfigError

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(help="A run's folder, such as runs/flights.")],
    rows: Annotated[Path, typer.Argument(help="CSV or Parquet with the columns of the job's schema.")],
    output: Annotated[Path | None, typer.Option(help="CSV to write; without it, stdout.")] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write one line of class probabilities for every row."""
    del debug  # read by main
    if json and output is None:
        raise ConfigError("--json leaves stdout to one JSON object.", "Add --output FILE for the predictions.")
    from cosilo import engines
    from cosilo.data import read_table

    model = engines.load_model(run)
    probabilities = model.predict_proba(read_table(rows))
    header = ",".join(_quoted(f"p({name})") for name in model.classes)
    lines = [header, *(",".join(f"{p:.6g}" for p in row) for row in probabilities)]
    text = "\n".join(lines) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
        note(f"Wrote {len(probabilities)} rows to {output}.", quiet=quiet or json)
    if json:
        print_json({"rows": len(probabilities), "output": str(output)})


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n') else name
