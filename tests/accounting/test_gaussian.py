"""Closed forms against 60-digit arithmetic and published numbers."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosilo.accounting import compose_mu, delta_of_mu, epsilon_of_mu, mu_for
from cosilo.errors import ConfigError

MUS = st.floats(-4, 3).map(lambda e: 10.0**e)
EPSILONS = st.floats(-3, 3).map(lambda e: 10.0**e)
DELTAS = st.floats(-300, -0.01).map(lambda e: 10.0**e)
ROUNDING = 1e-11  # erfcx is good to 1e-15, times a condition number of x^2 <= 1400 at the smallest float
ULPS = 2.0**-48  # where delta is 1 up to rounding, rounding decides


def oracle(mu: float, epsilon: float) -> float:
    """Dong, Roth, Su 2022, Corollary 1, digit by digit."""
    with mp.workdps(60):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        half = mp.mpf(1) / 2
        near, far = (e / m - m / 2) * mp.sqrt(half), (e / m + m / 2) * mp.sqrt(half)
        return float(half * mp.erfc(near) - mp.exp(e) * half * mp.erfc(far))


@settings(deadline=None, max_examples=150)
@given(MUS, EPSILONS)
def test_delta_agrees_with_60_digits(mu: float, epsilon: float) -> None:
    exact = oracle(mu, epsilon)
    assert delta_of_mu(mu=mu, epsilon=epsilon) == pytest.approx(exact, rel=ROUNDING, abs=1e-300)


@pytest.mark.parametrize("mu", [1e-12, 1e-6, 0.00999, 0.01001, 1.0, 7.9, 8.1, 100.0, 1e3])
@pytest.mark.parametrize("at", [0.0, 0.3, 1.0, 6.0, 30.0])
def test_delta_is_smooth_where_the_formula_changes(mu: float, at: float) -> None:
    epsilon = at * mu + mu * mu / 2
    assert delta_of_mu(mu=mu, epsilon=epsilon) == pytest.approx(oracle(mu, epsilon), rel=ROUNDING)
    assert delta_of_mu(mu=mu, epsilon=0) == pytest.approx(oracle(mu, 0.0), rel=ROUNDING)


@pytest.mark.parametrize(("epsilon", "mu"), [(1, 0.2681), (4, 0.9249)])  # design 30: golden
def test_mu_of_the_usual_promises(epsilon: float, mu: float) -> None:
    assert mu_for(epsilon=epsilon, delta=1e-5) == pytest.approx(mu, abs=1e-4)


def test_balle_wang_sigma() -> None:
    # Balle, Wang 2018, analytic Gaussian mechanism: sigma = 3.7306 at (1, 1e-5), sensitivity 1
    assert 1 / mu_for(epsilon=1, delta=1e-5) == pytest.approx(3.7306, abs=1e-4)


@settings(deadline=None, max_examples=150)
@given(MUS, DELTAS)
def test_epsilon_is_private_and_tight(mu: float, delta: float) -> None:
    epsilon = epsilon_of_mu(mu=mu, delta=delta)
    assert delta_of_mu(mu=mu, epsilon=epsilon) <= delta * (1 + ROUNDING)
    if epsilon > 0:
        assert delta_of_mu(mu=mu, epsilon=epsilon * (1 - 1e-9)) >= delta * (1 - ROUNDING)


@settings(deadline=None, max_examples=150)
@given(EPSILONS, DELTAS)
def test_mu_is_private_and_tight(epsilon: float, delta: float) -> None:
    mu = mu_for(epsilon=epsilon, delta=delta)
    assert epsilon_of_mu(mu=mu, delta=delta) <= epsilon
    assert delta_of_mu(mu=mu, epsilon=epsilon) <= delta * (1 + ROUNDING)
    assert epsilon_of_mu(mu=mu * (1 + 1e-9), delta=delta) >= epsilon * (1 - 1e-9)


@settings(deadline=None, max_examples=50)
@given(MUS, EPSILONS, DELTAS)
def test_monotone(mu: float, epsilon: float, delta: float) -> None:
    here = delta_of_mu(mu=mu, epsilon=epsilon)
    assert delta_of_mu(mu=mu, epsilon=epsilon * 1.1) <= here * (1 + ULPS)
    assert delta_of_mu(mu=mu * 1.1, epsilon=epsilon) >= here * (1 - ULPS)
    assert epsilon_of_mu(mu=mu, delta=min(delta * 1.1, 0.999)) <= epsilon_of_mu(mu=mu, delta=delta)


def test_composition_is_pythagoras() -> None:
    assert compose_mu([3.0, 4.0]) == 5.0
    assert compose_mu([]) == 0.0
    assert epsilon_of_mu(mu=0.0, delta=1e-30) == 0.0


@pytest.mark.parametrize("mu", [-1.0, math.nan, math.inf])
def test_refuses_what_is_not_a_mu(mu: float) -> None:
    with pytest.raises(ConfigError, match="gdp_mu must be finite"):
        epsilon_of_mu(mu=mu, delta=1e-5)


def test_refuses_to_overflow() -> None:
    with pytest.raises(ConfigError, match="overflows"):
        epsilon_of_mu(mu=1e200, delta=1e-5)
