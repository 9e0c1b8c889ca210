"""From a job's `[model]` to a torch module, reproducible by the job's seed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from cosilo.errors import JobError, ModelError
from cosilo.job import find_function, importable
from cosilo.job.schema import Model

__all__ = ["build"]

_MOST_WEIGHTS = 10**8  # of the shipped networks: noise drowns far smaller ones


def build(model: Model, *, features: tuple[int, ...], classes: int, seed: int, folder: str | None = None) -> nn.Module:
    """The module with its initial weights.

    Args:
        model: the job's section.
        features: shape of one row, without the batch axis.
        classes: number of target classes; 2 gives a shipped model one logit.
        folder: the job's folder, where a factory's module is looked for.
        seed: the job's seed; the same seed gives the same weights. Torch's global generator is left as it was.

    Raises:
        ModelError: unknown options, a factory that fails or returns something else than a module.
    """
    if model.name is None and model.factory is None:
        raise JobError(
            "[model] has neither name nor factory.", 'Write name = "logistic" or factory = "module:function".'
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if model.factory is not None:
            return _from_factory(model, features, classes, folder)
        maker, allowed = _SHIPPED[str(model.name)]
        unknown = sorted(set(model.options) - allowed)
        if unknown:
            known = ", ".join(sorted(allowed)) or "none"
            raise ModelError(f"Model {model.name!r} has no option {unknown[0]!r}.", f"Its options: {known}.")
        if model.name == "logistic" and classes != 2:  # noqa: PLR2004 - binary
            raise ModelError(f"A logistic model needs 2 classes, the target has {classes}.", 'Use name = "softmax".')
        return maker(math.prod(features), classes, model.options)


def _linear(features: int, classes: int, _: dict[str, Any]) -> nn.Module:
    """One linear layer from zero: the loss is convex, and zero is a public start."""
    layer = nn.Linear(features, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def _logistic(features: int, _: int, options: dict[str, Any]) -> nn.Module:
    return _linear(features, 1, options)


def _mlp(features: int, classes: int, options: dict[str, Any]) -> nn.Module:
    """Tanh layers: bounded activations suit clipped gradients (Papernot et al. 2021)."""
    hidden = options.get("hidden", [32])
    if not (isinstance(hidden, list) and hidden and all(type(h) is int and h > 0 for h in hidden)):
        raise ModelError(f"model.options.hidden = {hidden!r} is not a list of widths.", "Write hidden = [64, 32].")
    widths = [features, *hidden]
    if sum(before * after for before, after in pairwise([*widths, classes])) > _MOST_WEIGHTS:
        raise ModelError(f"model.options.hidden = {hidden!r} makes more than 1e8 weights.", "Write smaller widths.")
    layers: list[nn.Module] = [nn.Flatten()]
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1 if classes == 2 else classes))  # noqa: PLR2004 - binary


_SHIPPED: dict[str, tuple[Callable[[int, int, dict[str, Any]], nn.Module], set[str]]] = {
    "logistic": (_logistic, set()),
    "softmax": (_linear, set()),
    "mlp": (_mlp, {"hidden"}),
}


def _from_factory(model: Model, features: tuple[int, ...], classes: int, folder: str | None) -> nn.Module:
    """Call the user's factory with its options, and with features and classes where it takes them."""
    key = f"model.factory = {model.factory!r}"
    function = find_function(key, str(model.factory), folder)
    facts = {"features": features, "classes": classes}
    with suppress(TypeError, ValueError):  # some built-in callables have no signature
        taken = inspect.signature(function).parameters
        facts = {name: value for name, value in facts.items() if name in taken and name not in model.options}
    try:
        with importable(folder):
            module = function(**facts, **model.options)
    except Exception as error:
        raise ModelError(
            f"{key} failed with {type(error).__name__}: {error}.",
            f"It gets [model.options], and features = {features} and classes = {classes} if it takes them.",
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"{key} returned {type(module).__name__}.", "Return a torch.nn.Module.")
    return module
