"""Losses and probabilities of classifiers: one logit (two classes) or one logit a class."""

from __future__ import annotations

import torch
from torch.nn import functional

from cosilo.errors import ModelError

__all__ = ["check_outputs", "example_loss", "probabilities"]


def check_outputs(logits: torch.Tensor, classes: int) -> None:
    """Raise unless logits have shape (rows, classes), or (rows, 1) for two classes."""
    shape = tuple(logits.shape)
    if logits.dim() == 2 and (shape[1] == classes or (shape[1] == 1 and classes == 2)):  # noqa: PLR2004 - (rows, outputs)
        return
    raise ModelError(
        f"The model returns shape {('rows', *shape[1:])} for {classes} classes.",
        "Return raw logits of shape (rows, classes), or (rows, 1) for two classes.",
    )


def example_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each row: logits (rows, k), target (rows,) of class indices -> (rows,)."""
    if logits.shape[1] == 1:
        signs = 2.0 * target.to(logits.dtype) - 1.0
        return functional.softplus(-signs * logits[:, 0])
    return functional.cross_entropy(logits, target, reduction="none")


def probabilities(logits: torch.Tensor) -> torch.Tensor:
    """Class probabilities of shape (rows, classes)."""
    if logits.shape[1] == 1:
        positive = torch.sigmoid(logits[:, 0])
        return torch.stack([1 - positive, positive], dim=1)
    return torch.softmax(logits, dim=1)
