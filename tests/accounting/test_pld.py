"""Loss distributions against integrals, independent convolutions, published numbers and dp_accounting itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from cosilo.accounting import compose_mu, delta, delta_of_mu, epsilon_of_mu
from cosilo.accounting.pld import loss_distribution
from cosilo.errors import ConfigError
from cosilo.privacy import Gaussian, PoissonSampled

if TYPE_CHECKING:
    from collections.abc import Callable

DELTA = 1e-5


def one_use(z: float, rate: float, epsilon: float) -> float:
    """delta(epsilon) of one sampled use: the integral of (P - e^epsilon Q)+ in both directions, 30 digits."""
    with mp.workdps(30):
        q, e = mp.mpf(rate), mp.exp(mp.mpf(epsilon))
        null: Callable[[mp.mpf], mp.mpf] = lambda x: mp.npdf(x, 0, z)  # noqa: E731 - a formula
        mixed: Callable[[mp.mpf], mp.mpf] = lambda x: (1 - q) * mp.npdf(x, 0, z) + q * mp.npdf(x, 1, z)  # noqa: E731

        def crossing(odds: mp.mpf) -> mp.mpf:
            """Where the sampled ratio 1 - q + q exp((2x - 1)/(2 z^2)) equals `odds`, -inf where it never does."""
            inner = (odds - 1 + q) / q
            return z * z * mp.log(inner) + mp.mpf(1) / 2 if inner > 0 else mp.mpf("-inf")

        far = 40 * z
        up = crossing(e)
        remove = mp.quad(lambda x: mixed(x) - e * null(x), mp.linspace(up, max(up, 0) + far, 20))
        down = crossing(1 / e)
        add = (
            0
            if down == mp.mpf("-inf")
            else mp.quad(lambda x: null(x) - e * mixed(x), mp.linspace(down - far, down, 20))
        )
        return float(max(remove, add))


@pytest.mark.parametrize(
    ("z", "rate", "epsilon"),
    [
        (1.0, 0.01, 0.1),
        (1.0, 0.01, 1.0),
        (0.5, 0.2, 2.0),
        (5.0, 0.5, 0.05),
        (2.0, 0.9, 0.5),
        (1.0, 1.0, 1.0),
        (20.0, 0.1, 0.001),
    ],
)
def test_one_use_is_the_integral(z: float, rate: float, epsilon: float) -> None:
    exact = one_use(z, rate, epsilon)
    losses = loss_distribution({(z, rate): 1}, 1e-10)
    assert losses.delta_lower(epsilon) <= exact <= losses.delta_upper(epsilon)
    assert losses.delta_upper(epsilon) == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize(
    ("z", "rate", "uses", "epsilon"),
    # design 30: golden; recomputed there with prv-accountant and dp_accounting's finest grid
    [(1.0, 0.01, 1_000, 1.828), (1.0, 0.01, 10_000, 6.188), (1.0, 0.01, 100_000, 25.57), (5.0, 1e-3, 1_000_000, 0.734)],
)
def test_golden_epsilons(z: float, rate: float, uses: int, epsilon: float) -> None:
    bound = loss_distribution({(z, rate): uses}, DELTA).epsilon(DELTA)
    assert bound.upper == pytest.approx(epsilon, rel=1.5e-3)
    assert bound.lower is not None
    assert 0.97 * epsilon < bound.lower <= epsilon * 1.0005


@pytest.mark.parametrize(("z", "uses"), [(5.0, 20), (60.0, 3_000), (1.0, 2), (0.3, 3)])
def test_composition_brackets_the_closed_form(z: float, uses: int) -> None:
    # At a rate of 1 - 1e-13 nothing is collapsed, so the FFT has to find the closed form.
    losses = loss_distribution({(z, 1 - 1e-13): uses}, DELTA)
    mu = compose_mu([1 / z] * uses)
    exact = epsilon_of_mu(mu=mu, delta=DELTA)
    bound = losses.epsilon(DELTA)
    assert bound.lower is not None
    assert bound.lower <= exact <= bound.upper
    assert bound.upper == pytest.approx(exact, rel=2e-3)
    assert bound.lower == pytest.approx(exact, rel=0.03)
    for epsilon in (exact / 2, exact, 1.2 * exact):
        delta = delta_of_mu(mu=mu, epsilon=epsilon)
        assert losses.delta_lower(epsilon) <= delta * (1 + 1e-9)
        assert losses.delta_upper(epsilon) >= delta * (1 - 1e-9)


def test_composition_brackets_an_independent_convolution() -> None:
    """T = 30, z = 1.2, q = 0.05, remove direction: losses on a fine grid, rounded down and up; no connect-the-dots."""
    z, rate, uses, step = 1.2, 0.05, 30, 2e-5
    x = np.linspace(-12 * z, 12 * z + 1, 4_000_001)
    weight = (x[1] - x[0]) * ((1 - rate) * np.exp(-(x**2) / 2 / z**2) + rate * np.exp(-((x - 1) ** 2) / 2 / z**2))
    weight /= math.sqrt(2 * math.pi) * z
    loss = np.log(1 - rate + rate * np.exp((2 * x - 1) / 2 / z**2))
    bracket = []
    for rounded in (np.floor(loss / step), np.ceil(loss / step)):
        low = int(rounded.min())
        one = np.bincount((rounded - low).astype(np.int64), weights=weight)
        size = 1 << 21
        composed = np.fft.irfft(np.fft.rfft(one, size) ** uses, size)
        losses = (np.arange(size) + uses * low) * step
        bracket.append(float(np.sum(np.maximum(-np.expm1(1.5 - losses[losses > 1.5]), 0) * composed[losses > 1.5])))
    ours = loss_distribution({(z, rate): uses}, DELTA)
    assert ours.delta_upper(1.5) >= bracket[0]
    assert ours.delta_lower(1.5) <= bracket[1]
    assert bracket[0] * 0.999 <= ours.delta_upper(1.5) <= bracket[1] * 1.01


def test_agrees_with_dp_accounting() -> None:
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.01, value_discretization_interval=1e-3, use_connect_dots=True
    )
    ours = loss_distribution({(1.0, 0.01): 100}, DELTA)
    composed = theirs.self_compose(100)
    assert ours.epsilon(DELTA).upper == pytest.approx(composed.get_epsilon_for_delta(DELTA), rel=1e-4)


@pytest.mark.parametrize("uses", [{(1.0, 0.01): 100}, {(0.3, 0.5): 3}, {(4.0, 1.0): 1}, {(1.0, 1e-6): 10}])
def test_the_search_for_epsilon_is_dp_accountings(uses: dict[tuple[float, float], int]) -> None:
    losses = loss_distribution(uses, 1e-9)
    for at in (0.9, 0.1, 1e-3, 1e-6, 1e-8):
        theirs = losses._composed.get_epsilon_for_delta(at)
        assert losses.epsilon_upper(at) == pytest.approx(theirs, rel=1e-5, abs=1e-9)


def test_different_uses_compose() -> None:
    mixed = loss_distribution({(1.0, 0.1): 20, (2.0, 0.3): 5, (4.0, 1.0): 1}, DELTA).epsilon(DELTA)
    reordered = loss_distribution({(4.0, 1.0): 1, (2.0, 0.3): 5, (1.0, 0.1): 20}, DELTA).epsilon(DELTA)
    fewer = loss_distribution({(1.0, 0.1): 20, (2.0, 0.3): 5}, DELTA).epsilon(DELTA)
    split = loss_distribution({(1.0, 0.1): 20, (2.0, 0.3): 5, (4 * math.sqrt(2), 1.0): 2}, DELTA).epsilon(DELTA)
    assert mixed.upper == pytest.approx(reordered.upper, rel=1e-9)
    assert mixed.upper == pytest.approx(split.upper, rel=1e-9)
    assert mixed.upper > fewer.upper


def test_repeating_by_hand_is_the_same() -> None:
    together = loss_distribution({(1.0, 0.1): 20}, DELTA).epsilon(DELTA).upper
    # two keys that differ in the last digit are composed as different mechanisms
    apart = loss_distribution({(1.0, 0.1): 10, (1.0 + 1e-12, 0.1): 10}, DELTA).epsilon(DELTA).upper
    assert together == pytest.approx(apart, rel=1e-6)


def test_refuses_a_delta_below_double_precision() -> None:
    with pytest.raises(ConfigError, match="cannot resolve delta"):
        loss_distribution({(1.0, 0.01): 1000}, 1e-30)


def test_a_delta_the_grid_does_not_resolve_is_never_promised() -> None:
    bound = loss_distribution({(1.0, 0.01): 1000}, DELTA).epsilon(1e-13)
    assert bound.upper == math.inf


def test_refuses_a_grid_that_would_explode() -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        loss_distribution({(0.01, 0.5): 10_000_000}, DELTA)


def test_rounding_of_the_composition_is_charged_where_nothing_else_is_left() -> None:
    """Far out the computed delta is zero; what double precision may have hidden, 2^-49 a use, is still owed."""
    losses = loss_distribution({(1.0, 0.01): 1000}, 1e-5)
    assert losses.delta_upper(500.0) >= 1000 * 2.0**-49


def test_an_underflowing_delta_is_not_zero() -> None:
    assert delta(Gaussian(15.0), 50.0).upper > 0
    assert delta(PoissonSampled(8e-5, Gaussian(15.0)), 3.49).upper > 0
