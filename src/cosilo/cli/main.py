"""Entry point: registers the commands, turns errors into sentences and exit codes."""

from __future__ import annotations

import sys

import typer

from cosilo.cli import account, init, predict, resume, run
from cosilo.cli.console import stderr
from cosilo.errors import CosiloError

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


def main() -> None:
    """Run a command; exit 0 done, 2 usage or configuration, 3 refused, 4 too few silos, 5 interrupted."""
    try:
        app()
    except CosiloError as error:
        if "--debug" in sys.argv:
            raise
        console = stderr()
        console.print(f"[bold red]error[/]: {_plain(error.what)}", soft_wrap=True)
        console.print(f"       {_plain(error.fix)}", soft_wrap=True)
        sys.exit(error.exit_code)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
