"""Sums of per-example clipped gradients, exact norms, bounded memory.

| a row's gradient | what it adds |
|---|---|
| norm 0 | 0 |
| norm <= clip_to | itself |
| norm > clip_to | itself * clip_to / norm |
| not finite, or its squared norm overflows | 0, and it is counted |

The gradient of a row is taken by `torch.func.vmap` over a function of that row alone, in float64, in micro-batches of
one fixed shape (see `slots`): what a row adds does not depend on another row, not even in its last bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeAlias, cast

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from cosilo.errors import ModelError
from cosilo.models.losses import example_loss
from cosilo.models.vector import to_vector, trainable

__all__ = ["ClippedGradients", "check_per_example"]

_Tensors: TypeAlias = dict[str, torch.Tensor]
_RowGradients: TypeAlias = Callable[[_Tensors, torch.Tensor, torch.Tensor], _Tensors]


class ClippedGradients:
    """A module prepared for `total`; the module itself is never called, only fresh copies of it."""

    def __init__(self, module: nn.Module, *, clip_to: float, micro_batch: int) -> None:
        self._module = module
        self._clip_to = clip_to
        self._micro_batch = micro_batch
        self._shapes = {name: p.shape for name, p in trainable(module).items()}
        self._device = next(iter(trainable(module).values())).device

    def total(
        self, theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor, slots: torch.Tensor
    ) -> tuple[torch.Tensor, int]:
        """Sum of clipped gradients at `theta` (dim,) over the rows x (n, ...), y (n,) that sit in `slots`.

        Args:
            theta: the model, float64.
            x: features of all rows.
            y: class indices of all rows.
            slots: row numbers, shape (whole micro-batches,), negative where a slot is empty.

        Returns:
            The sum, shape (dim,), float64 on the CPU, and the number of rows that counted as zero because their
            gradient was not finite.
        """
        row_gradients = self._row_gradients()
        parameters = self._unflatten(theta.to(self._device, torch.float64))
        total = torch.zeros(theta.shape[0], dtype=torch.float64, device=self._device)
        non_finite = 0
        for place in torch.split(slots, self._micro_batch):
            present = (place >= 0).to(self._device)
            rows, targets = _rows(x, y, place)
            gradients = row_gradients(parameters, _as_float64(rows.to(self._device)), targets.to(self._device))
            flat = [g.reshape(len(g), -1) for g in gradients.values()]
            norms = torch.stack([g.square().sum(dim=1) for g in flat]).sum(dim=0).sqrt()
            finite = norms.isfinite()
            non_finite += int((present & ~finite).sum())
            scale = torch.where(present & finite, (self._clip_to / norms).clamp(max=1.0), 0.0)
            if not finite.all():  # 0 * nan is nan: the rows have to go
                flat = [torch.where(finite[:, None], g, 0.0) for g in flat]
            total += torch.cat([scale @ g for g in flat])
        return total.cpu(), non_finite

    def gradients(self, theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Unclipped gradients of rows x (n, ...), y (n,), shape (n, dim), float64, as one micro-batch."""
        found = self._row_gradients()(self._unflatten(theta.double()), _as_float64(x), y)
        return torch.cat([g.reshape(len(g), -1) for g in found.values()], dim=1)

    def _row_gradients(self) -> _RowGradients:
        # A fresh copy a call: what a module remembers between calls could count rows.
        module = copy.deepcopy(self._module)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        fixed = {name: _as_float64(t.detach()) for name, t in tensors.items() if name not in self._shapes}

        def loss(parameters: _Tensors, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            logits = functional_call(module, {**fixed, **parameters}, (x.unsqueeze(0),))
            return example_loss(logits, y.unsqueeze(0)).squeeze(0)

        return cast("_RowGradients", vmap(grad(loss), in_dims=(None, 0, 0)))

    def _unflatten(self, theta: torch.Tensor) -> _Tensors:
        pieces = torch.split(theta, [shape.numel() for shape in self._shapes.values()])
        return {name: p.reshape(shape) for (name, shape), p in zip(self._shapes.items(), pieces, strict=True)}


def check_per_example(module: nn.Module, features: tuple[int, ...], *, classes: int, micro_batch: int) -> None:
    """Raise ModelError unless a row's gradient is a function of that row and the parameters alone.

    Tried on random public rows in a micro-batch of the size that the run uses, in the module's own device and mode:
    `torch.func.vmap` supports it, the same rows twice give the same bits, and other values in one row change no bit
    of the others' gradients. A module that hides its state well can pass; that forward is pure is an assumption.
    """
    probe = ClippedGradients(module, clip_to=1.0, micro_batch=micro_batch)
    device = next(iter(trainable(module).values())).device
    numbers = np.random.default_rng(0)  # public rows, no part of any release
    x = torch.from_numpy(numbers.uniform(-1, 1, size=(micro_batch, *features))).to(device)
    y = torch.from_numpy(numbers.integers(0, classes, micro_batch)).to(device)
    theta = torch.from_numpy(to_vector(module)).to(device)
    rest = torch.arange(micro_batch, device=device) != micro_batch // 2
    try:
        first, again = (probe.gradients(theta, x, y) for _ in range(2))
        same = _same_bits(first, again)
        for value in (0.0, 1e6):
            other = torch.where(rest.reshape(-1, *[1] * len(features)), x, value)
            same = same and _same_bits(first[rest], probe.gradients(theta, other, y)[rest])
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"Per-example gradients of this model fail: {str(error).splitlines()[0]}.",
            "Use layers that torch.func.vmap supports and no hard-coded float32 tensors.",
        ) from error
    if not same:
        raise ModelError(
            "The gradient of a row depends on chance, on what the model remembers, or on other rows.",
            "Make forward a pure function of one row and the parameters: no random numbers, counters or statistics.",
        )


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(first.view(torch.int64), second.view(torch.int64))  # nan equals nan


def _rows(x: torch.Tensor, y: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of a micro-batch; empty slots hold zeros of class 0."""
    empty = place < 0
    if not len(y):
        return x.new_zeros(len(place), *x.shape[1:]), y.new_zeros(len(place))
    rows, targets = x[place.clamp(min=0)], y[place.clamp(min=0)]
    rows[empty] = 0
    targets[empty] = 0
    return rows, targets


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor
