"""One contract for every accountant: flattening, bounds, monotonicity, extreme inputs in bounded processor time."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosilo.accounting import Accountant, delta, epsilon, epsilon_and_method, epsilon_of_mu, flatten
from cosilo.errors import ConfigError
from cosilo.privacy import Bound, Composed, Event, Gaussian, PoissonSampled, Repeated

ACCOUNTANTS: list[Accountant] = ["auto", "pld", "rdp"]
GRID = 1.003  # two grids of different step may disagree by this factor


def sampled(z: float, rate: float, uses: int) -> Event:
    return Repeated(uses, PoissonSampled(rate, Gaussian(z)))


def check_bound(bound: Bound) -> None:
    assert not math.isnan(bound.upper)
    assert bound.upper >= 0
    assert bound.lower is None or 0 <= bound.lower <= bound.upper


@pytest.mark.parametrize(
    ("event", "uses"),
    [
        (Gaussian(2), {(2, 1): 1}),
        (Repeated(3, Repeated(4, Gaussian(2))), {(2, 1): 12}),
        (Repeated(0, Gaussian(2)), {}),
        (Composed(()), {}),
        (PoissonSampled(0, Gaussian(2)), {}),
        (PoissonSampled(1, Repeated(3, Gaussian(2))), {(2, 1): 3}),
        (PoissonSampled(0.5, PoissonSampled(0.1, Gaussian(2))), {(2, 0.05): 1}),
        (PoissonSampled(0.5, Repeated(4, Gaussian(2))), {(1, 0.5): 1}),
        (PoissonSampled(0.5, Composed((Gaussian(3), Gaussian(4)))), {(2.4, 0.5): 1}),
        (PoissonSampled(0.5, Repeated(1, PoissonSampled(0.5, Gaussian(2)))), {(2, 0.25): 1}),
        (PoissonSampled(0.5, Composed((Gaussian(0), Gaussian(4)))), {(0, 0.5): 1}),
        (Composed((Gaussian(2), sampled(2, 0.1, 3), Repeated(2, sampled(2, 0.1, 2)))), {(2, 1): 1, (2, 0.1): 7}),
    ],
)
def test_flatten(event: Event, uses: dict[tuple[float, float], int]) -> None:
    flat = flatten(event).gaussian
    assert sorted(flat.values()) == sorted(uses.values())
    for (z, rate), (expected_z, expected_rate) in zip(sorted(flat), sorted(uses), strict=True):
        assert (z, rate) == pytest.approx((expected_z, expected_rate))


def test_one_coin_for_several_sampled_releases_is_refused() -> None:
    with pytest.raises(ConfigError, match="coin is shared"):
        flatten(PoissonSampled(0.5, sampled(1, 0.1, 2)))


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("event", [Composed(()), Repeated(0, Gaussian(1)), PoissonSampled(0, Gaussian(0))])
def test_nothing_released_costs_nothing(event: Event, accountant: Accountant) -> None:
    assert epsilon(event, 1e-30, accountant) == Bound(0, 0)
    assert delta(event, 0, accountant) == Bound(0, 0)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_little_and_much_noise_compose(accountant: Accountant) -> None:
    """Uses far apart in noise, of which dp_accounting would take different Renyi orders."""
    little, much = sampled(2.0, 0.1, 3), sampled(200.0, 0.1, 5)
    together = epsilon(Composed((little, much)), 1e-5, accountant).upper
    assert epsilon(little, 1e-5, accountant).upper / GRID <= together < 1.3 * epsilon(little, 1e-5, accountant).upper


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_no_noise_is_no_privacy(accountant: Accountant) -> None:
    assert epsilon(Gaussian(0), 1e-5, accountant) == Bound(math.inf, math.inf)
    assert delta(Gaussian(0), 3.0, accountant) == Bound(1, 1)
    seen = delta(PoissonSampled(0.25, Gaussian(0)), 3.0, accountant)
    assert seen.lower == seen.upper == pytest.approx(0.25)
    rare = PoissonSampled(1e-6, Gaussian(0))
    assert epsilon(rare, 1e-5, accountant) == Bound(0, 0)  # the row is not in the batch with probability 1 - 1e-6
    assert epsilon(Composed((rare, Gaussian(1))), 1e-5, accountant) == Bound(None, math.inf)


def test_unsampled_is_exact() -> None:
    bound, method = epsilon_and_method(Repeated(20, Gaussian(math.sqrt(20) / 0.26805112)), 1e-5)
    assert method == "closed-form"
    assert bound.lower == bound.upper == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_every_accountant_is_above_the_closed_form(accountant: Accountant) -> None:
    exact = epsilon_of_mu(mu=math.hypot(0.5, 0.25), delta=1e-6)
    bound = epsilon(Composed((Gaussian(2), Gaussian(4))), 1e-6, accountant)
    assert exact <= bound.upper <= 1.25 * exact
    assert bound.lower is None or bound.lower <= exact


def test_pld_is_below_rdp_and_both_are_valid() -> None:
    event = sampled(1, 0.01, 1000)
    by_pld, by_rdp = epsilon(event, 1e-5, "pld"), epsilon(event, 1e-5, "rdp")
    assert by_pld.lower is not None
    assert by_pld.lower <= by_pld.upper <= by_rdp.upper
    assert by_rdp.upper == pytest.approx(2.1014, abs=1e-3)  # dp_accounting 0.6.0 RdpAccountant, default orders
    assert epsilon(event, 1e-5) == by_pld


def test_delta_and_epsilon_are_inverse() -> None:
    event = sampled(1, 0.01, 1000)
    for eps in (0.5, 1.8289, 2.5):
        bound = delta(event, eps)
        assert bound.lower is not None
        assert epsilon(event, bound.upper * 1.01).upper <= eps * GRID
        assert epsilon(event, bound.lower * 0.99).upper >= eps / GRID


RATES = st.floats(-3, 0).map(lambda e: 10.0**e)
NOISES = st.floats(-0.3, 1.5).map(lambda e: 10.0**e)
COUNTS = st.integers(1, 2000)


@settings(deadline=None, max_examples=15)
@given(NOISES, RATES, COUNTS, st.floats(-9, -2))
def test_monotone_and_ordered(z: float, rate: float, uses: int, log_delta: float) -> None:
    target = 10.0**log_delta
    base = epsilon(sampled(z, rate, uses), target)
    check_bound(base)
    slack = GRID * base.upper + 1e-3
    assert epsilon(sampled(1.3 * z, rate, uses), target).upper <= slack
    assert epsilon(sampled(z, rate / 1.3, uses), target).upper <= slack
    assert epsilon(sampled(z, rate, (uses + 1) // 2), target).upper <= slack
    assert epsilon(sampled(z, rate, uses), min(0.9, 1.3 * target)).upper <= slack
    unsampled = epsilon(Repeated(uses, Gaussian(z)), target)
    assert base.lower is None or base.lower <= unsampled.upper
    assert delta(sampled(z, rate, uses), base.upper * 1.05 + 1e-3).upper <= target * 1.01


@settings(deadline=None, max_examples=10)
@given(st.lists(st.tuples(NOISES, RATES, COUNTS), min_size=1, max_size=4), st.randoms())
def test_order_of_composition_is_irrelevant(parts: list[tuple[float, float, int]], random: object) -> None:
    events = [sampled(*part) for part in parts]
    shuffled = list(events)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis hands out a random.Random
    first, second = epsilon(Composed(tuple(events)), 1e-5, "rdp"), epsilon(Composed(tuple(shuffled)), 1e-5, "rdp")
    assert first.upper == pytest.approx(second.upper, rel=1e-12)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_rate_one_is_the_base(accountant: Accountant) -> None:
    assert epsilon(sampled(3, 1, 7), 1e-5, accountant) == epsilon(Repeated(7, Gaussian(3)), 1e-5, accountant)


def test_shares_add_up_to_one_noise() -> None:
    share, contributors = 0.7, 9
    total = epsilon(sampled(share * math.sqrt(contributors), 0.05, 100), 1e-5)
    assert total == epsilon(sampled(3 * share, 0.05, 100), 1e-5)


@pytest.mark.parametrize(
    ("z", "rate", "uses", "target"),
    [
        (z, rate, uses, target)
        for z, rate in [(1e-2, 1e-9), (1e4, 1e-9), (1.0, 1e-9), (1e-2, 0.5), (1e-2, 1.0), (1e4, 1.0), (1e4, 0.999)]
        for uses, target in [(1, 1e-5), (10_000_000, 1e-5), (10_000_000, 1e-30)]
    ],
)
def test_extreme_inputs_are_answered_in_time(z: float, rate: float, uses: int, target: float) -> None:
    began = time.process_time()
    bound = epsilon(sampled(z, rate, uses), target)
    check_bound(bound)
    assert math.isfinite(bound.upper)
    assert time.process_time() - began < 10
    unsampled = epsilon_of_mu(mu=math.sqrt(uses) / z, delta=target)
    assert bound.upper <= 1.3 * unsampled + 0.2  # sampling never costs; RDP's largest order leaves 0.1 at 1e-30


@pytest.mark.parametrize("uses", [10, 10_000_000])
def test_rdp_charges_its_own_rounding(uses: int) -> None:
    # At q = 1e-9 the computed Renyi divergence is exactly zero; claiming epsilon = 0 for it would be a guess.
    assert epsilon(sampled(1, 1e-9, uses), 1e-12, "rdp").upper > 0


@pytest.mark.parametrize("target", [0.0, 1.0, -1.0, math.nan])
def test_refuses_what_is_not_a_delta(target: float) -> None:
    with pytest.raises(ConfigError, match="delta must satisfy"):
        epsilon(Gaussian(1), target)


@pytest.mark.parametrize("eps", [-1.0, math.nan, math.inf])
def test_refuses_what_is_not_an_epsilon(eps: float) -> None:
    with pytest.raises(ConfigError, match="epsilon must be finite"):
        delta(Gaussian(1), eps)


def test_refuses_what_it_cannot_compute() -> None:
    with pytest.raises(ConfigError, match="no accountant 'moments'"):
        epsilon(Gaussian(1), 1e-5, "moments")  # type: ignore[arg-type] # that is the point
    with pytest.raises(ConfigError, match="outside of what can be computed"):
        epsilon(sampled(1e-9, 0.1, 1), 1e-5)
    with pytest.raises(ConfigError, match="must lie between 0 and 1e.15"):
        epsilon(Repeated(10**400, Gaussian(1)), 1e-5)
    with pytest.raises(ConfigError, match="cannot resolve delta"):
        epsilon(sampled(1, 0.01, 1000), 1e-30, "pld")


def test_importing_is_quick() -> None:
    code = "import sys, cosilo.accounting; print(sorted({'dp_accounting', 'scipy', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
