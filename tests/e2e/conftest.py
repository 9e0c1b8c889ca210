"""A small job on a CSV that every test bends in its own way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cosilo.cli.main import main

JOB = """
[job]
name = "wards"

[data]
dataset = "rows.csv"
target = "ill"
silo_column = "ward"
capacity = 400

[data.schema]
age = { low = 0, high = 100 }
sex = { levels = ["f", "m"] }
ill = { levels = ["no", "yes"] }

[model]
name = "logistic"

[federation]
rounds = 3
server_optimizer = { name = "sgd", lr = 2.0, momentum = 0.5 }

[privacy]
epsilon = 1.0
delta = 1e-5

[evaluation]
held_out = 0.25
source = "public"
"""

LOADER = """
import numpy as np

def load(silo):
    numbers = np.random.default_rng(len(silo))
    x = numbers.normal(size=(200, 3))
    return x, (x[:, 0] > 0).astype(int)

def load_nan(silo):
    x, y = load(silo)
    x[3, 1] = float("nan")
    return x, y

def load_text(silo):
    return "rows"

def load_failing(silo):
    raise ValueError("patient Jane Doe has no age")

def normed():
    from torch import nn
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
"""


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with job.toml, rows.csv and a loader module of a name of its own."""
    numbers = np.random.default_rng(0)
    lines = ["ward,age,sex,ill"]
    for ward in ("north", "south", "west"):
        for _ in range(300):
            age = int(numbers.integers(0, 100))
            ill = "yes" if age + numbers.normal(0, 20) > 60 else "no"
            lines.append(f"{ward},{age},{'fm'[int(numbers.integers(0, 2))]},{ill}")
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / f"own_{tmp_path.name}.py").write_text(LOADER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    return tmp_path


@pytest.fixture
def cosilo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process."""

    def call(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["cosilo", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        code = stopped.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call
