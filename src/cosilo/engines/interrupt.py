"""Ctrl-C and SIGTERM finish the round in progress; a second one discards it once the silos at work return."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupt"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """A context in which the first signal only sets `requested`, so that a round ends as a whole.

    A second one raises KeyboardInterrupt, but never inside `shielded`: what is written there is written as a whole.
    Outside the main thread signals cannot be caught, and nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._shielded = False
        self._before: dict[signal.Signals, Any] = {}

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested and not self._shielded:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """No signal interrupts what happens inside."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
