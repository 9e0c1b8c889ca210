"""`cosilo resume`: go on with an interrupted run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosilo.cli.console import DebugFlag, JsonFlag, QuietFlag, VerboseFlag, listen

__all__ = ["resume"]


def resume(
    run: Annotated[Path, typer.Argument(help="A run's folder, such as runs/flights.")],
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Go on with an interrupted run from its last finished round."""
    del debug  # read by main
    from cosilo import engines
    from cosilo.cli.training import Progress, show

    listen(quiet=quiet, verbose=verbose)
    with Progress(quiet=quiet, verbose=verbose) as progress:
        result = engines.resume(run, on_round=progress)
    show(result, json=json)
