"""Test metrics on public rows."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from cosilo.data import Rows
from cosilo.models import example_loss, logits_in_batches, probabilities

__all__ = ["evaluate"]


def evaluate(module: nn.Module, rows: Rows) -> dict[str, float | None]:
    """Accuracy, mean cross-entropy, and for two classes (both present) the area under the ROC curve.

    None where logits overflowed: JSON has no infinite numbers.
    """
    losses, scores = [], []
    for batch, logits in logits_in_batches(module, rows.x):
        losses.append(example_loss(logits, torch.from_numpy(rows.y[batch])).double().numpy())
        scores.append(probabilities(logits.double()).numpy())
    score = np.concatenate(scores)
    result: dict[str, float | None] = {
        "accuracy": float((score.argmax(axis=1) == rows.y).mean()),
        "loss": float(np.concatenate(losses).mean()),
    }
    if score.shape[1] == 2 and 0 < rows.y.sum() < len(rows.y):  # noqa: PLR2004 - binary, both classes present
        result["auc"] = _auc(score[:, 1], rows.y)
    return {name: value if value is not None and math.isfinite(value) else None for name, value in result.items()}


def _auc(score: np.ndarray, y: np.ndarray) -> float:
    """Probability that a positive row outscores a negative one, ties counting half (Mann-Whitney U)."""
    from scipy.stats import rankdata

    positives = int(y.sum())
    rank_sum = float(rankdata(score)[y == 1].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * (len(y) - positives))
