"""A module's trainable parameters as one flat float64 vector, in `named_parameters` order."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

__all__ = ["from_vector", "to_vector", "trainable"]


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training moves; frozen ones (requires_grad false) stay as released."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def to_vector(module: nn.Module) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """All trainable parameters, shape (dim,), float64."""
    flat = [p.detach().reshape(-1).to("cpu", torch.float64) for p in trainable(module).values()]
    return np.asarray(torch.cat(flat).numpy())


def from_vector(module: nn.Module, vector: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    """Write a flat vector of shape (dim,) back into the module, in its own types."""
    source = torch.from_numpy(vector)
    offset = 0
    with torch.no_grad():
        for parameter in trainable(module).values():
            piece = source[offset : offset + parameter.numel()]
            parameter.copy_(piece.reshape(parameter.shape))
            offset += parameter.numel()
