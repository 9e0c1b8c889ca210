"""`cosilo run`: train a job with all its silos in this process."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from cosilo.cli.console import DebugFlag, JsonFlag, QuietFlag, VerboseFlag, listen

__all__ = ["run"]


def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    output: Annotated[
        Path | None, typer.Option(help="Folder that gets the run's folder; like --set output.directory=...")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key of the job file."),
    ] = None,
    seeded_entropy: Annotated[
        int | None,
        typer.Option(help="Simulation only: noise from this seed. The result is not a private release."),
    ] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Train a job; writes runs/<name>/ with the model, its metrics and its privacy statement."""
    del debug  # read by main
    from cosilo import engines
    from cosilo.cli.training import Progress, show
    from cosilo.job import Job

    overrides = [*(set_ or []), *([f"output.directory={dumps(str(output))}"] if output else [])]
    parsed = Job.load(job, tuple(overrides))
    listen(quiet=quiet, verbose=verbose)
    with Progress(quiet=quiet, verbose=verbose) as progress:
        result = engines.run(parsed, on_round=progress, seeded_entropy=seeded_entropy)
    show(result, json=json)
