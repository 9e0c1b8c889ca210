"""A run's folder: what is in it, written so that a crash leaves either the old file or the new one.

| file | what | may be published |
|---|---|---|
| job.toml | the resolved job | yes |
| plan.json | the plan the run follows | yes |
| metrics.jsonl | one line a round | yes |
| privacy.json | the statement; absent while the run works | yes |
| model.safetensors | the delivered model with its input schema | yes |
| checkpoint.safetensors | model, server optimizer, replies of each silo: enough to resume | yes |
| silos.json | each silo's private log (in a simulation they lie together) | never |
| .lock | held while a process works on the run | empty |
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from cosilo.errors import ConfigError
from cosilo.job import Job
from cosilo.planning import Plan

__all__ = ["RunFolder"]

_LOG = logging.getLogger("cosilo")
_CHECKPOINT = "checkpoint.safetensors"


class RunFolder:
    """Reads and writes one run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, job: Job, plan: Plan) -> RunFolder:
        """directory/name, or the first free of name-2, name-3, ..., with the job and the plan in it."""
        parent = Path(job.output.directory)
        number = 1
        while True:
            path = parent / (job.job.name if number == 1 else f"{job.job.name}-{number}")
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
            except OSError as error:
                raise ConfigError(
                    f"Cannot create the run folder {str(path)!r}: {error.strerror}.",
                    "Choose another output.directory.",
                ) from error
        if number > 1:
            _LOG.warning("Earlier runs of %s are in %s: on the same rows, their epsilons add.", job.job.name, parent)
        folder = cls(path)
        folder.write_text("job.toml", job.to_toml())
        folder.write_json("plan.json", plan.to_tree())
        return folder

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run."""
        folder = cls(Path(path))
        if not (folder.path / _CHECKPOINT).is_file():
            raise ConfigError(
                f"{str(path)!r} is not the folder of a cosilo run.", "Name a folder such as runs/flights."
            )
        return folder

    @property
    def job(self) -> Job:
        """The resolved job."""
        return Job.load(self.path / "job.toml")

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        try:
            return Plan.from_tree(self.read_json("plan.json"))
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"The plan in {str(self.path)!r} is damaged or of another version of cosilo.", "Start a new run."
            ) from error

    def read_json(self, name: str) -> dict[str, Any]:
        """A JSON object of this folder; {} where the file is absent."""
        path = self.path / name
        try:
            tree: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"Cannot read {str(path)!r}.", "Start a new run.") from error
        return tree

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time: two that drive the same run would both spend its budget."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigError(
                    f"Another process is working on the run {str(self.path)!r}.", "Wait for it, or stop it."
                ) from error
            yield

    def write_text(self, name: str, text: str) -> None:
        """Replace a file as a whole."""
        self.write_bytes(name, text.encode())

    def write_json(self, name: str, tree: Mapping[str, Any]) -> None:
        """Replace a JSON file as a whole; infinite and nan numbers are refused."""
        self.write_text(name, json.dumps(tree, indent=2, allow_nan=False) + "\n")

    def write_checkpoint(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Arrays and JSON facts in one atomic file: the moment a round counts as released."""
        self.write_bytes(_CHECKPOINT, save(dict(arrays), metadata={"facts": json.dumps(facts)}))

    def read_checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What the last `write_checkpoint` wrote."""
        path = self.path / _CHECKPOINT
        try:
            with safe_open(path, framework="numpy") as file:
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
                return arrays, json.loads(file.metadata()["facts"])
        except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
            # An older copy would run rounds again that are paid for already.
            raise ConfigError(
                f"The checkpoint {str(path)!r} is damaged.", "Start a new run, which needs a budget of its own."
            ) from error

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """One more line of metrics.jsonl."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        try:
            return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        except ValueError as error:
            raise ConfigError(f"{str(path)!r} is damaged.", "Delete it: the run can be resumed without it.") from error

    def write_bytes(self, name: str, data: bytes) -> None:
        """Replace a file as a whole, on the disk before this returns."""
        target, temporary = self.path / name, self.path / f".{name}.part"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        directory = os.open(self.path, os.O_RDONLY)  # the new name is durable only with its folder
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)
