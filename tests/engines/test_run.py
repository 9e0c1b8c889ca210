"""Runs in process: files, resume, seeds, dropouts, statements."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import cosilo
from cosilo import accounting
from cosilo.engines import Round
from cosilo.engines.folder import RunFolder
from cosilo.errors import ConfigError, DivergedError, InterruptedRunError, ModelError, RefusedError, TooFewSilosError
from cosilo.rounds import Participant, Task

Rows = dict[str, tuple[np.ndarray, np.ndarray]]


def rows(sizes: tuple[int, ...] = (400, 300, 200)) -> Rows:
    numbers = np.random.default_rng(0)
    silos = {}
    for name, size in zip("abcdefgh", sizes, strict=False):
        x = numbers.normal(size=(size, 4)).astype(np.float32)
        silos[name] = (x, (x[:, 0] + 0.2 * numbers.normal(size=size) > 0).astype(np.int64))
    return silos


def job(folder: Path, **sections: dict[str, Any]) -> cosilo.Job:
    tree: dict[str, dict[str, Any]] = {
        "job": {"name": "r", "seed": 5},
        "data": {"capacity": 500},
        "model": {"name": "logistic"},
        "federation": {"rounds": 4, "server_optimizer": {"name": "sgd", "lr": 2.0, "momentum": 0.5}},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        "evaluation": {"held_out": 0.2, "source": "public"},
        "output": {"directory": str(folder)},
    }
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return cosilo.Job.parse(tree)


def stop_after(number: int) -> Any:
    def on_round(report: Round) -> None:
        if report.round == number:
            os.kill(os.getpid(), signal.SIGINT)

    return on_round


def test_a_run_writes_what_it_returns(tmp_path: Path):
    seen: list[Round] = []
    run = cosilo.run(job(tmp_path), silos=rows(), on_round=seen.append)
    assert sorted(p.name for p in run.path.iterdir()) == [
        ".lock",
        "checkpoint.safetensors",
        "job.toml",
        "metrics.jsonl",
        "model.safetensors",
        "plan.json",
        "privacy.json",
        "silos.json",
    ]
    assert [r.round for r in seen] == [1, 2, 3, 4]
    assert (run.metrics["test"]["auc"] or 0) > 0.9
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["test"] == run.metrics["test"]
    spent = [line["epsilon_spent"] for line in lines]
    assert spent == sorted(spent)
    assert spent[-1] == run.privacy["epsilon"] <= 2.0
    assert json.loads((run.path / "privacy.json").read_text()) == run.privacy
    assert cosilo.Job.load(run.path / "job.toml") == job(tmp_path)
    # headers and name, 5 float64 down and 5 residues of 32 bits up, 4 rounds
    assert run.mib_per_silo == pytest.approx(4 * (2 * 92 + 1 + 5 * 8 + 5 * 4) / 2**20)


def test_the_statement_has_every_field_of_the_interface(tmp_path: Path):
    privacy = cosilo.run(job(tmp_path), silos=rows()).privacy
    keys = (
        "unit relation epsilon delta rule mechanism guarantee assumption epsilon_unconditional epsilon_joint_steps "
        "against epsilon_against colluding_silos min_survivors rounds per_silo accountant noise_multiplier granularity "
        "ring_bits failure_probability entropy not_covered versions job_hash plan_hash"
    )
    assert set(keys.split()) <= set(privacy)
    assert set(privacy["epsilon_against"]) == {"server", "outsider", "local"}
    assert privacy["entropy"] == "system"
    assert privacy["rounds"] == {"planned": 4, "done": 4}
    assert [s["silo"] for s in privacy["per_silo"]] == ["a", "b", "c"]
    assert not {"rows", "held_out", "dropped", "non_finite", "clamped", "unknown", "batch"} & keys_of(privacy)


def keys_of(tree: Any) -> set[str]:
    if isinstance(tree, list):
        return set().union(*map(keys_of, tree))
    return set(tree).union(*map(keys_of, tree.values())) if isinstance(tree, dict) else set()


def test_silos_pay_for_their_own_rounds(tmp_path: Path):
    run = cosilo.run(job(tmp_path, federation={"cohort": 2}), silos=rows())
    replies = {s["silo"]: s["rounds"] for s in run.privacy["per_silo"]}
    assert sum(replies.values()) == 8
    assert max(replies.values()) == 3
    for silo in run.privacy["per_silo"]:
        event = RunFolder.open(run.path).plan.event(silo["silo"], silo["rounds"])
        assert silo["epsilon"] == run.privacy["epsilon"]
        assert silo["epsilon_realised"] == pytest.approx(accounting.epsilon(event, 1e-5).upper, rel=1e-12)
    assert run.privacy["epsilon"] >= max(s["epsilon"] for s in run.privacy["per_silo"])


def test_the_same_seed_gives_the_same_split_and_start_but_never_the_same_noise(tmp_path: Path):
    one, other = (cosilo.run(job(tmp_path), silos=rows()) for _ in range(2))
    counts = [json.loads((r.path / "silos.json").read_text()) for r in (one, other)]
    assert counts[0] == counts[1]
    assert one.path.name == "r"
    assert other.path.name == "r-2"
    assert one.metrics != other.metrics


def test_seeded_entropy_repeats_a_run_and_says_so(tmp_path: Path):
    one, other, third = (cosilo.run(job(tmp_path), silos=rows(), seeded_entropy=n) for n in (7, 7, 8))
    weights = [(r.path / "checkpoint.safetensors").read_bytes()[-40:] for r in (one, other, third)]
    assert weights[0] == weights[1] != weights[2]
    assert one.privacy["entropy"] == "seeded: not a private release"


def test_interrupted_and_resumed(tmp_path: Path):
    with pytest.raises(InterruptedRunError, match=r"2 of 4 rounds are done and paid for.*cosilo resume"):
        cosilo.run(job(tmp_path), silos=rows(), on_round=stop_after(2), seeded_entropy=3)
    partial = json.loads((tmp_path / "r" / "privacy.json").read_text())
    assert partial["rounds"] == {"planned": 4, "done": 2}
    assert 0 < partial["epsilon_realised"] < partial["epsilon"]
    resumed = cosilo.resume(tmp_path / "r", silos=rows())
    whole = cosilo.run(job(tmp_path), silos=rows(), seeded_entropy=3)
    assert resumed.metrics == whole.metrics
    assert resumed.privacy["per_silo"] == whole.privacy["per_silo"]
    assert resumed.privacy["entropy"].startswith("seeded")
    assert [m["round"] for m in RunFolder.open(resumed.path).read_metrics()] == [1, 2, 3, 4]
    again = cosilo.resume(tmp_path / "r", silos=rows())
    assert again.metrics == resumed.metrics


def test_a_kill_between_checkpoint_and_metrics_is_mended(tmp_path: Path):
    with pytest.raises(InterruptedRunError):
        cosilo.run(job(tmp_path), silos=rows(), on_round=stop_after(2))
    path = tmp_path / "r" / "metrics.jsonl"
    first, second = path.read_text().splitlines(keepends=True)
    path.write_text(first + second[:20])
    cosilo.resume(tmp_path / "r", silos=rows())
    assert [m["round"] for m in RunFolder.open(tmp_path / "r").read_metrics()] == [1, 2, 3, 4]


def in_round_two(monkeypatch: pytest.MonkeyPatch, silo: str, action: Callable[[], None]) -> None:
    """Do something inside the work of one silo in round 2; silos work in threads of their own."""
    original = Participant.reply

    def reply(self: Participant, message: bytes) -> bytes:
        if self.silo == silo and Task.decode(message).round == 2:
            self.log.replies += 1  # charged before the work begins
            action()
        return original(self, message)

    monkeypatch.setattr(Participant, "reply", reply)


def test_a_second_signal_discards_the_round_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt_twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    with monkeypatch.context() as patch:
        in_round_two(patch, "b", interrupt_twice)
        with pytest.raises(InterruptedRunError, match="1 of 4 rounds are done"):
            cosilo.run(job(tmp_path), silos=rows())
    _, facts = RunFolder.open(tmp_path / "r").read_checkpoint()
    assert facts["round"] == 1
    assert {log["replies"] for log in facts["silos"].values()} == {1}
    assert cosilo.resume(tmp_path / "r", silos=rows()).privacy["rounds"]["done"] == 4


def raise_value_error() -> None:
    raise ValueError("row 17: Jane Doe")


def test_a_failing_silo_is_survived_within_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    in_round_two(monkeypatch, "b", raise_value_error)
    run = cosilo.run(job(tmp_path, federation={"min_survivors": 2}), silos=rows())
    assert run.privacy["survivors"] == {"planned": 2, "fewest": 2}
    assert run.privacy["honest_contributors"] == 1


def test_too_many_failures_release_nothing_and_stay_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        in_round_two(patch, "b", raise_value_error)
        with pytest.raises(TooFewSilosError, match="Silo 'b' failed with ValueError") as caught:
            cosilo.run(job(tmp_path), silos=rows())
    assert "Jane" not in str(caught.value)
    _, facts = RunFolder.open(tmp_path / "r").read_checkpoint()
    assert (facts["round"], facts["attempt"]) == (1, 1)
    assert {log["replies"] for log in facts["silos"].values()} == {2}
    privacy = json.loads((tmp_path / "r" / "privacy.json").read_text())
    assert [s["rounds"] for s in privacy["per_silo"]] == [2, 2, 2]
    assert privacy["rounds"]["done"] == 1
    # The lost round cannot be made up for: its messages were sent and are paid for.
    with pytest.raises(RefusedError, match="all 4 planned replies are used"):
        cosilo.resume(tmp_path / "r", silos=rows())


def test_resume_checks_that_the_run_is_the_same(tmp_path: Path):
    with pytest.raises(InterruptedRunError):
        cosilo.run(job(tmp_path), silos=rows(), on_round=stop_after(1))
    with pytest.raises(ConfigError, match="given its rows in memory"):
        cosilo.resume(tmp_path / "r")
    with pytest.raises(ConfigError, match="differ from those of the run's plan"):
        cosilo.resume(tmp_path / "r", silos=rows((400, 300)))
    with pytest.raises(ConfigError, match="not the folder of a cosilo run"):
        cosilo.resume(tmp_path)


def test_one_process_at_a_time(tmp_path: Path):
    second: list[str] = []

    def on_round(report: Round) -> None:
        with pytest.raises(ConfigError) as caught:
            cosilo.resume(tmp_path / "r", silos=rows())
        second.append(caught.value.what)

    cosilo.run(job(tmp_path), silos=rows(), on_round=on_round)
    assert second == [f"Another process is working on the run {str(tmp_path / 'r')!r}."] * 4


@pytest.mark.parametrize("name", ["plan.json", "job.toml"])
def test_a_changed_plan_or_job_is_refused(tmp_path: Path, name: str):
    with pytest.raises(InterruptedRunError):
        cosilo.run(job(tmp_path), silos=rows(), on_round=stop_after(1))
    path = tmp_path / "r" / name
    text = path.read_text()
    changed = re.sub('"share_multiplier": [0-9.]+', '"share_multiplier": 1e-9', text).replace("lr = 2.0", "lr = 3.0")
    assert changed != text
    path.write_text(changed)
    with pytest.raises(ConfigError, match="was changed after it began"):
        cosilo.resume(tmp_path / "r", silos=rows())


def test_damaged_files_are_named(tmp_path: Path):
    with pytest.raises(InterruptedRunError):
        cosilo.run(job(tmp_path), silos=rows(), on_round=stop_after(1))
    for name, text in (("plan.json", "{"), ("plan.json", "{}"), ("checkpoint.safetensors", "junk")):
        whole = (tmp_path / "r" / name).read_bytes()
        (tmp_path / "r" / name).write_text(text)
        with pytest.raises(ConfigError, match="damaged|Cannot read"):
            cosilo.resume(tmp_path / "r", silos=rows())
        (tmp_path / "r" / name).write_bytes(whole)


def test_no_statement_while_a_run_works_and_one_whenever_it_stops(tmp_path: Path):
    """A stopped run's statement says less than the resumed one is about to spend: it must not be found meanwhile."""
    with pytest.raises(InterruptedRunError):
        cosilo.run(job(tmp_path), silos=rows(), on_round=stop_after(1))
    statements = [tmp_path / "r" / name for name in ("privacy.json", "model.safetensors")]
    assert all(path.exists() for path in statements)
    seen = []

    def on_round(report: Round) -> None:
        seen.append(any(path.exists() for path in statements))
        if report.round == 3:
            raise OSError("the caller's own fault")

    with pytest.raises(OSError, match="own fault"):
        cosilo.resume(tmp_path / "r", silos=rows(), on_round=on_round)
    assert seen == [False, False]
    assert json.loads(statements[0].read_text())["rounds"]["done"] == 3
    assert cosilo.load_model(tmp_path / "r").privacy["rounds"]["done"] == 3


@pytest.mark.parametrize("place", ["write_checkpoint", "append_metrics", "write_json"])
def test_signals_never_make_the_statement_say_less_than_was_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
):
    """Two signals at every moment in which something is written: checkpoint, metrics, and the statement itself."""
    original = getattr(RunFolder, place)
    calls = 0

    def interrupted(self: RunFolder, *arguments: Any) -> None:
        nonlocal calls
        original(self, *arguments)
        calls += 1
        if calls >= 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, place, interrupted)
        with suppress(InterruptedRunError):
            cosilo.run(job(tmp_path), silos=rows())
    _, facts = RunFolder.open(tmp_path / "r").read_checkpoint()
    privacy = json.loads((tmp_path / "r" / "privacy.json").read_text())
    assert privacy["rounds"]["done"] == facts["round"]
    assert {s["silo"]: s["rounds"] for s in privacy["per_silo"]} == {
        silo: log["replies"] for silo, log in facts["silos"].items()
    }
    assert cosilo.resume(tmp_path / "r", silos=rows()).privacy["rounds"]["done"] == 4


def test_a_diverging_run_stops_in_words_and_keeps_its_last_model(tmp_path: Path):
    settings = {"server_optimizer": {"name": "sgd", "lr": 1e41}}
    with pytest.raises(DivergedError, match="Lower federation.server_optimizer.lr"):
        cosilo.run(job(tmp_path, federation=settings), silos=rows())
    with pytest.raises(DivergedError):
        cosilo.resume(tmp_path / "r", silos=rows())
    assert (tmp_path / "r" / "privacy.json").exists()
    wild = {"server_optimizer": {"name": "sgd", "lr": 1e37}}
    run = cosilo.run(job(tmp_path, federation=wild), silos=rows())
    assert set(run.metrics["test"]) == {"accuracy", "loss", "auc"}  # None where logits overflowed


def test_private_counts_stay_in_the_silos_own_log(tmp_path: Path):
    """A row that makes the gradient overflow is counted, and the count is nowhere but in silos.json."""

    class Explodes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x**400)  # harmless up to 1, beyond float64 when squared at 3

    silos = rows()
    for x, _ in silos.values():
        x[:] = 0
    silos["b"][0][:7, 0] = 3.0
    run = cosilo.run(own_job(tmp_path), silos=silos, model=Explodes(4, 1))
    _, facts = RunFolder.open(run.path).read_checkpoint()
    assert all(set(log) == {"replies", "last"} for log in facts["silos"].values())
    counts = {silo: log["non_finite"] for silo, log in json.loads((run.path / "silos.json").read_text()).items()}
    assert counts["b"] > 0 == counts["a"] == counts["c"]


def test_a_modules_own_state_is_not_released(tmp_path: Path):
    class Remembers(nn.Linear):
        def get_extra_state(self) -> Any:
            return torch.tensor([123.0])

        def set_extra_state(self, state: Any) -> None:
            del state

    run = cosilo.run(own_job(tmp_path), silos=rows(), model=Remembers(4, 1))
    assert b"extra" not in (run.path / "model.safetensors").read_bytes()
    assert cosilo.load_model(run.path, model=Remembers(4, 1)).predict_proba(rows()["a"][0]).shape == (400, 2)


def test_training_keeps_the_modules_own_mode(tmp_path: Path):
    """Evaluation switches its own copy to eval mode, and every round trains in the mode the module came in."""

    class Mode(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (1.0 if self.training else 0.0)

    settings = {"rounds": 3, "server_optimizer": {"name": "sgd", "lr": 1.0}}
    tree = job(tmp_path, federation=settings, privacy={"epsilon": 50.0}).to_tree()
    del tree["model"]["name"]
    model = Mode(4, 1)
    nn.init.zeros_(model.weight)
    run = cosilo.run(cosilo.Job.parse(tree), silos=rows(), model=model)
    weights = dict(run.model.module.named_parameters())["weight"].detach().numpy()
    assert weights[0, 0] > 0.3  # eval mode from round 2 on would leave it at a third


def test_own_module_and_its_model_file(tmp_path: Path):
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 2))

    torch.manual_seed(0)
    run = cosilo.run(own_job(tmp_path), silos=rows(), model=network())
    features = rows()["a"][0]
    with pytest.raises(ModelError, match="cannot be rebuilt from the file alone"):
        cosilo.load_model(run.path)
    loaded = cosilo.load_model(run.path, model=network())
    np.testing.assert_array_equal(loaded.predict_proba(features), run.model.predict_proba(features))
    assert loaded.predict_proba(features).sum(axis=1) == pytest.approx(1.0)
    assert loaded.privacy == run.privacy
    with pytest.raises(ModelError, match="does not have the saved model's parameters"):
        cosilo.load_model(run.path, model=nn.Linear(4, 2))


def own_job(folder: Path) -> cosilo.Job:
    tree = job(folder).to_tree()
    del tree["model"]["name"]
    return cosilo.Job.parse(tree)


def test_resuming_probes_the_module_as_running_does(tmp_path: Path):
    class Counts(nn.Linear):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch._C._functorch.maybe_get_level(x) > 0:  # only where gradients of rows are taken
                Counts.calls += 1
            return super().forward(x) * (1 + Counts.calls)

    with pytest.raises(InterruptedRunError):
        cosilo.run(own_job(tmp_path), silos=rows(), model=nn.Linear(4, 1), on_round=stop_after(1))
    with pytest.raises(ModelError, match="depends on chance, on what the model remembers"):
        cosilo.resume(tmp_path / "r", silos=rows(), model=Counts(4, 1))
    assert (tmp_path / "r" / "privacy.json").exists()


def test_a_model_twice_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="names a model and another was given"):
        cosilo.run(job(tmp_path), silos=rows(), model=nn.Linear(4, 1))


def test_shipped_models_load_from_the_file_alone(tmp_path: Path):
    run = cosilo.run(job(tmp_path, model={"name": "mlp", "options": {"hidden": [3]}}), silos=rows())
    x = rows()["a"][0]
    for path in (run.path, run.path / "model.safetensors"):
        np.testing.assert_array_equal(cosilo.load_model(path).predict_proba(x), run.model.predict_proba(x))
    with pytest.raises(ConfigError, match="not a model saved by cosilo"):
        cosilo.load_model(run.path / "checkpoint.safetensors")


def test_sampled_batches_adam_and_averaging(tmp_path: Path):
    run = cosilo.run(
        job(
            tmp_path,
            local={"sampling_rate": 0.2},
            federation={"rounds": 30, "server_optimizer": {"name": "adam", "lr": 0.1}, "averaging": 0.8},
            evaluation={"every": 10},
        ),
        silos=rows(),
    )
    metrics = RunFolder.open(run.path).read_metrics()
    assert [m["round"] for m in metrics if m["test"]] == [10, 20, 30]
    spent = [m["epsilon_spent"] for m in metrics]
    assert spent == sorted(spent)
    assert spent[-1] == run.privacy["epsilon"] <= 2.0
    assert (run.metrics["test"]["accuracy"] or 0) > 0.6


def test_nothing_is_written_when_a_check_fails(tmp_path: Path):
    for bad in ({"federation": {"cohort": 9}}, {"local": {"device": "abacus"}}, {"data": {"capacity": 10}}):
        with pytest.raises(ConfigError):
            cosilo.run(job(tmp_path / "runs", **bad), silos=rows())
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ModelError, match="mixes the rows of a batch"):
        cosilo.run(own_job(tmp_path / "runs"), silos=rows(), model=module)
    assert not (tmp_path / "runs").exists()


def test_the_noise_in_the_released_sums_is_the_planned_one(tmp_path: Path):
    """Recompute the clean sum at the released model, subtract, and meet the planned sd: nobody here ships zero noise.

    One round from zero with lr 1 moves the model by -(clean sum + noise) / divisor. 401 parameters, 15 runs:
    chi-square of 6,015 squares, two-sided at 1e-9. Rejected with power above 1 - 1e-9: one silo's noise of three
    missing, all noise 10 % too small, no noise.
    """
    numbers = np.random.default_rng(1)
    silos = {name: (numbers.normal(size=(50, 400)).astype(np.float32), numbers.integers(0, 2, 50)) for name in "abc"}
    clean = np.zeros(401)
    for x, y in silos.values():
        gradient = np.hstack([x, np.ones((len(x), 1))]) * (0.5 - y)[:, None]
        clean += (gradient / np.maximum(1, np.linalg.norm(gradient, axis=1, keepdims=True))).sum(axis=0)
    settings = {"rounds": 1, "server_optimizer": {"name": "sgd", "lr": 1.0}}
    squares = 0.0
    for _ in range(15):
        run = cosilo.run(job(tmp_path, federation=settings, evaluation={"held_out": 0.0}), silos=silos)
        share = RunFolder.open(run.path).plan.share_multiplier  # clipping_norm is 1
        moved = np.concatenate([p.detach().double().numpy().ravel() for p in run.model.module.parameters()])
        squares += float(((-moved * 1500 - clean) ** 2).sum()) / (3 * share**2)

    def fits(statistic: float) -> bool:
        p = float(stats.chi2.cdf(statistic, 15 * 401))
        return min(p, 1 - p) > 5e-10

    assert fits(squares)
    assert not fits(squares * 2 / 3)
    assert not fits(squares * 0.9**2)
    assert not fits(0.0)
