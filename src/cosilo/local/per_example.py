"""Sums of per-example clipped gradients, exact norms, bounded memory.

| a row's gradient | what it adds |
|---|---|
| norm 0 | 0 |
| norm <= clip_to | itself |
| norm > clip_to | itself * clip_to / norm |
| not finite, or its squared norm overflows | 0, and it is counted |

The gradient of a row is taken by `torch.func.vmap` over a function of that row alone, in float64: what a row adds
cannot depend on another row except through roundoff, which `clip_to` of the rule accounts for.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from cosilo.errors import ModelError
from cosilo.models.losses import example_loss
from cosilo.models.vector import trainable

__all__ = ["ClippedGradients", "check_per_example"]

_Tensors = dict[str, torch.Tensor]


class ClippedGradients:
    """A module prepared for `total`; the given module is copied in spirit only: its tensors are not changed."""

    def __init__(self, module: nn.Module, *, clip_to: float, micro_batch: int) -> None:
        self._module = module
        self._clip_to = clip_to
        self._micro_batch = micro_batch
        self._shapes = {name: p.shape for name, p in trainable(module).items()}
        self._device = next(iter(trainable(module).values())).device
        rest = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self._fixed = {name: _as_float64(t.detach()) for name, t in rest.items() if name not in self._shapes}
        self._row_gradients = vmap(grad(self._loss), in_dims=(None, 0, 0))

    def _loss(self, parameters: _Tensors, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = functional_call(self._module, {**self._fixed, **parameters}, (x.unsqueeze(0),))
        return example_loss(logits, y.unsqueeze(0)).squeeze(0)

    def total(self, theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Sum of clipped gradients at `theta` (dim,) over rows x (n, ...), y (n,).

        Returns the sum, shape (dim,), float64 on the CPU, and the number of rows that counted as zero because
        their gradient was not finite.
        """
        parameters = self._unflatten(theta.to(self._device, torch.float64))
        total = torch.zeros(theta.shape[0], dtype=torch.float64, device=self._device)
        non_finite = 0
        for start in range(0, len(y), self._micro_batch):
            stop = start + self._micro_batch
            rows = _as_float64(x[start:stop].to(self._device))
            gradients = cast("_Tensors", self._row_gradients(parameters, rows, y[start:stop].to(self._device)))
            flat = [g.reshape(len(g), -1) for g in gradients.values()]
            norms = torch.stack([g.square().sum(dim=1) for g in flat]).sum(dim=0).sqrt()
            finite = norms.isfinite()
            non_finite += int((~finite).sum())
            scale = torch.where(finite, (self._clip_to / norms).clamp(max=1.0), 0.0)
            if non_finite:  # 0 * nan is nan: the rows themselves have to go
                flat = [torch.where(finite[:, None], g, 0.0) for g in flat]
            total += torch.cat([scale @ g for g in flat])
        return total.cpu(), non_finite

    def _unflatten(self, theta: torch.Tensor) -> _Tensors:
        pieces = torch.split(theta, [shape.numel() for shape in self._shapes.values()])
        return {name: p.reshape(shape) for (name, shape), p in zip(self._shapes.items(), pieces, strict=True)}


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def check_per_example(module: nn.Module, features: tuple[int, ...]) -> None:
    """Raise ModelError unless the gradient of one row of zeros can be taken by `torch.func.vmap` in float64."""
    gradients = ClippedGradients(module, clip_to=1.0, micro_batch=1)
    try:
        gradients.total(
            torch.cat([p.detach().reshape(-1) for p in trainable(module).values()]),
            torch.zeros(1, *features),
            torch.zeros(1, dtype=torch.int64),
        )
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        raise ModelError(
            f"Per-example gradients of this model fail: {str(error).splitlines()[0]}.",
            "Use layers that torch.func.vmap supports and no hard-coded float32 tensors.",
        ) from error
