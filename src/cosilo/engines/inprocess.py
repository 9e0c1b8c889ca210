"""The in-process engine: every silo simulated here, with the real messages between them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from cosilo import data, models
from cosilo.data import FederatedRows
from cosilo.engines.folder import RunFolder
from cosilo.engines.result import OnRound, Run
from cosilo.engines.session import Session
from cosilo.errors import ConfigError
from cosilo.job import Job
from cosilo.planning import Facts, make_plan

__all__ = ["resume", "run"]


def run(
    job: Job,
    *,
    silos: Mapping[str, Any] | None = None,
    model: nn.Module | None = None,
    on_round: OnRound = None,
    seeded_entropy: int | None = None,
) -> Run:
    """Train a job with all its silos in this process.

    Nothing is written before job, rows, model and plan have passed every check.

    Args:
        job: what to do.
        silos: rows in memory, name -> (x, y) or a torch Dataset; without it the job's [data] is read.
        model: a torch module with its initial weights; without it the job's [model] is built from the seed.
        on_round: called after every round.
        seeded_entropy: derive noise and batches from this number: reproducible simulation, not a private
            release; the statement says so.

    Returns:
        The finished run; everything in it is also in its folder.

    Raises:
        ConfigError: job, data, model or plan (exit 2).
        RefusedError: a silo has no reply left (3).
        TooFewSilosError: too few silos delivered (4).
        InterruptedRunError: stopped by a signal; `resume` goes on (5).
    """
    _check_arguments(job, model, on_round)
    rows, module = _inputs(job, silos, model)
    plan = make_plan(job, Facts(capacities=rows.capacities, dim=models.to_vector(module).size))
    run_id = secrets.token_bytes(32) if seeded_entropy is None else _seeded_run_id(seeded_entropy)
    session = Session.build(job, plan, rows, module, run_id=run_id, seed=seeded_entropy)
    folder = RunFolder.create(job, plan)
    with folder.lock():
        return session.start(folder, on_round)


def _check_arguments(job: Job, model: object, on_round: object) -> None:
    """What a type checker would say, before anything is read or spent."""
    if not isinstance(job, Job):
        raise ConfigError(f"job is a {type(job).__name__}.", "Give cosilo.Job.load(path).")
    if model is not None and not isinstance(model, nn.Module):
        raise ConfigError("model is not a torch module.", "Give an instance, such as torch.nn.Linear(4, 1).")
    if on_round is not None and not callable(on_round):
        raise ConfigError(f"on_round is a {type(on_round).__name__}.", "Give a function of one argument.")


def resume(
    path: str | Path,
    *,
    silos: Mapping[str, Any] | None = None,
    model: nn.Module | None = None,
    on_round: OnRound = None,
) -> Run:
    """Go on with an interrupted run from its last finished round; a finished run is returned as it is.

    Args:
        path: the run's folder.
        silos: the same rows as given to `run`, where they were given in memory.
        model: a module of the same architecture, where it was given in memory.
        on_round: called after every round.
    """
    folder = RunFolder.open(path)
    job = folder.job
    if silos is None and job.data.dataset is None and job.data.loader is None:
        raise ConfigError(
            "This run was given its rows in memory.", "Call cosilo.resume(path, silos=..., model=...) from Python."
        )
    _check_arguments(job, model, on_round)
    with folder.lock():
        arrays, facts = folder.read_checkpoint()
        plan = folder.plan
        if (job.hash, plan.hash) != (facts["job_hash"], facts["plan_hash"]):
            raise ConfigError(
                "job.toml or plan.json of this run was changed after it began, so its promise is void.",
                "Put the file back, or start a new run.",
            )
        rows, module = _inputs(job, silos, model)
        planned = {name: part.capacity for name, part in plan.silos.items()}
        if rows.capacities != planned or models.to_vector(module).size != plan.dim:
            raise ConfigError(
                "Silos, capacities or model differ from those of the run's plan.", "Resume with the same job and data."
            )
        run_id, seed = bytes.fromhex(facts["run"]), facts["seeded_entropy"]
        session = Session.build(job, plan, rows, module, run_id=run_id, seed=seed)
        return session.go_on(folder, arrays, facts, on_round)


def _inputs(job: Job, silos: Mapping[str, Any] | None, given: nn.Module | None) -> tuple[FederatedRows, nn.Module]:
    """Rows and module of a job, from memory or as the job says, checked."""
    rows = data.load(job) if silos is None else data.from_arrays(job, silos)
    if given is not None and (job.model.name or job.model.factory):
        raise ConfigError(
            "The job's [model] names a model and another was given in memory.",
            "Keep one: remove model= or the keys.",
        )
    module = (
        given
        if given is not None
        else models.build(
            job.model, features=rows.feature_shape, classes=rows.classes, seed=job.job.seed, folder=job.job.folder
        )
    )
    module = module.to(models.device(job.local.device))
    models.check_module(module, features=rows.feature_shape, classes=rows.classes)
    return rows, module


def _seeded_run_id(seed: int) -> bytes:
    return hashlib.sha256(f"cosilo/1/seeded-run/{seed}".encode()).digest()
