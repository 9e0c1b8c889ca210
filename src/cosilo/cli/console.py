"""What people see: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import logging
import sys
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["DebugFlag", "JsonFlag", "QuietFlag", "VerboseFlag", "listen", "note", "print_json", "stderr", "stdout"]

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]
VerboseFlag = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; it may quote private rows.")]


def stdout() -> Console:
    """For results meant for people; never used together with --json. Lines are wrapped on a terminal only."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


@cache
def stderr() -> Console:
    """For progress, notes and errors: the one console of this process, so that notes appear above a progress bar."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def note(text: str, *, quiet: bool = False) -> None:
    """One line on stderr."""
    if not quiet:
        stderr().print(text, markup=False)


class _Notes(logging.Handler):
    """Shows what the library says as notes: warnings, those meant for a silo marked as private, and facts of a run."""

    def emit(self, record: logging.LogRecord) -> None:
        kind = "private, for the silo" if record.name == "cosilo.silo" else "caution"
        note(record.getMessage() if record.levelno < logging.WARNING else f"{kind}: {record.getMessage()}")


def listen(*, quiet: bool, verbose: bool = False) -> None:
    """Show what the library warns of, with `verbose` also what it chose; with `quiet`, nothing."""
    logger = logging.getLogger("cosilo")
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.handlers = [logging.NullHandler() if quiet else _Notes()]
    logger.propagate = False


def print_json(result: dict[str, Any]) -> None:
    """The one JSON object; infinity and nan are refused, because JSON has no such numbers."""
    sys.stdout.write(json.dumps(result, indent=2, allow_nan=False) + "\n")
