"""The certified slack against 60-digit arithmetic, and what it does to promises."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosilo.accounting import Accountant, epsilon, flatten
from cosilo.accounting.slack import discrete_gaussian_kl, gaussian_model, skellam_kl, sum_distance
from cosilo.privacy import Composed, DiscreteGaussian, Gaussian, Laplace, PoissonSampled, Repeated, Skellam

if TYPE_CHECKING:
    from collections.abc import Callable


def rounded_gaussian(k: int, sd: mp.mpf) -> mp.mpf:
    ends = [(mp.mpf(k) + half) / (sd * mp.sqrt(2)) for half in (-mp.mpf(1) / 2, mp.mpf(1) / 2)]
    return (mp.erfc(ends[0]) - mp.erfc(ends[1])) / 2


def discrete_gaussian(sd: int) -> list[mp.mpf]:
    weights = [mp.exp(-(mp.mpf(k) ** 2) / (2 * sd**2)) for k in range(16 * sd)]
    total = weights[0] + 2 * mp.fsum(weights[1:])
    return [weight / total for weight in weights]


def skellam(sd: int) -> list[mp.mpf]:
    return [mp.exp(-(sd**2)) * mp.besseli(k, sd**2) for k in range(16 * sd)]


@pytest.mark.parametrize(
    ("law", "bound", "loosest"), [(discrete_gaussian, discrete_gaussian_kl, 3), (skellam, skellam_kl, 100)]
)
@pytest.mark.parametrize("sd", [3, 5, 10, 30])
def test_bound_is_above_the_exact_divergence(
    law: Callable[[int], list[mp.mpf]], bound: Callable[[float], float], loosest: float, sd: int
) -> None:
    with mp.workdps(60):
        s = mp.sqrt(mp.mpf(sd) ** 2 - mp.mpf(1) / 12)
        terms = [p * mp.log(p / rounded_gaussian(k, s)) for k, p in enumerate(law(sd))]
        exact = float(terms[0] + 2 * mp.fsum(terms[1:]))
    assert exact < bound(sd**2) < loosest * exact


@pytest.mark.parametrize(("bound", "leading"), [(discrete_gaussian_kl, 1 / (14400 * 48)), (skellam_kl, 1 / 48)])
def test_leading_order(bound: Callable[[float], float], leading: float) -> None:
    power = 4 if bound is discrete_gaussian_kl else 2
    assert leading < bound(1e8) * 1e8**power < 10 * leading
    assert bound(8.9) == math.inf
    values = [bound(v) for v in (9.0, 10.0, 30.0, 1e3, 1e6, 1e12, 1e200)]
    assert values == sorted(values, reverse=True)
    assert values[-1] > 0


@pytest.mark.parametrize("v", [0.5, 9.0, 100.0, 1e4])
def test_ratios_of_bessel_functions(v: float) -> None:
    """Amos 1974, on which the Skellam proof rests."""
    for j in (0, 1, 2, 7, 30, 200, 2000):
        x, ratio = j + 0.5, mp.besseli(j + 1, v) / mp.besseli(j, v)
        assert v / (x + mp.sqrt((x + 1) ** 2 + v * v)) <= ratio <= v / (x + mp.sqrt(x * x + v * v))


def test_sum_of_discrete_gaussians() -> None:
    """The published bound on log-probability ratios against exact convolution."""
    assert sum_distance(3.0, 1) == 0
    assert sum_distance(0.4, 2) == math.inf
    assert 0 < sum_distance(3.0, 1000) < 1e-37
    assert sum_distance(3.0, 10**9) >= sum_distance(3.0, 5000) >= sum_distance(3.0, 4096) >= sum_distance(3.0, 2)
    for sigma in (0.5, 0.7):
        weights = {k: mp.exp(-(mp.mpf(k) ** 2) / (2 * sigma**2)) for k in range(-12, 13)}
        total = mp.fsum(weights.values())
        one = {k: w / total for k, w in weights.items()}
        two = {k: mp.fsum(one[i] * one.get(k - i, 0) for i in one) for k in range(-3, 4)}
        wide = {k: mp.exp(-(mp.mpf(k) ** 2) / (4 * sigma**2)) for k in range(-30, 31)}
        apart = max(abs(mp.log(two[k] * mp.fsum(wide.values()) / wide[k])) for k in two)
        assert apart <= sum_distance(sigma, 2)


def test_model() -> None:
    noise = DiscreteGaussian(l2=100, sigma=300, contributors=4, dim=1000)
    model = gaussian_model(flatten(Repeated(7, PoissonSampled(0.1, noise))))
    assert model is not None
    ((z, rate), count), distance = next(iter(model[0].items())), model[1]
    assert (rate, count) == (0.1, 7)
    assert z == pytest.approx(math.sqrt(4 * 300**2 - 1 / 12) / 100, rel=1e-15)
    assert distance == pytest.approx(math.sqrt(7 * 1000 * discrete_gaussian_kl(4 * 300**2) / 2), rel=1e-12)
    assert gaussian_model(flatten(Laplace(1.0))) is None
    assert gaussian_model(flatten(DiscreteGaussian(l2=1, sigma=1, contributors=1, dim=1))) is None
    together = Composed((noise, Gaussian(6.0)))
    behind_one_coin = gaussian_model(flatten(PoissonSampled(0.5, together)))
    assert behind_one_coin is not None
    assert next(iter(behind_one_coin[0])) == pytest.approx((1 / math.hypot(1 / z, 1 / 6), 0.5), rel=1e-12)


@pytest.mark.parametrize(("rate", "uses"), [(1.0, 1), (0.1, 1), (0.1, 100)])
def test_discrete_gaussian_costs_what_the_gaussian_costs(rate: float, uses: int) -> None:
    noise = DiscreteGaussian(l2=4000, sigma=2e4, contributors=1, dim=10_000)
    discrete = epsilon(Repeated(uses, PoissonSampled(rate, noise)), 1e-5).upper
    continuous = epsilon(Repeated(uses, PoissonSampled(rate, Gaussian(5.0))), 1e-5).upper
    assert continuous <= discrete <= 1.0001 * continuous


def test_coordinates_and_small_noise_cost() -> None:
    def upper(dim: int, sigma: float = 20.0) -> float:
        return epsilon(Repeated(10, Skellam(l1=50, l2=50, sigma=sigma, contributors=16, dim=dim)), 1e-5).upper

    dims = [upper(dim) for dim in (1, 100, 10_000, 10**6, 10**8)]
    assert dims == sorted(dims)
    assert dims[-1] == dims[-2]  # RDP does not look at the dimension
    noises = [upper(1000, sigma) for sigma in (5.0, 10.0, 20.0, 100.0, 1e4, 1e8)]
    assert noises == sorted(noises, reverse=True)


@settings(deadline=None, max_examples=30)
@given(st.floats(3, 1e5), st.integers(2, 1000), st.floats(1, 1e4))
def test_contributors_are_one_with_their_noise_together(sigma: float, contributors: int, l2: float) -> None:
    rules: list[Accountant] = ["auto", "rdp"]
    for rule in rules:
        many = DiscreteGaussian(l2=l2, sigma=sigma, contributors=contributors, dim=100)
        one = DiscreteGaussian(l2=l2, sigma=sigma * math.sqrt(contributors), contributors=1, dim=100)
        first, second = (epsilon(event, 1e-5, rule).upper for event in (many, one))
        assert first == pytest.approx(second, rel=1e-9)
