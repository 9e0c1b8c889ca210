"""`noisy-steps`: what is sent is the exact total of what moved the silo's model; both guarantees and their price."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import stats
from torch import nn

from cosilo import accounting
from cosilo.entropy import Context, Entropy, Stream
from cosilo.errors import CosiloError
from cosilo.job import Job
from cosilo.lattice import decode, unwrap
from cosilo.local import RULES, Noisy, Release, StepDesk
from cosilo.local.batches import BatchSums
from cosilo.planning import Facts, Plan, cautions, make_plan
from cosilo.rounds import Participant, Schedule, Task, Update

RUN = bytes(range(32))
PRIVATE = {"epsilon": None, "delta": 1e-5, "against": "outsider", "colluding_silos": 0}


def job(*, steps: int = 11, rounds: int = 1, **privacy: Any) -> Job:
    chosen = {key: value for key, value in {**PRIVATE, "epsilon": 1.0, **privacy}.items() if value is not None}
    local = {"rule": "noisy-steps", "steps": steps, "lr": 0.5}
    return Job.parse({"privacy": chosen, "local": local, "federation": {"rounds": rounds}})


def plan(asked: Job, *, silos: int = 10, capacity: int = 500, dim: int = 3) -> Plan:
    return make_plan(asked, Facts(capacities={f"s{i}": capacity for i in range(silos)}, dim=dim))


def test_both_numbers_of_the_issue():
    """10 silos, 11 full-batch steps, one round; joint-steps says 1.0 at 1e-5.

    Unconditional: gdp_mu^2 = 10/sigma^2 + 1/(10 sigma^2) (design 10, section 2).
    """
    found = plan(job(guarantee="joint-steps"))
    sigma = found.share_multiplier
    assert found.epsilon == found.epsilon_joint_steps == pytest.approx(1.0, abs=1e-3)
    expected = accounting.gaussian.epsilon_of_mu(mu=math.sqrt(10 / sigma**2 + 1 / (10 * sigma**2)), delta=1e-5)
    assert found.epsilon_unconditional == pytest.approx(expected, rel=2e-3)
    assert found.epsilon_unconditional is not None
    assert found.epsilon_unconditional > expected * (1 - 1e-9)
    # Joint-steps itself: sqrt(11/10)/sigma.
    assert math.sqrt(1.1) / sigma == pytest.approx(0.26805, rel=2e-3)
    assert any("joint-steps, which is not proved for 11 local steps" in s for s in cautions(job(), found))


def test_the_default_promise_is_the_unconditional_one():
    found = plan(job())
    assert found.guarantee == "unconditional"
    assert found.epsilon == found.epsilon_unconditional
    assert found.epsilon <= 1.0
    joint = found.epsilon_joint_steps
    assert joint is not None
    assert joint < 0.4


def test_one_step_of_noisy_steps_is_one_step():
    noisy = plan(job(steps=1, rounds=5))
    one = make_plan(
        Job.parse({"privacy": {**PRIVATE, "epsilon": 1.0}, "federation": {"rounds": 5}}),
        Facts(capacities={f"s{i}": 500 for i in range(10)}, dim=3),
    )
    assert noisy.epsilon_unconditional == noisy.epsilon_joint_steps == noisy.epsilon
    assert noisy.noise_multiplier == one.noise_multiplier
    assert one.epsilon_joint_steps is None


def test_against_the_server_no_silo_s_noise_helps_another():
    found = plan(job(against="server"))
    assert found.epsilon_unconditional == found.epsilon_joint_steps


@dataclass
class Recorder:
    """Adds a known vector to every step and remembers what it was given."""

    granularity: float = 2.0**-10
    seen: list[np.ndarray] = field(default_factory=list)
    sent: list[np.ndarray] = field(default_factory=list)

    def batch(self, step: int) -> Stream:
        context = Context(run=RUN, silo="a", round=1, attempt=1, purpose="batch", step=step)
        return Entropy.seeded(5, "a").stream(context)

    def noisy(self, step: int, vector: np.ndarray) -> Noisy:
        self.seen.append(vector)
        self.sent.append(np.rint(vector / self.granularity).astype(np.int64) + 100 * (step + 1))
        return Noisy(self.sent[-1], self.sent[-1] * self.granularity)


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_the_silo_s_model_moves_by_what_it_sends(rate: float):
    numbers = np.random.default_rng(4)
    x, y = numbers.normal(size=(40, 2)).astype(np.float32), numbers.integers(0, 2, 40)
    tree = job(steps=3).to_tree()
    tree["local"]["sampling_rate"] = rate
    terms = plan(Job.parse(tree), capacity=50).terms("s0")
    desk = Recorder()
    release = RULES["noisy-steps"].prepare(nn.Linear(2, 1), x, y, terms).release(np.ones(3), desk)
    assert np.array_equal(release.integers, sum(desk.sent))
    sums, theta = BatchSums(nn.Linear(2, 1), x, y, terms), np.ones(3)
    for step in range(3):
        expected, _ = sums.total(theta, desk.batch(step))
        assert np.array_equal(desk.seen[step], expected)
        theta = theta - 0.5 / (rate * 50) * desk.sent[step] * desk.granularity


@dataclass
class Steps:
    """A rule that hands over zeros in the given steps."""

    steps: tuple[int, ...]
    dim: int

    def release(self, theta: np.ndarray, desk: StepDesk) -> Release:
        del theta
        total = np.zeros(self.dim, np.int64)
        for step in self.steps:
            total = total + desk.noisy(step, np.zeros(self.dim)).integers
        return Release(total, 0)


def reply(found: Plan, steps: tuple[int, ...]) -> Update:
    work = Steps(steps, found.dim)
    silo = Participant(
        silo="s0",
        run=RUN,
        plan=found,
        schedule=Schedule(RUN, tuple(found.silos), found.cohort),
        work=work,
        entropy=Entropy.system(),
    )
    return Update.decode(silo.reply(Task(run=RUN, round=1, attempt=1, vector=np.zeros(found.dim)).encode()))


def test_every_step_has_its_own_planned_noise():
    """Two-sided chi-square of the total's squares at 1e-9 false alarms; 3 % is 13 sd of it away."""
    found = plan(job(steps=4), dim=100_000)
    update = reply(found, (0, 1, 2, 3))
    noise = decode(unwrap(update.residues, found.ring_bits), found.lattice("s0"))
    sd = 2 * found.sigma * found.granularity
    for factor, fits in ((1.0, True), (0.97, False), (1.03, False), (math.sqrt(4 / 3), False)):
        p = stats.chi2.cdf(float((noise**2).sum()) * factor**2 / sd**2, noise.size)
        assert bool(min(p, 1 - p) > 5e-10) is fits


@pytest.mark.parametrize("steps", [(), (0, 1, 2), (0, 1, 2, 2), (1, 0, 2, 3), (0, 1, 2, 3, 4)])
def test_a_rule_that_leaves_out_noise_sends_nothing(steps: tuple[int, ...]):
    with pytest.raises(CosiloError):
        reply(plan(job(steps=4)), steps)
