"""The delivered model: a torch module with its input schema, saved as one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from cosilo import models
from cosilo.data import Encoding
from cosilo.errors import ConfigError, DataError, ModelError
from cosilo.job import Job
from cosilo.job.schema import Model

__all__ = ["TrainedModel", "load_model", "model_bytes"]

_FILE = "model.safetensors"
_EXTRA_STATE = "_extra_state"  # torch's name for what a module adds to its state by itself


class TrainedModel(nn.Module):
    """A trained module and what its inputs mean; `forward` is the module's own, returning logits.

    Attributes:
        module: the torch module.
        encoding: how columns become features; None for models trained on ready arrays.
        feature_shape: shape of one row.
        classes: class names where the encoding has them, otherwise "0", "1", ...
        privacy: the statement under which the model was trained.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        encoding: Encoding | None,
        feature_shape: tuple[int, ...],
        classes: tuple[str, ...],
        privacy: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.module = module
        self.encoding = encoding
        self.feature_shape = feature_shape
        self.classes = classes
        self.privacy = dict(privacy)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of features x (rows, ...)."""
        logits: torch.Tensor = self.module(x)
        return logits

    def predict_proba(self, frame: Any) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:  # noqa: ANN401 - many kinds of table
        """Class probabilities, shape (rows, classes), in the order of `classes`.

        Args:
            frame: a pandas or pyarrow table, or a mapping of columns, with the schema's columns (others are
                ignored); or an array of ready features of shape (rows, *feature_shape).

        Raises:
            DataError: missing columns, cells that do not parse, a wrong shape.
        """
        batches = models.logits_in_batches(self, self._features(frame))
        parts = [models.probabilities(logits.double()).numpy() for _, logits in batches]
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)))

    def _features(self, frame: Any) -> NDArray[np.float32]:  # noqa: ANN401 - many kinds of table
        if isinstance(frame, np.ndarray) or torch.is_tensor(frame):
            x: NDArray[np.float32] = np.asarray(frame, dtype=np.float32)
            if x.shape[1:] != self.feature_shape:
                raise DataError(
                    f"Rows of shape {x.shape[1:]} do not fit a model for {self.feature_shape}.",
                    "Encode them alike.",
                )
            return x
        if self.encoding is None:
            raise DataError("This model was trained on ready arrays and has no schema.", "Give an array of features.")
        encoded = self.encoding.encode(_table(frame))
        if not encoded.kept.all():
            raise DataError(
                f"{int((~encoded.kept).sum())} rows have an empty cell that the schema drops.",
                "Leave these rows out, or fill the cells.",
            )
        return encoded.x


def _table(frame: Any) -> pa.Table:  # noqa: ANN401 - many kinds of table
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, Mapping):
        return pa.table({name: pa.array(list(values)) for name, values in frame.items()})
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (AttributeError, TypeError, pa.ArrowException) as error:
        raise DataError(
            f"Cannot read rows from {type(frame).__name__}.", "Give a pandas or pyarrow table, or an array."
        ) from error


def model_bytes(model: TrainedModel, spec: Model) -> bytes:
    """A model.safetensors file: the state dict, and in its metadata schema, recipe and statement."""
    # Parameters and buffers only: whatever else a module calls its state could have seen rows.
    tensors = {
        name: t.detach().cpu().contiguous().clone()
        for name, t in model.module.state_dict().items()
        if not name.endswith(_EXTRA_STATE)
    }
    facts = {
        "model": spec.model_dump(mode="json"),
        "feature_shape": list(model.feature_shape),
        "classes": list(model.classes),
        "encoding": model.encoding.to_json() if model.encoding else None,
        "privacy": model.privacy,
    }
    return save(tensors, metadata={"cosilo": json.dumps(facts, allow_nan=False)})


def load_model(path: str | Path, *, model: nn.Module | None = None) -> TrainedModel:
    """The trained model of a run folder or of a model.safetensors file.

    Args:
        path: a run folder, or the file in it.
        model: a module of the same architecture, needed where the run was given a module in memory.
    """
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"There is no run or model {str(path)!r}.", "Name a folder such as runs/flights.")
    path = path / _FILE if path.is_dir() else path
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()["cosilo"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise ConfigError(f"{str(path.parent)!r} has no {_FILE}.", "Finish the run with: cosilo resume") from None
    except (OSError, SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ConfigError(
            f"{str(path)!r} is damaged or not a model saved by cosilo.", "Name another run, or train again."
        ) from error
    module = model if model is not None else _rebuilt(facts, path.parent)
    try:
        missing, unexpected = module.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ModelError("The saved model's parameters have other shapes.", "Use the same architecture.") from error
    if unexpected or any(not name.endswith(_EXTRA_STATE) for name in missing):
        raise ModelError("The module does not have the saved model's parameters.", "Use the same architecture.")
    return TrainedModel(
        module,
        encoding=Encoding.from_json(facts["encoding"]) if facts["encoding"] else None,
        feature_shape=tuple(facts["feature_shape"]),
        classes=tuple(facts["classes"]),
        privacy=facts["privacy"],
    )


def _rebuilt(facts: Mapping[str, Any], run: Path) -> nn.Module:
    spec = Model.model_validate(facts["model"])
    if spec.name is None and spec.factory is None:
        raise ModelError(
            "The model was trained from a module in memory and cannot be rebuilt from the file alone.",
            "Call cosilo.load_model(path, model=your_module).",
        )
    job = run / "job.toml"  # a factory's module is looked for in the job's folder
    return models.build(
        spec,
        features=tuple(facts["feature_shape"]),
        classes=len(facts["classes"]),
        seed=0,
        folder=Job.load(job).job.folder if job.exists() else None,
    )
