"""`cosilo init`: a commented job file to start from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cosilo.cli.console import DebugFlag, JsonFlag, QuietFlag, VerboseFlag, note, print_json
from cosilo.errors import ConfigError

__all__ = ["init"]


class Template(StrEnum):
    """What the job starts from."""

    TABULAR = "tabular"
    LOADER = "loader"


# template -> the files it writes: name in the new folder, name among the templates
_FILES = {
    Template.TABULAR: {"job.toml": "tabular.toml"},
    Template.LOADER: {"job.toml": "loader.toml", "rows.py": "rows.py.txt"},
}


def init(
    directory: Annotated[Path, typer.Argument(help="Folder to write to.")] = Path(),
    template: Annotated[
        Template,
        typer.Option(help="tabular: the flights job, with how to use your own CSV. loader: your own code."),
    ] = Template.TABULAR,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Write a commented job.toml."""
    del debug  # read by main
    sources = Path(__file__).parent / "templates"
    targets = {directory / name: sources / source for name, source in _FILES[template].items()}
    for target in targets:
        if target.exists():
            raise ConfigError(f"{target} exists already.", "Choose another folder, or move the file away.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigError(
            f"{directory} is a file, not a folder.", "Name a folder; job.toml is written into it."
        ) from None
    for target, source in targets.items():
        target.write_bytes(source.read_bytes())
        note(f"{target}: {len(target.read_text().splitlines())} lines", quiet=quiet or not verbose)
    where = "" if directory == Path() else f"cd {directory} && "
    written = [str(target) for target in targets]
    if json:
        print_json({"written": written})
    else:
        note(f"Wrote {' and '.join(written)}. Next: {where}cosilo run job.toml", quiet=quiet)
