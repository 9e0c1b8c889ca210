"""The job file: every fault names its key, its value and what to write instead."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from cosilo.errors import ConfigError, JobError
from cosilo.job import Job, find_function
from cosilo.job.schema import Adam, Sgd

BASE: dict[str, Any] = {
    "data": {"dataset": "flights"},
    "model": {"name": "logistic"},
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
}

FAULTS = [
    ("federation.cohorts", 3, "Unknown key 'cohorts' (value 3) in [federation].", "Did you mean 'cohort'?"),
    ("privcy", {}, "Unknown key 'privcy' (value a table) in the job file.", "Did you mean 'privacy'?"),
    ("data.schema", {"age": {"low": 0.0, "hi": 1.0}}, "Unknown key 'hi'", "Did you mean 'high'?"),
    ("silos", {"a": {"cap": 3}}, "Unknown key 'cap' (value 3) in [silos.a].", "Valid keys there: capacity."),
    ("federation.server_optimizer", {"name": "sgd", "lrr": 1.0}, "Unknown key 'lrr'", "Did you mean 'lr'?"),
    ("federation.server_optimizer", {"name": "adam", "momentum": 0.9}, "Unknown key 'momentum'", "beta1"),
    ("federation.server_optimizer", {"name": "lamb"}, "server_optimizer = 'lamb' is not a choice", "'sgd', 'adam'"),
    ("privacy.epsilon", 0.0, "privacy.epsilon = 0.0 is out of bounds.", "It must be above 0."),
    ("privacy.epsilon", -1, "privacy.epsilon = -1 is out of bounds.", "above 0"),
    ("privacy.epsilon", float("nan"), "privacy.epsilon = nan is out of bounds.", "finite"),
    ("privacy.epsilon", "one", "privacy.epsilon = 'one' has the wrong type.", "a number such as 1.0"),
    ("privacy.delta", 1.0, "privacy.delta = 1.0 is out of bounds.", "below 1"),
    ("privacy.against", "me", "privacy.against = 'me' is not a choice.", "'server' or 'outsider'"),
    ("local.rule", "two-step", "local.rule = 'two-step' is not a choice.", "'one-step'"),
    ("federation.rounds", 2.5, "federation.rounds = 2.5 has the wrong type.", "a whole number"),
    ("federation.rounds", 0, "federation.rounds = 0 is out of bounds.", "at least 1"),
    ("federation", 3, "federation = 3 has the wrong type.", "a table"),
    ("data.loader", "rows:load", "data: dataset and loader both name a source.", "Keep one of them."),
    ("model.factory", "m:f", "model: name and factory both choose a model.", "Keep one of them."),
    ("local", {"sampling_rate": 0.1, "batch_size": 3}, "both set the batch", "Keep one of them."),
    ("federation", {"cohort": 3, "min_survivors": 4}, "min_survivors = 4 exceeds cohort = 3.", "Lower it."),
    ("federation.server_optimizer", {"name": "sgd", "nesterov": True}, "nesterov needs momentum", "Set momentum"),
    ("data.schema", {"a": {"low": 2.0, "high": 1.0}}, "needs levels = [...] or numbers low < high", "Write one"),
    ("data.schema", {"a": {"levels": ["x"], "low": 1.0}}, "either levels or low and high", "Remove one"),
    ("data.schema", {"a": {"levels": ["x", "x"]}}, "levels must differ", "Remove the repeated"),
    ("data.schema", {"a": {"low": 0.0, "high": 1.0, "bins": [0.5, 0.2]}}, "bins must ascend", "Reorder"),
    ("data.schema", {"a": {"low": 0.0, "high": 1.0, "missing": 7.0}}, "missing must lie between", "inside"),
    ("job.name", "../x", "job.name = '../x' is not of the right form.", "letters, digits"),
]


def with_value(path: str, value: Any) -> dict[str, Any]:
    tree = copy.deepcopy(BASE)
    *sections, key = path.split(".")
    table = tree
    for section in sections:
        table = table.setdefault(section, {})
    table[key] = value
    return tree


@pytest.mark.parametrize(("path", "value", "what", "fix"), FAULTS)
def test_faults_say_what_and_what_to_write(path: str, value: Any, what: str, fix: str):
    with pytest.raises(JobError) as caught:
        Job.parse(with_value(path, value))
    assert what in caught.value.what
    assert fix in caught.value.fix
    assert caught.value.exit_code == 2


def test_missing_keys_are_named_and_counted():
    with pytest.raises(JobError, match=r"privacy is missing. Add privacy to the job file.$"):
        Job.parse({})
    with pytest.raises(JobError, match=r"privacy.delta is missing. Add delta to \[privacy\]. \(1 more fault"):
        Job.parse({"privacy": {}, "evaluation": {"every": 0}})


def test_functions_are_found_beside_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "beside_the_job.py").write_text("def here(): return 7\nnumber = 3\n")
    (tmp_path / "broken_module.py").write_text("def (")
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert find_function("k", "beside_the_job:here", str(tmp_path))() == 7
    assert str(tmp_path) not in sys.path
    for name, what in (
        ("beside_the_job:there", "module 'beside_the_job' has no 'there'"),
        ("beside_the_job:number", "has 'number', which is not a function"),
        ("broken_module:f", r"cannot import module 'broken_module' \(SyntaxError\)"),
        ("no_such_module_anywhere:f", r"\(ModuleNotFoundError\)"),
    ):
        with pytest.raises(ConfigError, match=what):
            find_function("k", name, str(tmp_path))


def test_toml_round_trip_and_hash():
    job = Job.parse(
        BASE
        | {
            "data": {
                "dataset": "/x/rows.csv",
                "schema": {"a": {"low": 0, "high": 1, "bins": [0.5], "missing": "drop"}},
            },
            "federation": {"rounds": 3, "server_optimizer": {"name": "adam", "lr": 0.1}},
        }
    )
    import tomllib

    again = Job.parse(tomllib.loads(job.to_toml()))
    assert again == job
    assert again.hash == job.hash
    assert Job.parse(BASE).hash != job.hash
    assert Job.parse(BASE, folder=Path("/a")).hash == Job.parse(BASE, folder=Path("/b")).hash


def test_the_server_optimizer_is_sgd_unless_named():
    job = Job.parse(BASE | {"federation": {"server_optimizer": {"lr": 3.0}}})
    assert job.federation.server_optimizer == Sgd(lr=3.0)
    assert Job.parse(BASE | {"federation": {"server_optimizer": {"name": "adam"}}}).federation.server_optimizer == Adam(
        name="adam"
    )
    with pytest.raises(JobError, match="federation.server_optimizer = 3 has the wrong type. Write a table"):
        Job.parse(BASE | {"federation": {"server_optimizer": 3}})


def test_a_job_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Job.parse(BASE).job.name = "other"  # type: ignore[misc]


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


TEXT = 'data.dataset = "rows.csv"\nmodel.name = "logistic"\nprivacy = { epsilon = 1, delta = 1e-5 }\n'


def test_load_overrides_and_relative_paths(tmp_path: Path):
    path = write(tmp_path, TEXT)
    job = Job.load(path, ("federation.rounds=7", "job.name=mine", "local.sampling_rate = 0.5"))
    assert (job.federation.rounds, job.job.name, job.local.sampling_rate) == (7, "mine", 0.5)
    assert job.data.dataset == str(tmp_path / "rows.csv")
    assert Job.parse(BASE).data.dataset == "flights"


@pytest.mark.parametrize("override", ["rounds=3", "federation.rounds", "=3", "a..b=3"])
def test_malformed_overrides(tmp_path: Path, override: str):
    with pytest.raises(JobError, match="not of the form section.key=value"):
        Job.load(write(tmp_path, TEXT), (override,))


def test_unreadable_files(tmp_path: Path):
    with pytest.raises(JobError, match="Cannot read the job file"):
        Job.load(tmp_path / "none.toml")
    with pytest.raises(JobError, match="not valid TOML"):
        Job.load(write(tmp_path, "[job"))
    with pytest.raises(JobError, match="not a table"):
        Job.load(write(tmp_path, TEXT), ("model.name.x=3",))
