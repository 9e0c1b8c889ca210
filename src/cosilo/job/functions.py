"""Finds the user's own functions, named "module:function" in a job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from cosilo.errors import ConfigError

__all__ = ["find_function", "importable"]


@contextmanager
def importable(folder: str | None) -> Iterator[None]:
    """A context in which modules of the working directory, then of the job's `folder`, can be imported."""
    added = [str(Path.cwd()), *([folder] if folder else [])]
    sys.path[:0] = added
    try:
        yield
    finally:
        for path in added:
            with suppress(ValueError):  # user code may have tidied up already
                sys.path.remove(path)


def find_function(key: str, name: str, folder: str | None) -> Callable[..., Any]:
    """The function that the job's `key` calls "module:function".

    Raises:
        ConfigError: the module cannot be imported or has no such function.
    """
    module, _, attribute = name.partition(":")
    with importable(folder):
        try:
            found = getattr(import_module(module), attribute, None)
        except Exception as error:
            raise ConfigError(
                f"{key}: cannot import module {module!r} ({type(error).__name__}).",
                "It is looked for in the working directory and beside the job file; --debug shows why it fails.",
            ) from error
    if not callable(found):
        state = f"has no {attribute!r}" if found is None else f"has {attribute!r}, which is not a function"
        raise ConfigError(f"{key}: module {module!r} {state}.", f"Define a function {attribute} there.")
    function: Callable[..., Any] = found
    return function
