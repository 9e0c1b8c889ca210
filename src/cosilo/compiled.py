"""Compile a numeric loop to machine code, once per machine.

Import modules that use this inside functions: numba takes a third of a second to import. The code is cached on disk,
beside the source or in the user's cache folder; where neither can be written (a read-only container without a home)
every process compiles anew, a few seconds, and NUMBA_CACHE_DIR mends that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

__all__ = ["compiled"]

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` compiled by numba, without the interpreter's lock, with its own type."""
    try:
        made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to cache in
        made = numba.njit(nogil=True, error_model="numpy")(function)
    return cast("Callable[P, R]", made)
