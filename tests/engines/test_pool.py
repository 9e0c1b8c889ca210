"""Silos work side by side on one core each, and torch is left as it was."""

from __future__ import annotations

import torch

from cosilo.engines.pool import one_silo_a_core


def test_every_silo_computes_on_one_thread_and_the_setting_returns():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_silo_a_core() as pool:
            assert set(pool.map(lambda _: torch.get_num_threads(), range(8))) == {1}
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
