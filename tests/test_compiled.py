"""Compiled loops: fast where a cache can be written, and still right where it cannot."""

from __future__ import annotations

from typing import Any

import numba
import pytest

from cosilo.compiled import compiled


def double(x: int) -> int:
    return 2 * x


def test_a_read_only_machine_compiles_without_a_cache(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[str, Any]] = []

    def njit(**options: Any) -> Any:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled(double)(21) == 42
    assert [bool(options.get("cache")) for options in asked] == [True, False]
    assert all(options["nogil"] for options in asked)
