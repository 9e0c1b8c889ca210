"""Failures and distances in the budget, discrete noise in calibration, noisy-steps, extreme inputs."""

from __future__ import annotations

import itertools
import math
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosilo.accounting import (
    calibrate_noise,
    calibrate_uses,
    delta,
    delta_of_mu,
    epsilon,
    epsilon_and_method,
    epsilon_of_mu,
    flatten,
)
from cosilo.errors import ConfigError
from cosilo.privacy import (
    Bound,
    Composed,
    DiscreteGaussian,
    Distance,
    Event,
    Failure,
    Gaussian,
    Laplace,
    PoissonBinomial,
    PoissonSampled,
    Pure,
    Repeated,
    Sensitivity,
    Skellam,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DELTA = 1e-5
L2 = 4000.0


def discrete(z: float, *, contributors: int = 1, dim: int = 1000) -> Event:
    return DiscreteGaussian(l2=L2, sigma=z * L2, contributors=contributors, dim=dim)


def skellam(z: float, *, contributors: int = 1, dim: int = 1000) -> Event:
    return Skellam(l1=L2 * math.sqrt(dim), l2=L2, sigma=z * L2, contributors=contributors, dim=dim)


def test_failures_and_distances_add_up_and_pass_no_coin() -> None:
    inner = Composed((Gaussian(2.0), Failure(1e-7), Distance(1e-8)))
    flat = flatten(Repeated(10, PoissonSampled(0.1, Repeated(2, inner))))
    assert flat.failure == pytest.approx(2e-6)
    assert flat.distance == pytest.approx(2e-7)
    ((z, rate), uses) = next(iter(flat.gaussian.items()))
    assert (z, rate, uses) == pytest.approx((math.sqrt(2), 0.1, 10))
    assert flatten(Repeated(0, Failure(0.5))).failure == 0
    assert flatten(PoissonSampled(0.0, Failure(0.5))).failure == 0.5


def test_failure_is_taken_from_delta() -> None:
    bound = epsilon(Composed((Gaussian(3.0), Failure(4e-6))), DELTA)
    assert bound == Bound(None, epsilon_of_mu(mu=1 / 3, delta=DELTA - 4e-6))
    assert epsilon(Composed((Gaussian(3.0), Failure(DELTA))), DELTA) == Bound(None, math.inf)
    assert epsilon(Failure(1e-6), DELTA) == Bound(0, 0)
    assert epsilon(Failure(1e-4), DELTA).upper == math.inf
    assert delta(Composed((Gaussian(3.0), Failure(1e-3))), 2.0).upper == pytest.approx(
        delta_of_mu(mu=1 / 3, epsilon=2.0) + 1e-3
    )


@settings(deadline=None, max_examples=60)
@given(st.floats(0.2, 30), st.floats(-12, -5).map(lambda e: 10.0**e), st.floats(-12, -5).map(lambda e: 10.0**e))
def test_distance_is_paid_at_the_promised_epsilon(z: float, distance: float, failure: float) -> None:
    found = epsilon(Composed((Gaussian(z), Distance(distance), Failure(failure))), DELTA).upper

    def total(eps: float) -> float:
        return delta_of_mu(mu=1 / z, epsilon=eps) + failure + (1 + math.exp(eps)) * distance

    if math.isinf(found):
        grid = [k / 100 for k in range(2000)]
        assert all(total(eps) > DELTA * (1 - 1e-6) for eps in grid)
    else:
        assert total(found) <= DELTA * (1 + 1e-9)
        assert found == 0 or total(found * (1 - 1e-6)) > DELTA
        assert delta(Composed((Gaussian(z), Distance(distance), Failure(failure))), found).upper <= DELTA * (1 + 1e-9)


@pytest.mark.parametrize("accountant", ["auto", "pld", "rdp"])
def test_every_accountant_pays(accountant: str) -> None:
    clean = Repeated(100, PoissonSampled(0.05, discrete(1.0)))
    dirty = Composed((clean, Failure(1e-6), Distance(1e-8)))
    before, after = (epsilon(event, DELTA, accountant).upper for event in (clean, dirty))  # type: ignore[arg-type] # names
    assert before < after < 1.1 * before


def test_calibration_pays_too_and_is_quick() -> None:
    def unsampled(z: float) -> Event:
        return Composed((Repeated(50, discrete(z, contributors=16, dim=10**6)), Failure(1e-6), Distance(1e-8)))

    def sampled(z: float) -> Event:
        return Repeated(1000, Composed((PoissonSampled(0.01, discrete(z, contributors=16)), Failure(1e-9))))

    for make, most in ((unsampled, 0.1), (sampled, 2.0), (lambda z: Repeated(50, skellam(z)), 0.2)):
        calibrate_noise(make, epsilon=2, delta=DELTA)  # imports
        began = time.process_time()
        z = calibrate_noise(make, epsilon=1, delta=DELTA)
        assert time.process_time() - began < most
        assert epsilon(make(z), DELTA).upper <= 1
        assert epsilon(make(z * (1 - 2e-4)), DELTA).upper > 1
    gaussian = calibrate_noise(lambda z: Repeated(50, Gaussian(4 * z)), epsilon=1, delta=DELTA - 1e-6)
    assert calibrate_noise(unsampled, epsilon=1, delta=DELTA) == pytest.approx(gaussian, rel=0.02)
    with pytest.raises(ConfigError, match="No noise_multiplier"):
        calibrate_noise(lambda z: Composed((discrete(z), Failure(DELTA))), epsilon=1, delta=DELTA)


@pytest.mark.parametrize("make", [Laplace, lambda z: Pure(1 / z if z > 0 else math.inf), skellam, discrete])
def test_every_noise_calibrates(make: Callable[[float], Event]) -> None:
    z = calibrate_noise(lambda z: Repeated(10, make(z)), epsilon=2, delta=DELTA)
    assert epsilon(Repeated(10, make(z)), DELTA).upper <= 2
    assert epsilon(Repeated(10, make(z * 0.9999)), DELTA).upper > 2
    uses = calibrate_uses(lambda n: Repeated(n, make(10.0)), epsilon=2, delta=DELTA)
    assert epsilon(Repeated(uses, make(10.0)), DELTA).upper <= 2 < epsilon(Repeated(uses + 1, make(10.0)), DELTA).upper


@pytest.mark.parametrize("make", [discrete, skellam])
def test_monotone(make: Callable[..., Event]) -> None:
    def upper(z: float = 1.0, contributors: int = 4, rate: float = 0.2, uses: int = 20) -> float:
        event = make(z, contributors=contributors)
        return epsilon(Repeated(uses, PoissonSampled(rate, event)), DELTA).upper

    noises = [upper(z=z) for z in (0.05, 0.3, 0.8, 1.5, 5.0, 100.0)]
    assert noises == sorted(noises, reverse=True)
    sums = [upper(contributors=n) for n in (1, 2, 5, 10, 100)]
    assert sums == sorted(sums, reverse=True)
    rates = [upper(rate=rate) for rate in (0.0, 1e-4, 0.01, 0.1, 0.5, 1.0)]
    assert rates == sorted(rates)
    counts = [upper(uses=uses) for uses in (0, 1, 2, 20, 300)]
    assert counts == sorted(counts)


def test_noisy_steps() -> None:
    """10 silos, 11 steps, one round: joint-steps = 1 costs 3.4 without its assumption."""

    def joint(share: float) -> Event:
        return Repeated(11, discrete(share, contributors=10))

    share = calibrate_noise(joint, epsilon=1, delta=DELTA)
    assert share == pytest.approx(math.sqrt(11 / 10) / 0.26805112, rel=1e-4)
    unconditional = Composed((Repeated(10, discrete(share)), discrete(share, contributors=10)))
    mu = math.sqrt(10 / share**2 + 1 / (10 * share**2))
    assert epsilon(unconditional, DELTA).upper == pytest.approx(epsilon_of_mu(mu=mu, delta=DELTA), rel=1e-6)
    assert epsilon(unconditional, DELTA).upper == pytest.approx(3.4468, abs=1e-3)


@pytest.mark.parametrize(
    ("rate", "uses", "target"), list(itertools.product([1e-9, 0.1, 1.0], [1, 10**7], [1e-5, 1e-30]))
)
@pytest.mark.parametrize("sigma", [1e-300, 1e-2, 3.0, 1e4, 1e300])
def test_extreme_inputs_have_an_answer(rate: float, uses: int, target: float, sigma: float) -> None:
    events: list[Event] = [
        DiscreteGaussian(l2=1e4, sigma=sigma, contributors=3, dim=10**9),
        Skellam(l1=1e8, l2=1e4, sigma=sigma, contributors=3, dim=10**9),
        Laplace(sigma),
        Pure(min(1 / sigma, 1e300)),
    ]
    for event in events:
        noise = Composed((PoissonSampled(rate, event), Failure(1e-40), Distance(1e-45)))
        bound, method = epsilon_and_method(Repeated(uses, noise), target)
        assert bound.upper >= 0
        assert method in ("closed-form", "pld", "rdp")
        assert uses > 1 or 0 <= delta(noise, 1.0).upper <= 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: DiscreteGaussian(l2=0, sigma=1, contributors=1, dim=1),
        lambda: DiscreteGaussian(l2=1, sigma=-1, contributors=1, dim=1),
        lambda: DiscreteGaussian(l2=1, sigma=1, contributors=0, dim=1),
        lambda: DiscreteGaussian(l2=1, sigma=1, contributors=1, dim=0),
        lambda: DiscreteGaussian(l2=math.nan, sigma=1, contributors=1, dim=1),
        lambda: Skellam(l1=math.inf, l2=1, sigma=1, contributors=1, dim=1),
        lambda: Skellam(l1=1, l2=1, sigma=math.nan, contributors=1, dim=1),
        lambda: Laplace(-1.0),
        lambda: Pure(math.nan),
        lambda: PoissonBinomial(trials=0, theta=0.25, contributors=1, dim=1),
        lambda: PoissonBinomial(trials=1, theta=0.5, contributors=1, dim=1),
        lambda: Failure(-1e-9),
        lambda: Distance(math.nan),
        lambda: Sensitivity(l2=1.0, l1=0.0),
    ],
)
def test_impossible_events_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()
