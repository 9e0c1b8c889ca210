"""Granularity, clamp and ring: rounding costs under 0.1 %, no sum leaves the ring, every choice is checked."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosilo.errors import ConfigError, JobError
from cosilo.job import Job
from cosilo.job.schema import Aggregation
from cosilo.mechanisms import MECHANISMS
from cosilo.planning import Facts, Plan, cautions, integers, make_plan

ADDITIVE = ["discrete-gaussian", "skellam", "gaussian", "laplace", "discrete-laplace"]


def asked(aggregation: dict[str, Any] | None = None, **sections: dict[str, Any]) -> Job:
    tree: dict[str, Any] = {
        "privacy": {"epsilon": 1.0, "delta": 1e-5, "against": "outsider", **sections.pop("privacy", {})},
        "federation": {"rounds": 20, **sections.pop("federation", {})},
        "aggregation": aggregation or {},
        **sections,
    }
    tree["privacy"] = {key: value for key, value in tree["privacy"].items() if value is not None}
    return Job.parse(tree)


def plan(job: Job, *, silos: int = 10, capacity: int = 5000, dim: int = 100) -> Plan:
    return make_plan(job, Facts(capacities={f"s{i}": capacity for i in range(silos)}, dim=dim))


@pytest.mark.parametrize("dim", [1, 100, 10**4, 10**6])
@pytest.mark.parametrize("capacity", [10, 10**3, 10**5])
def test_automatic_rounding_costs_less_than_a_tenth_of_a_percent(dim: int, capacity: int):
    found = plan(asked(), dim=dim, capacity=capacity)
    assert 0 < found.inflation < 1e-3
    assert found.ring_bits in (16, 32, 64)
    assert f"adds {found.inflation:.4%} to the sensitivity" in integers(found)
    assert not any("Rounding" in sentence for sentence in cautions(asked(), found))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(ADDITIVE),
    st.integers(1, 30),
    st.integers(1, 10**5),
    st.integers(1, 10**5),
    st.sampled_from([1, 7]),
    st.sampled_from([0.2, 1.0, 8.0]),
)
def test_a_planned_sum_cannot_leave_its_ring(mechanism, silos, capacity, dim, steps, epsilon):
    """The corner itself: every silo at its clamp in every step, and the noise at the edge of its range."""
    local = {"rule": "noisy-steps", "steps": steps, "lr": 1.0} if steps > 1 else {}
    privacy = {"mechanism": mechanism, "epsilon": epsilon}
    try:
        found = plan(asked(local=local, privacy=privacy), silos=silos, capacity=capacity, dim=dim)
    except ConfigError:  # a mechanism that cannot with these numbers; what it says is tested below
        return
    largest = steps * sum(found.lattice(silo).clamp_units for silo in found.silos)
    noise = MECHANISMS[mechanism].tail(found.sigma, silos * steps, 2.0**-60)
    assert largest + noise <= found.sum_bound < 2 ** (found.ring_bits - 1)
    unit = Fraction(found.granularity)
    # Nothing is cut: all rows of a silo at the clipping norm in one coordinate.
    assert all(part.clamp >= capacity * found.clipping_norm for part in found.silos.values())
    assert all(found.lattice(silo).clamp_units * unit >= Fraction(found.silos[silo].clamp) for silo in found.silos)


def test_own_choices_are_kept():
    found = plan(asked({"granularity": 0.001, "clamp": 40.0, "ring_bits": 24}))
    assert (found.granularity, found.ring_bits, found.silos["s0"].clamp) == (0.001, 24, 40.0)
    assert plan(asked({"granularity": 0.25})).ring_bits == 32
    assert plan(asked({"granularity": 0.25, "clamp": 10.0})).ring_bits == 16
    assert plan(asked({"ring_bits": 40})).ring_bits == 40
    rotated = plan(asked({"rotation": True}))
    assert (rotated.rotation, rotated.lattice("s0").coordinates) == (True, 128)


def test_a_ring_that_is_too_small_names_the_smallest_that_works():
    with pytest.raises(JobError) as caught:
        plan(asked({"granularity": 0.001, "ring_bits": 16}))
    text = f"{caught.value.what} {caught.value.fix}"
    assert "A ring of 16 bits is too small" in text
    assert "hold less than 32,768" in text
    bits = int(text.split("aggregation.ring_bits = ")[1].split(",", maxsplit=1)[0])
    assert plan(asked({"granularity": 0.001, "ring_bits": bits})).ring_bits == bits
    with pytest.raises(JobError, match=f"A ring of {bits - 1} bits is too small"):
        plan(asked({"granularity": 0.001, "ring_bits": bits - 1}))


def test_a_forced_small_ring_says_what_its_rounding_costs():
    job = asked({"ring_bits": 28})
    found = plan(job)
    assert found.inflation > 1e-3
    assert any("Rounding to a granularity" in sentence for sentence in cautions(job, found))
    # The price is real noise: the sensitivity in real units is larger by just that.
    assert found.sigma * found.granularity == pytest.approx(found.share_multiplier * (1 + found.inflation), rel=1e-9)


def test_a_clamp_that_cuts_is_said():
    job = asked({"clamp": 3.0})
    assert any("beyond 3 are cut" in sentence for sentence in cautions(job, plan(job)))


def test_noise_outside_of_the_samplers_range_is_refused_with_the_range():
    with pytest.raises(ConfigError, match="Discrete Gaussian noise is validated for 3 <= sigma"):
        plan(asked({"granularity": 10.0}, privacy={"epsilon": None, "noise_multiplier": 0.5}))
    with pytest.raises(ConfigError, match="Skellam noise is validated for 0.5 <= sigma <= 131072"):
        plan(asked({"granularity": 1e-6}, privacy={"mechanism": "skellam"}))


def test_an_epsilon_beyond_what_the_sampler_proves_is_refused():
    with pytest.raises(JobError, match=r"epsilon = 100 is beyond what discrete-gaussian noise can prove.*at most 65"):
        plan(asked(privacy={"epsilon": 100.0}))
    assert plan(asked(privacy={"epsilon": 65.0})).epsilon <= 65


def test_the_statement_s_items_add_up():
    found = plan(asked())
    assert found.roundings * found.rounding_failure == pytest.approx(1e-5 / 1024)
    assert found.draw_error is not None
    assert 0 < found.draw_error * found.dim * 200 < 1e-12
    assert found.overflow == 20 * 100 * 2.0**-60


def test_the_same_noise_costs_what_the_continuous_one_does():
    """Discrete Gaussian, slack, rounding and failures together: under 0.2 % more noise than the ideal Gaussian."""
    integer, real = plan(asked()), plan(asked(privacy={"mechanism": "gaussian"}))
    assert 1 < integer.noise_multiplier / real.noise_multiplier < 1.002
    assert integer.sigma * integer.granularity == pytest.approx(real.sigma * real.granularity, rel=2e-3)


def test_sections_have_the_documented_defaults():
    assert Aggregation() == Aggregation(ring_bits="auto", granularity=None, clamp=None, rotation=False)
    with pytest.raises(JobError, match=r"aggregation.ring_bits"):
        asked({"ring_bits": 15})


def test_noise_that_a_coarse_lattice_cannot_hold_is_raised_not_refused():
    """Shares below 3 lattice units are not exact sums: the search goes on to where they are."""
    job = asked(
        {"granularity": 0.25},
        privacy={"epsilon": 6.0, "colluding_silos": 0},
        local={"rule": "noisy-steps", "steps": 2, "lr": 1.0},
    )
    found = plan(job, silos=3, dim=1)
    assert found.sigma >= 3
    assert found.epsilon < 6


def test_silos_of_nearly_one_rate_pay_no_more_than_the_dearest():
    job = asked(privacy={"epsilon": 0.1}, local={"batch_size": 30_000}, federation={"rounds": 10})
    found = make_plan(job, Facts(capacities={"a": 30_000, "b": 30_001}, dim=10))
    assert found.silos["b"].sampling_rate < 1 == found.silos["a"].sampling_rate
    assert found.silos["b"].epsilon <= found.silos["a"].epsilon == found.epsilon <= 0.1


def test_what_no_finite_epsilon_covers_is_null_and_said():
    job = asked(privacy={"epsilon": 8.0}, federation={"rounds": 5})
    found = plan(job, silos=100)
    assert found.epsilon <= 8
    assert found.epsilon_against["server"] is None
    assert any("no finite epsilon can be proved" in sentence for sentence in cautions(job, found))
    with pytest.raises(JobError, match="No finite epsilon can be proved for so little noise"):
        plan(asked(privacy={"epsilon": None, "noise_multiplier": 0.02}))


def test_sampled_batches_are_planned_at_a_tiny_delta():
    found = plan(asked(privacy={"delta": 1e-12}, local={"sampling_rate": 0.1}, federation={"rounds": 200}))
    assert found.epsilon <= 1
    assert 0 < found.outgrown < 1e-12


def test_a_clamp_below_the_clipping_norm_bounds_the_sensitivity():
    """Both neighbours lie in the clamp, so no more noise is needed than for its diameter."""
    found = plan(asked({"clamp": 0.01}), dim=10)
    assert found.granularity < 0.001
    assert 0 < found.inflation < 1e-3
    assert found.l2 * found.granularity == pytest.approx(2 * 0.01 * 10**0.5, rel=1e-3)


def test_many_silos_are_planned_in_seconds():
    facts = Facts(capacities={f"s{i}": 1000 + i for i in range(1000)}, dim=100)
    began = time.monotonic()
    make_plan(asked(privacy={"colluding_silos": 0}), facts)
    assert time.monotonic() - began < 5


def test_a_batch_that_outgrows_its_slots_costs_all_silos_alike():
    """At a tiny delta the charge shows: the dearest silo's price has to cover it for the sampled ones."""
    job = asked(privacy={"epsilon": None, "noise_multiplier": 20.0, "delta": 1e-28}, local={"batch_size": 1000})
    found = make_plan(job, Facts(capacities={"a": 1000, "b": 1001}, dim=10))
    assert all(found.price(silo, part.replies)[0] <= found.epsilon * 1.002 for silo, part in found.silos.items())
    tiny = asked(privacy={"epsilon": None, "noise_multiplier": 20.0, "delta": 1e-29}, local={"batch_size": 1000})
    with pytest.raises(JobError, match="No finite epsilon"):
        make_plan(tiny, Facts(capacities={"a": 1000, "b": 1001}, dim=10))
