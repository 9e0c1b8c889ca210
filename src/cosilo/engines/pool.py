"""Silos work side by side, each on one core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

__all__ = ["one_silo_a_core"]


@contextmanager
def one_silo_a_core() -> Iterator[ThreadPoolExecutor]:
    """A pool of as many threads as this process has cores; torch uses one thread in each.

    Many small operations on one core each beat each operation on all cores: nothing waits for a core that another
    program holds, and a silo's arithmetic does not depend on how many cores there are.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(_cores(), initializer=torch.set_num_threads, initargs=(1,))
    try:
        with pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def _cores() -> int:
    """Cores this process may use; platforms without affinity tell how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
