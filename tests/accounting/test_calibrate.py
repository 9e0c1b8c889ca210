"""Calibration lands on the private side, close to the edge."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosilo.accounting import Accountant, calibrate_noise, calibrate_uses, epsilon, mu_for
from cosilo.errors import ConfigError
from cosilo.privacy import Composed, Event, Gaussian, PoissonSampled, Repeated

DELTA = 1e-5


def sampled(z: float, rate: float, uses: int) -> Event:
    return Repeated(uses, PoissonSampled(rate, Gaussian(z)))


@settings(deadline=None, max_examples=50)
@given(st.floats(-6, 2).map(lambda e: 10.0**e), st.floats(-30, -2).map(lambda e: 10.0**e), st.integers(1, 10**6))
def test_pure_gaussian_noise_is_exact(target: float, delta: float, uses: int) -> None:
    z = calibrate_noise(lambda z: Repeated(uses, Gaussian(z)), epsilon=target, delta=delta)
    assert z == pytest.approx(math.sqrt(uses) / mu_for(epsilon=target, delta=delta), rel=1e-9)
    assert epsilon(Repeated(uses, Gaussian(z)), delta).upper <= target


def test_golden_noise() -> None:
    z = calibrate_noise(lambda z: Repeated(20, Gaussian(z)), epsilon=1, delta=DELTA)
    assert z == pytest.approx(math.sqrt(20) / 0.26805112321, rel=1e-9)  # mu for (1, 1e-5), by mpmath


@pytest.mark.parametrize(
    ("uses", "z"),
    [(1, 0.5846), (10, 0.7644), (50, 1.0153)],  # design 30: PLD reaches (5, 1e-5) at q = 0.1
)
def test_golden_sampled_noise(uses: int, z: float) -> None:
    assert calibrate_noise(lambda z: sampled(z, 0.1, uses), epsilon=5, delta=DELTA) == pytest.approx(z, rel=1e-3)


@pytest.mark.parametrize(("accountant", "most"), [("auto", 3.0), ("rdp", 3.0)])
def test_sampled_noise_is_private_tight_and_quick(accountant: Accountant, most: float) -> None:
    epsilon(sampled(1, 0.01, 1000), DELTA)  # imports
    began = time.process_time()
    z = calibrate_noise(lambda z: sampled(z, 0.01, 1000), epsilon=1, delta=DELTA, accountant=accountant)
    assert time.process_time() - began < most
    assert epsilon(sampled(z, 0.01, 1000), DELTA, accountant).upper <= 1
    assert epsilon(sampled(z * (1 - 2e-4), 0.01, 1000), DELTA, accountant).upper > 1


def test_mixed_events_calibrate() -> None:
    def make(z: float) -> Event:
        return Composed((Gaussian(3 * z), sampled(z, 0.1, 10)))

    z = calibrate_noise(make, epsilon=2, delta=DELTA)
    assert epsilon(make(z), DELTA).upper <= 2
    assert epsilon(make(z * (1 - 5e-4)), DELTA).upper > 2


def test_small_epsilon_and_delta_are_bounded_in_time() -> None:
    began = time.process_time()
    for target, delta in [(1e-3, 1e-5), (1.0, 1e-30), (1e-9, 1e-30)]:
        z = calibrate_noise(lambda z: Repeated(1000, PoissonSampled(0.01, Gaussian(z))), epsilon=target, delta=delta)
        assert epsilon(sampled(z, 0.01, 1000), delta).upper <= target
    assert time.process_time() - began < 20


def test_no_noise_for_nothing() -> None:
    assert calibrate_noise(lambda z: Repeated(0, Gaussian(z)), epsilon=1, delta=DELTA) == 0
    assert calibrate_noise(lambda z: PoissonSampled(1e-7, Gaussian(z)), epsilon=1, delta=DELTA) == 0


def test_impossible_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match="No noise_multiplier"):
        calibrate_noise(lambda z: Composed((Gaussian(z), Gaussian(1))), epsilon=1, delta=DELTA)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.1, 8), st.floats(0.3, 300))
def test_pure_gaussian_uses_are_exact(target: float, z: float) -> None:
    uses = calibrate_uses(lambda n: Repeated(n, Gaussian(z)), epsilon=target, delta=DELTA)
    assert uses == 0 or epsilon(Repeated(uses, Gaussian(z)), DELTA).upper <= target
    assert epsilon(Repeated(uses + 1, Gaussian(z)), DELTA).upper > target


@pytest.mark.parametrize(("z", "rate", "target"), [(1.0, 0.01, 2.0), (3.0, 0.5, 4.0), (0.5, 0.01, 1.0)])
def test_sampled_uses_are_the_last_that_fit(z: float, rate: float, target: float) -> None:
    uses = calibrate_uses(lambda n: sampled(z, rate, n), epsilon=target, delta=DELTA)
    assert uses == 0 or epsilon(sampled(z, rate, uses), DELTA).upper <= target
    assert epsilon(sampled(z, rate, uses + 1), DELTA).upper > target


def test_uses_stop_at_the_limit() -> None:
    assert calibrate_uses(lambda n: sampled(1e6, 0.1, n), epsilon=1, delta=DELTA, limit=77) == 77
    assert calibrate_uses(lambda n: Repeated(n, Gaussian(0)), epsilon=1, delta=DELTA) == 0
    with pytest.raises(ConfigError, match="limit must be"):
        calibrate_uses(lambda n: Repeated(n, Gaussian(1)), epsilon=1, delta=DELTA, limit=0)


@pytest.mark.parametrize(("target", "delta"), [(0.0, DELTA), (math.nan, DELTA), (1.0, 0.0), (1.0, 1.0)])
def test_refuses_impossible_promises(target: float, delta: float) -> None:
    with pytest.raises(ConfigError):
        calibrate_noise(Gaussian, epsilon=target, delta=delta)
    with pytest.raises(ConfigError):
        calibrate_uses(lambda n: Repeated(n, Gaussian(1)), epsilon=target, delta=delta)
