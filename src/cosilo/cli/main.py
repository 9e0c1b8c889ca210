"""Entry point: registers the commands, turns errors into sentences and exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cosilo.cli import account, init, predict, resume, run
from cosilo.cli.console import print_json, stderr
from cosilo.errors import ConfigError, CosiloError, InterruptedRunError

__all__ = ["app", "main"]

app = typer.Typer(
    name="cosilo",
    help="Silos train one model together; every row carries a differential privacy guarantee that holds.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(init.init)
app.command("run")(run.run)
app.command("resume")(resume.resume)
app.command("predict")(predict.predict)
app.add_typer(account.app, name="account")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cosilo {version('cosilo')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; exit 0 done, 2 usage or configuration, 3 refused, 4 too few silos, 5 interrupted."""
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        known = _known(error)
        _tell(known)
        sys.exit(known.exit_code)


def _known(error: Exception) -> CosiloError:
    if isinstance(error, CosiloError):
        return error
    if isinstance(error, OSError):
        where = f" {str(error.filename)!r}" if error.filename else ""
        return ConfigError(f"{error.strerror or type(error).__name__}:{where}.", "Check path, space and permissions.")
    return CosiloError(
        f"An unexpected {type(error).__name__} stopped cosilo; nothing more was released.",
        "Run it again with --debug, and report what that shows.",
    )


def _tell(error: CosiloError) -> None:
    from rich.markup import escape

    console = stderr()
    mark = "[bold yellow]stopped[/]" if isinstance(error, InterruptedRunError) else "[bold red]error[/]"
    console.print(f"{mark}: {escape(error.what)}")
    console.print(f"       {escape(error.fix)}")
    if "--json" in sys.argv:
        print_json({"error": {"what": error.what, "fix": error.fix, "exit_code": error.exit_code}})
