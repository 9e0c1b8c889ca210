"""Plans: two numbers determine the third, noise shares fit the observer, contradictions say what to write."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from cosilo import accounting
from cosilo.errors import JobError
from cosilo.job import Job
from cosilo.planning import Facts, Plan, cautions, make_plan
from cosilo.privacy import Gaussian, Repeated


def plan(silos: int = 16, capacity: int = 1000, **sections: dict[str, Any]) -> Plan:
    return make_plan(job(**sections), Facts(capacities={f"s{i}": capacity for i in range(silos)}, dim=10))


def job(**sections: dict[str, Any]) -> Job:
    tree: dict[str, Any] = {
        "model": {"name": "logistic"},
        "privacy": {"epsilon": 1.0, "delta": 1e-5, **sections.pop("privacy", {})},
        "federation": {"rounds": 20, **sections.pop("federation", {})},
        **sections,
    }
    for table in tree.values():
        for key in [k for k, v in table.items() if v is None]:
            del table[key]
    return Job.parse(tree)


def test_epsilon_and_rounds_give_the_noise():
    # mu for (1, 1e-5) is 0.26805 (design 30); 20 rounds need z = sqrt(20) / mu.
    assert plan().noise_multiplier == pytest.approx(math.sqrt(20) / 0.26805, rel=1e-3)
    assert plan().epsilon <= 1.0


def test_epsilon_and_noise_give_the_rounds():
    found = plan(privacy={"noise_multiplier": 20.0}, federation={"rounds": None})
    assert found.rounds == math.floor((20 * 0.26805) ** 2)
    assert found.epsilon <= 1.0
    more = accounting.epsilon(Repeated(found.rounds + 1, Gaussian(20.0)), 1e-5).upper
    assert more > 1.0


def test_noise_and_rounds_give_epsilon():
    found = plan(privacy={"epsilon": None, "noise_multiplier": 16.0})
    ideal = accounting.epsilon(Repeated(20, Gaussian(16.0)), 1e-5).upper
    assert ideal <= found.epsilon <= 1.001 * ideal  # rounding, slack and sampler are paid for


def test_three_numbers_must_agree():
    assert plan(privacy={"noise_multiplier": 16.69}).noise_multiplier == 16.69
    with pytest.raises(JobError, match=r"costs epsilon = 1.76.*write noise_multiplier = 16.69"):
        plan(privacy={"noise_multiplier": 10.0})
    with pytest.raises(JobError, match="Remove one of the three"):
        plan(privacy={"noise_multiplier": 30.0})


def test_one_number_is_not_enough():
    with pytest.raises(JobError, match="Add federation.rounds"):
        plan(federation={"rounds": None})
    with pytest.raises(JobError, match="Two of privacy.epsilon"):
        plan(privacy={"epsilon": None})
    with pytest.raises(JobError, match=r"not even one round fits.*at least 3.73"):
        plan(privacy={"noise_multiplier": 1.0}, federation={"rounds": None})


@pytest.mark.parametrize(("against", "contributors"), [("server", 1), ("outsider", 15)])
def test_shares_are_sized_for_the_observer(against: str, contributors: int):
    found = plan(privacy={"against": against})
    assert found.share_multiplier == pytest.approx(found.noise_multiplier / math.sqrt(contributors))
    assert found.epsilon == pytest.approx(found.epsilon_against[against])


def test_against_the_server_plain_counts_one_silos_noise():
    found = plan(privacy={"against": "outsider"})
    one = accounting.epsilon(Repeated(20, Gaussian(found.share_multiplier)), 1e-5).upper
    assert found.epsilon_against["server"] == found.epsilon_against["local"] == pytest.approx(one, rel=1e-3)
    assert one > (found.epsilon_against["outsider"] or 0.0)


def test_colluders_and_missing_silos_leave_less_noise():
    found = plan(privacy={"against": "outsider", "colluding_silos": 3}, federation={"min_survivors": 12})
    assert found.honest == 9
    alone = plan(privacy={"against": "outsider", "colluding_silos": 15}, federation={"min_survivors": 3})
    assert alone.honest == 1  # the row's own silo is honest
    assert plan(silos=1).colluding_silos == 0
    for silos, colluders in ((16, 16), (8, 100), (1, 2)):
        with pytest.raises(JobError, match=f"colluding_silos = {colluders} leaves no honest silo among {silos}"):
            plan(silos=silos, privacy={"colluding_silos": colluders})


def test_a_silo_pays_for_its_own_rounds_only():
    found = plan(federation={"cohort": 4})
    assert {part.replies for part in found.silos.values()} == {5}
    assert found.noise_multiplier == pytest.approx(math.sqrt(5) / 0.26805, rel=1e-3)
    longer = plan(federation={"cohort": 4, "rounds": None}, privacy={"noise_multiplier": 20.0})
    assert longer.rounds == 28 * 16 // 4


def test_batch_size_is_a_rate_of_the_public_capacity():
    facts = Facts(capacities={"small": 100, "large": 1000}, dim=10)
    found = make_plan(job(local={"batch_size": 200}, federation={"rounds": 3}), facts)
    assert {name: part.sampling_rate for name, part in found.silos.items()} == {"small": 1.0, "large": 0.2}
    assert found.silos["small"].epsilon > found.silos["large"].epsilon
    assert found.epsilon == found.silos["small"].epsilon <= 1.0


def test_cohorts_must_fit():
    with pytest.raises(JobError, match="cohort = 17 exceeds the 16 silos"):
        plan(federation={"cohort": 17})
    with pytest.raises(JobError, match="min_survivors = 17 exceeds"):
        plan(federation={"min_survivors": 17})


def test_a_plan_round_trips_with_its_hash():
    one = plan()
    other = Plan.from_tree(json.loads(json.dumps(one.to_tree())))
    assert other == one
    assert other.hash == one.hash != plan(federation={"rounds": 21}).hash


def said(silos: int, capacity: int, **sections: dict[str, Any]) -> tuple[str, ...]:
    asked = job(**sections)
    return cautions(asked, make_plan(asked, Facts(capacities={f"s{i}": capacity for i in range(silos)}, dim=1)))


def test_cautions():
    assert said(3, 10) == ()
    assert said(2, 10, privacy={"against": "outsider"}) == ()  # one honest share: the server sees no more
    assert "not below 1/300000" in said(3, 10**5)[0]
    assert "against it epsilon is 1.466." in said(3, 10, privacy={"against": "outsider"})[0]
    assert "those silos use all rows" in said(3, 10, local={"batch_size": 10})[0]


def test_more_rounds_than_anyone_runs_are_refused():
    with pytest.raises(JobError, match="allows more than 10,000,000 rounds"):
        plan(privacy={"noise_multiplier": 1e9}, federation={"rounds": None})
