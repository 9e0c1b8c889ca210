"""Fractional Renyi orders of a sampled Gaussian against 30-digit integrals."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from cosilo.accounting import delta, epsilon
from cosilo.accounting.fractional import FRACTIONS, fractional_divergences
from cosilo.accounting.renyi import ORDERS, bundle_divergences
from cosilo.privacy import Event, Gaussian, PoissonSampled, Repeated


def exact(z: float, rate: float, order: float) -> float:
    """log E (1 - q + q e^w)^order / (order - 1) by quadrature."""
    with mp.workdps(30):
        q, a = mp.mpf(rate), mp.mpf(order)
        points = mp.linspace(-15 * z, order + 15 * z, 24)
        moment = mp.quad(
            lambda x: mp.npdf(x, 0, z) * (1 - q + q * mp.exp((2 * x - 1) / (2 * mp.mpf(z) ** 2))) ** a, points
        )
        return float(mp.log(moment) / (a - 1))


@pytest.mark.parametrize(("z", "rate"), [(1.0, 0.01), (0.3, 0.1), (5.0, 0.5), (40.0, 1e-3)])
@pytest.mark.parametrize("at", [0, 4, 89])
def test_bounds_the_integral_closely(z: float, rate: float, at: int) -> None:
    value, order = float(fractional_divergences(z, rate)[at]), float(FRACTIONS[at])
    true = exact(z, rate, order)
    assert true <= value <= true * (1 + 1e-6) + 2e-12 / (order - 1)


@pytest.mark.parametrize(("z", "rate"), [(0.05, 0.3), (1.0, 0.01), (30.0, 0.9), (1e4, 0.5)])
def test_lies_between_the_integer_orders(z: float, rate: float) -> None:
    """Renyi divergences grow with the order."""
    fractions, whole = fractional_divergences(z, rate), bundle_divergences(((Gaussian(z), 1),), rate)
    slack = 1e-11
    assert (ORDERS[:10] == np.arange(2, 12)).all()
    for order, value in zip(FRACTIONS[FRACTIONS > 2], fractions[FRACTIONS > 2], strict=True):
        at = int(order) - 2  # ORDERS start with 2, 3, 4 ...
        below, above = whole[at], whole[at + 1]
        assert below * (1 - 1e-9) - slack <= value <= above * (1 + 1e-9) + slack


def test_unsampled_is_the_gaussian_and_extremes_say_nothing() -> None:
    assert fractional_divergences(2.0, 1.0) == pytest.approx(FRACTIONS / 8)
    assert np.isinf(fractional_divergences(1e-3, 0.5)).all()
    assert np.isinf(fractional_divergences(1.0, 1e-12)).all()


@pytest.mark.parametrize("z", [1e3, 1e6, 1e7, 1e8, 1e9, 1e12, 1e15, 1e150, 1e300])
@pytest.mark.parametrize("rate", [1.0, 0.1, 1e-9])
@pytest.mark.parametrize("conversion", ["tight", "mironov"])
def test_next_to_nothing_has_a_delta_and_an_epsilon(z: float, rate: float, conversion: str) -> None:
    """Divergences so small that exp(-r) rounds to one: dp_accounting's own conversion raises a domain error there."""
    event: Event = Repeated(3, PoissonSampled(rate, Gaussian(z)))
    for at in (1e-12, 1.0):
        reached = delta(event, at, "rdp", conversion=conversion).upper  # type: ignore[arg-type] # names
        assert 0 < reached <= 1
        assert reached >= delta(event, at).upper * (1 - 1e-9) or conversion == "tight"
    # total variation is at most mu / sqrt(2 pi); RDP sees it through its divergences
    nothing = delta(event, 0.0, "rdp").upper
    assert nothing <= 2 * math.sqrt(3) / z + 1e-5
    for small in (1e-5, 1e-30):
        assert epsilon(event, small, "rdp", conversion=conversion).upper >= 0  # type: ignore[arg-type] # names
