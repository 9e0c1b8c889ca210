"""An attack on what leaves a silo: tell "with the row" from "without" by thresholds, and bound epsilon from below.

Every coordinate of a long vector is one independent trial of a scalar release whose sensitivity is one clipping norm.
Clopper-Pearson bounds at 99.9 % over all thresholds together: a sound release exceeds its promise in at most one of
1,000 runs of this test, and each planted fault is caught with power above 1 - 1e-9 (the true epsilons are far apart).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cosilo.entropy import Context, Entropy, Purpose, Stream
from cosilo.job import Job
from cosilo.lattice import decode, encode, unwrap, wrap
from cosilo.mechanisms import MECHANISMS
from cosilo.planning import Facts, Plan, make_plan

TRIALS = 4_000_000
THRESHOLDS = np.arange(1.0, 4.01, 0.25)  # of the honest noise sd
MISTAKE = 0.001 / (2 * len(THRESHOLDS))
SILOS = ("a", "b", "c")


def planned() -> Plan:
    job = Job.parse(
        {
            "model": {},
            "federation": {"rounds": 1},
            "local": {"clipping_norm": 0.7},
            "privacy": {"epsilon": 1.0, "delta": 1e-5, "against": "outsider", "colluding_silos": 1},
        }
    )
    return make_plan(job, Facts(capacities=dict.fromkeys(SILOS, 100), dim=5))


def released(plan: Plan, clean: float, honest: int) -> NDArray[np.float64]:
    """The sum of honest silos' messages, one of which holds the row's clipped gradient `clean`."""
    wide = replace(plan, dim=TRIALS)
    entropy = Entropy.system()

    def stream(silo: str, purpose: Purpose) -> Stream:
        return entropy.stream(Context(run=bytes(32), silo=silo, round=1, attempt=1, purpose=purpose))

    total = np.zeros(TRIALS, dtype=np.uint64)
    for silo in SILOS[:honest]:
        value = np.full(TRIALS, clean if silo == "a" else 0.0)
        integers = encode(value, wide.lattice(silo), stream(silo, "rounding"))
        integers = integers + MECHANISMS[plan.mechanism].sample(stream(silo, "noise"), TRIALS, plan.sigma)
        total += wrap(integers, plan.ring_bits)
    return decode(unwrap(total, plan.ring_bits), wide.lattice("a"))


def epsilon_lower(without: NDArray[np.float64], with_row: NDArray[np.float64], sd: float, delta: float) -> float:
    best = 0.0
    for threshold in THRESHOLDS * sd:
        false, true = int((without > threshold).sum()), int((with_row > threshold).sum())
        fpr = float(stats.beta.ppf(1 - MISTAKE, false + 1, TRIALS - false))
        tpr = float(stats.beta.ppf(MISTAKE, true, TRIALS - true + 1)) if true else 0.0
        if tpr > delta:
            best = max(best, math.log((tpr - delta) / fpr))
    return best


def attack(plan: Plan, *, clean: float = 0.7, honest: int = 2) -> float:
    sd = planned().share_multiplier * 0.7 * math.sqrt(2)
    return epsilon_lower(released(plan, 0.0, honest), released(plan, clean, honest), sd, plan.delta)


def test_the_promise_holds_and_is_nearly_reached():
    plan = planned()
    assert 0.6 * plan.epsilon < attack(plan) < plan.epsilon


def test_planted_faults_are_caught():
    plan = planned()
    halved = replace(plan, share_multiplier=plan.share_multiplier / 2)
    assert attack(plan, honest=1) > plan.epsilon, "one silo's noise is missing"
    assert attack(plan, clean=1.4) > plan.epsilon, "clipping is off"
    assert attack(halved) > plan.epsilon, "noise is halved"
