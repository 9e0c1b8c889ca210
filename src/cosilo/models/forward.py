"""A trained module on many rows, in batches that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["logits_in_batches"]

_BATCH = 1 << 14


def logits_in_batches(module: nn.Module, x: NDArray[Any]) -> Iterator[tuple[slice, torch.Tensor]]:
    """(rows, logits of these rows on the CPU) for x of shape (n, ...), in order; the module is put into eval mode."""
    device = next(module.parameters()).device
    module.eval()
    for start in range(0, len(x), _BATCH):
        rows = slice(start, start + _BATCH)
        with torch.no_grad():
            logits: torch.Tensor = module(torch.from_numpy(np.asarray(x[rows])).to(device))
        yield rows, logits.cpu()
