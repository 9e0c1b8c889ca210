"""Refuses modules for which "the gradient of one row" is not a function of that row and the model alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from cosilo.errors import JobError, ModelError
from cosilo.models.losses import check_outputs

__all__ = ["check_module", "device"]

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)  # noqa: SLF001 - the common parent of all batch norms
_INSTANCE_NORMS = (nn.modules.instancenorm._InstanceNorm,)  # noqa: SLF001 - fine unless they track statistics
_DROPOUTS = (nn.modules.dropout._DropoutNd,)  # noqa: SLF001 - the common parent of all dropouts


def check_module(module: nn.Module, *, features: tuple[int, ...], classes: int) -> None:
    """Raise ModelError, naming the layer and a replacement, when per-example clipping would not bound a row.

    Batch norm (also instance norm that tracks statistics) mixes rows; dropout draws random numbers outside the
    CSPRNG streams; a module without trainable parameters has nothing to learn. The module is tried on random public
    rows of shape `features`: it must return logits for `classes`, the same for a row alone and among others.
    """
    _check_layers(module)
    if not any(p.requires_grad and p.numel() for p in module.parameters()):
        raise ModelError("The model has no trainable parameters.", "Set requires_grad on those that should be trained.")
    if not all(p.isfinite().all() for p in module.parameters()):
        raise ModelError("The model's initial weights are not finite.", "Mend its initialisation.")
    first = next(module.parameters())
    rows = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, size=(3, *features)))
    rows = rows.to(first.device, first.dtype)
    try:
        with torch.no_grad():
            logits, alone = module(rows), module(rows[1:2])
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ModelError(
            f"The model fails on rows of shape {features}: {str(error).splitlines()[0]}.",
            "Make its first layer fit the features.",
        ) from error
    if not torch.is_tensor(logits):
        raise ModelError(f"The model returns {type(logits).__name__}.", "Return one tensor of logits.")
    check_outputs(logits, classes)
    if not torch.allclose(logits[1:2], alone, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ModelError(
            "The model answers a row differently among other rows than alone.",
            "Remove what mixes rows, such as a mean over the batch, or what draws random numbers.",
        )


def device(name: str) -> torch.device:
    """The torch device of that name, if this machine has it."""
    try:
        torch.zeros(1, device=name, dtype=torch.float64)
        return torch.device(name)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise JobError(
            f"local.device = {name!r} is not usable here.", 'Write device = "cpu", or one that torch finds here.'
        ) from error


def _check_layers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        where = f"Layer {name or 'the module itself'!r} ({type(layer).__name__})"
        tracks = isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats
        if tracks or isinstance(layer, _BATCH_NORMS):
            raise ModelError(
                f"{where} mixes the rows of a batch, so one row's influence cannot be clipped.",
                "Replace it with nn.GroupNorm or nn.LayerNorm.",
            )
        if isinstance(layer, _DROPOUTS) and layer.p > 0:
            raise ModelError(
                f"{where} draws random numbers that are not from the private streams.",
                "Remove it or set p=0; the noise regularises already.",
            )
