"""`Job`: the TOML file, parsed once into one frozen object."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import Field, ValidationError, model_validator

from cosilo.errors import JobError
from cosilo.job.explain import explain
from cosilo.job.schema import (
    Aggregation,
    Data,
    Evaluation,
    Federation,
    JobInfo,
    Local,
    Model,
    Output,
    Privacy,
    Section,
    Silo,
)

__all__ = ["Job"]


class Job(Section):
    """A whole job. Build it with `Job.load(path)` or `Job.parse(mapping)`; both raise JobError."""

    job: JobInfo = JobInfo()
    data: Data = Data()
    silos: dict[str, Silo] = Field(default_factory=dict)
    model: Model = Model()
    federation: Federation = Federation()
    local: Local = Local()
    privacy: Privacy
    aggregation: Aggregation = Aggregation()
    evaluation: Evaluation = Evaluation()
    output: Output = Output()

    @model_validator(mode="after")
    def _guarantee_fits_the_rule(self) -> Self:
        if self.privacy.guarantee == "joint-steps" and self.local.rule != "noisy-steps":
            raise ValueError(
                f'privacy.guarantee = "joint-steps" is about local steps and {self.local.rule} has none; remove it'
            )
        return self

    @classmethod
    def load(cls, path: str | Path, overrides: tuple[str, ...] = ()) -> Job:
        """Read a TOML file; `overrides` are "section.key=value" with a TOML value (or a bare word as text).

        A relative `data.dataset` path and the modules of loader and factory are looked for in the job file's folder,
        `output.directory` in the working directory.
        """
        path = Path(path)
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise JobError(f"Cannot read the job file {str(path)!r}: {error.strerror}.", "Check the path.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise JobError(f"{str(path)!r} is not valid TOML: {error}.", "Mend that line.") from error
        for override in overrides:
            _override(tree, override)
        return cls.parse(tree, folder=path.parent)

    @classmethod
    def parse(cls, tree: dict[str, Any], *, folder: Path | None = None) -> Job:
        """Check a nested mapping as read from TOML; `folder` anchors a relative data file."""
        try:
            job = cls.model_validate(tree)
        except ValidationError as error:
            raise JobError(*explain(error, cls)) from None
        return _anchored(job, folder or Path.cwd())

    def to_tree(self) -> dict[str, Any]:
        """The nested mapping that `parse` reads back to an equal job; unset keys are left out."""
        tree = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        for column in tree["data"].get("schema", {}).values():
            for key in [key for key, value in column.items() if value == []]:
                del column[key]
        return tree

    def to_toml(self) -> str:
        """The resolved job as a TOML document."""
        return tomli_w.dumps(self.to_tree())

    @property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON of the whole job but for its folder, hex."""
        tree = self.to_tree()
        tree["job"].pop("folder", None)  # the same job on another machine is the same job
        canonical = json.dumps(tree, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def _override(tree: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    path = key.strip().split(".")
    if not equals or len(path) < 2 or not all(path):  # noqa: PLR2004 - a section and a key
        raise JobError(f"--set {text!r} is not of the form section.key=value.", "Write --set federation.rounds=10.")
    table = tree
    for name in path[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise JobError(f"--set {text!r} goes through {name!r}, which is not a table.", "Name a section first.")
    try:
        table[path[-1]] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[path[-1]] = value.strip()


def _anchored(job: Job, folder: Path) -> Job:
    """The job with its folder, and a relative data file taken from there; catalogue names have no suffix and stay."""
    home = Path(job.job.folder or folder).resolve()
    changes: dict[str, Any] = {"job": job.job.model_copy(update={"folder": str(home)})}
    dataset = job.data.dataset
    if dataset is not None and Path(dataset).suffix:
        changes["data"] = job.data.model_copy(update={"dataset": str(home / dataset)})
    return job.model_copy(update=changes)
