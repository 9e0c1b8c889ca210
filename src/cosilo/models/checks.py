"""Refuses modules for which "the gradient of one row" is not a function of that row and the model alone."""

from __future__ import annotations

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
    CSPRNG streams; a module without trainable parameters has nothing to learn. The module is tried on two rows of
    zeros of shape `features` and must return logits for `classes`.
    """
    _check_layers(module)
    if not any(p.requires_grad and p.numel() for p in module.parameters()):
        raise ModelError("The model has no trainable parameters.", "Set requires_grad on those that should be trained.")
    try:
        with torch.no_grad():
            logits = module(torch.zeros(2, *features, device=next(module.parameters()).device))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"The model fails on rows of shape {features}: {str(error).splitlines()[0]}.",
            "Make its first layer fit the features.",
        ) from error
    if not torch.is_tensor(logits):
        raise ModelError(f"The model returns {type(logits).__name__}.", "Return one tensor of logits.")
    check_outputs(logits, classes)


def device(name: str) -> torch.device:
    """The torch device of that name, if this machine has it."""
    try:
        torch.zeros(1, device=name, dtype=torch.float64)
        return torch.device(name)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise JobError(f"local.device = {name!r} is not usable here.", 'Write device = "cpu" or "cuda".') from error


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
