"""Runs on integers: every mechanism, ring and rule trains, and the statement says what was chosen."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cosilo
from cosilo.engines import Round
from cosilo.engines.folder import RunFolder
from cosilo.errors import InterruptedRunError, JobError

Rows = dict[str, tuple[np.ndarray, np.ndarray]]
NOISY = {"rule": "noisy-steps", "steps": 3, "lr": 1.0}


def rows() -> Rows:
    numbers = np.random.default_rng(0)
    silos = {}
    for name, size in zip("abc", (400, 300, 200), strict=True):
        x = numbers.normal(size=(size, 4)).astype(np.float32)
        silos[name] = (x, (x[:, 0] + 0.2 * numbers.normal(size=size) > 0).astype(np.int64))
    return silos


def job(folder: Path, **sections: dict[str, Any]) -> cosilo.Job:
    tree: dict[str, dict[str, Any]] = {
        "job": {"name": "r", "seed": 5},
        "data": {"capacity": 500},
        "model": {"name": "logistic"},
        "federation": {"rounds": 6, "server_optimizer": {"name": "sgd", "lr": 2.0, "momentum": 0.5}},
        "privacy": {"epsilon": 4.0, "delta": 1e-5, "against": "outsider"},
        "evaluation": {"held_out": 0.2, "source": "public"},
        "output": {"directory": str(folder)},
    }
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return cosilo.Job.parse(tree)


def auc(run: cosilo.Run) -> float:
    return run.metrics["test"]["auc"] or 0.0


@pytest.mark.parametrize("mechanism", ["discrete-gaussian", "skellam", "gaussian", "laplace", "discrete-laplace"])
def test_every_mechanism_trains_and_states_its_integers(tmp_path: Path, mechanism: str):
    run = cosilo.run(job(tmp_path, privacy={"mechanism": mechanism}), silos=rows(), seeded_entropy=1)
    privacy, plan = run.privacy, RunFolder.open(run.path).plan
    assert auc(run) > 0.8
    assert privacy["mechanism"] == mechanism
    assert (privacy["granularity"], privacy["ring_bits"]) == (plan.granularity, plan.ring_bits)
    items, failures = privacy["delta_items"], privacy["failure_probability"]
    certified = mechanism not in ("gaussian", "laplace")
    assert (items["sampler"] is not None) is certified
    assert any("part of delta" in sentence for sentence in privacy["not_covered"]) is not certified
    assert 0 < items["rounding"] == failures["rounding"] <= 1e-5 / 1000
    assert sum(v or 0.0 for v in items.values()) == pytest.approx(1e-5)
    assert failures["overflow"] == 6 * 5 * 2.0**-60
    assert 0 < privacy["rounding_inflation"] < 1e-3


@pytest.mark.parametrize(
    "aggregation",
    [
        {"ring_bits": 16, "clamp": 100.0},
        {"ring_bits": 23},
        {"ring_bits": 64},
        {"rotation": True},
        {"rotation": True, "ring_bits": 20, "clamp": 150.0},
        {"granularity": 0.01},
    ],
)
def test_every_ring_trains(tmp_path: Path, aggregation: dict[str, Any]):
    run = cosilo.run(job(tmp_path, aggregation=aggregation), silos=rows(), seeded_entropy=1)
    assert auc(run) > 0.85
    for key, value in aggregation.items():
        found = run.privacy[key]
        assert (set(found.values()) if key == "clamp" else {found}) == {value}


def test_integers_train_as_well_as_real_numbers(tmp_path: Path):
    """The same noise sd: discrete in an automatic ring, continuous on its fine grid."""
    runs = [
        cosilo.run(job(tmp_path, privacy={"mechanism": name}), silos=rows(), seeded_entropy=2)
        for name in ("discrete-gaussian", "gaussian")
    ]
    assert abs(auc(runs[0]) - auc(runs[1])) < 0.05


@pytest.mark.parametrize("sampling", [{}, {"sampling_rate": 0.3}])
def test_noisy_steps_trains_and_states_both_numbers(tmp_path: Path, sampling: dict[str, float]):
    run = cosilo.run(job(tmp_path, local={**NOISY, **sampling}), silos=rows(), seeded_entropy=1)
    privacy = run.privacy
    assert auc(run) > 0.8
    assert privacy["guarantee"] == "unconditional"
    assert privacy["epsilon"] == privacy["epsilon_unconditional"] <= 4.0
    assert privacy["epsilon_joint_steps"] < privacy["epsilon"]
    assert "assumes nothing about model or loss" in privacy["assumption"]
    assert privacy["local_steps"] == 3
    joint = cosilo.run(
        job(tmp_path, local={**NOISY, **sampling}, privacy={"guarantee": "joint-steps"}), silos=rows(), seeded_entropy=1
    )
    assert (
        joint.privacy["epsilon"] == joint.privacy["epsilon_joint_steps"] <= 4.0 < joint.privacy["epsilon_unconditional"]
    )
    assert "NOT PROVED for more than one local step" in joint.privacy["assumption"]
    assert any("is what holds" in sentence for sentence in joint.cautions)


def test_an_interrupted_run_of_noisy_steps_ends_as_an_uninterrupted_one(tmp_path: Path):
    def stop(report: Round) -> None:
        if report.round == 3:
            os.kill(os.getpid(), signal.SIGINT)

    whole = cosilo.run(job(tmp_path, local=NOISY), silos=rows(), seeded_entropy=7)
    with suppress(InterruptedRunError):
        cosilo.run(job(tmp_path / "cut", local=NOISY), silos=rows(), seeded_entropy=7, on_round=stop)
    resumed = cosilo.resume(tmp_path / "cut" / "r", silos=rows())
    ends = [RunFolder.open(run.path).read_checkpoint()[0]["theta"] for run in (whole, resumed)]
    assert ends[0].tobytes() == ends[1].tobytes()


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ({"local": {"steps": 3}}, "steps and lr do nothing under one-step"),
        ({"local": {"rule": "noisy-steps"}}, "noisy-steps needs steps and lr"),
        ({"privacy": {"guarantee": "joint-steps"}}, "joint-steps"),
        ({"privacy": {"mechanism": "discrete"}}, "is not a choice"),
        ({"aggregation": {"ring_bits": 65}}, "ring_bits"),
        ({"aggregation": {"ring_bits": "16"}}, "ring_bits"),
        ({"aggregation": {"clamp": 0.0}}, "clamp"),
    ],
)
def test_contradictions_are_refused_in_words(tmp_path: Path, sections: dict[str, Any], what: str):
    with pytest.raises(JobError, match=what):
        job(tmp_path, **sections)
