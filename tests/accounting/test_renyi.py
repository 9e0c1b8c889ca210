"""Renyi curves of every noise against exact sums and integrals; published numbers of P1."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ive, logsumexp
from scipy.stats import binom

from cosilo.accounting import delta, epsilon, flatten
from cosilo.accounting.renyi import ORDERS, _amplified, bundle_divergences, pure_epsilon
from cosilo.errors import ConfigError
from cosilo.privacy import (
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    PoissonBinomial,
    PoissonSampled,
    Pure,
    Repeated,
    Skellam,
)

LATTICE = 10_000.0


def curve(event: Event) -> np.ndarray:
    (bundle, rate), count = next(iter(flatten(event).others.items()))
    return count * bundle_divergences(bundle, rate)


def at(event: Event, order: int) -> float:
    return float(curve(event)[ORDERS.tolist().index(order)])


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(logsumexp(order * p + (1 - order) * q) / (order - 1))


def log_skellam(v: float, shift: int) -> np.ndarray:
    k = np.arange(-250, 251) - shift
    return np.asarray(np.log(ive(np.abs(k), v)))


def log_discrete_gaussian(sigma: float, shift: int) -> np.ndarray:
    k = np.arange(-250, 251) - shift
    logs = -(k.astype(float) ** 2) / (2 * sigma**2)
    return np.asarray(logs - logsumexp(logs))


@pytest.mark.parametrize("order", [2, 3, 8, 32])
@pytest.mark.parametrize("shift", [1, 4])
def test_discrete_noise_is_above_the_exact_divergence(order: int, shift: int) -> None:
    skellam = Skellam(l1=shift, l2=shift, sigma=4, contributors=4, dim=1)
    exact = divergence(log_skellam(64, shift), log_skellam(64, 0), order)
    assert exact <= at(skellam, order) <= 1.5 * exact  # the published bound is loose far out
    gauss = DiscreteGaussian(l2=shift, sigma=8, contributors=1, dim=1)
    exact = divergence(log_discrete_gaussian(8, shift), log_discrete_gaussian(8, 0), order)
    assert exact * (1 - 1e-9) <= at(gauss, order) <= 1.001 * exact


@pytest.mark.parametrize("rate", [0.01, 0.3])
@pytest.mark.parametrize("order", [2, 5, 16])
def test_amplification_holds_both_ways(rate: float, order: int) -> None:
    base, moved = log_discrete_gaussian(8, 0), log_discrete_gaussian(8, 4)
    mixed = np.logaddexp(math.log1p(-rate) + base, math.log(rate) + moved)
    bound = at(PoissonSampled(rate, DiscreteGaussian(l2=4, sigma=8, contributors=1, dim=1)), order)
    exact = divergence(mixed, base, order)
    assert divergence(base, mixed, order) <= exact * (1 + 1e-9)
    assert exact * (1 - 1e-9) <= bound <= 1.001 * exact


@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.6, 0.99])
@pytest.mark.parametrize("order", [2, 3, 8, 40])
def test_amplification_needs_no_symmetry(rate: float, order: int) -> None:
    """Absence against presence, for random pairs of laws, against the formula with the larger of both divergences."""
    rng = np.random.default_rng(7)
    orders = np.arange(2, 1025, dtype=float)
    for _ in range(20):
        p, q = np.log(rng.dirichlet([0.3] * 4) + 1e-12), np.log(rng.dirichlet([0.3] * 4) + 1e-12)
        p, q = p - logsumexp(p), q - logsumexp(q)
        there, back = (logsumexp(np.outer(orders, s) + np.outer(1 - orders, t), axis=1) for s, t in ((p, q), (q, p)))
        both = np.maximum(there, back) / (orders - 1)
        bound = float(_amplified(both, rate)[ORDERS.tolist().index(order)])
        mixed = np.logaddexp(math.log1p(-rate) + q, math.log(rate) + p)
        assert max(divergence(q, mixed, order), divergence(mixed, q, order)) <= bound * (1 + 1e-9)


def test_amplification_of_next_to_nothing_is_positive_and_small() -> None:
    tiny = at(PoissonSampled(1e-9, DiscreteGaussian(l2=1, sigma=1, contributors=1, dim=1)), 2)
    assert tiny == pytest.approx(1e-18 * math.expm1(1), rel=1e-8)


@pytest.mark.parametrize("scale", [1e-2, 0.5, 1.0, 20.0, 1e4])
@pytest.mark.parametrize("order", [2, 10, 64])
def test_laplace(scale: float, order: int) -> None:
    with mp.workdps(60):
        b, a = mp.mpf(scale), mp.mpf(order)
        exact = mp.log(a / (2 * a - 1) * mp.exp((a - 1) / b) + (a - 1) / (2 * a - 1) * mp.exp(-a / b)) / (a - 1)
    assert float(exact) * (1 - 1e-12) <= at(Laplace(scale), order) <= float(exact) * (1 + 1e-4)


@pytest.mark.parametrize("eps", [1e-6, 0.1, 1.0, 30.0, 1e3])
def test_pure_is_randomised_response(eps: float) -> None:
    with mp.workdps(1000):
        p, a = mp.exp(eps) / (1 + mp.exp(eps)), mp.mpf(8)
        exact = float(mp.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1))
    assert exact * (1 - 1e-9) <= at(Pure(eps), 8) <= min(eps, 4 * eps * eps)
    assert at(Pure(eps), 8) <= exact * 1.01


def test_pure_guarantees_add_up_and_amplify() -> None:
    assert epsilon(Repeated(3, Pure(0.1)), 1e-300).upper == pytest.approx(0.3)
    assert epsilon(Repeated(3, Laplace(10.0)), 1e-300).upper == pytest.approx(0.3)
    assert pure_epsilon(((Pure(1.0), 2),), 0.1) == pytest.approx(math.log1p(0.1 * math.expm1(2)))
    many = epsilon(Repeated(1000, PoissonSampled(0.01, Laplace(1.0))), 1e-5)
    assert many.upper < 1000 * 0.01 * math.expm1(1) / 10
    assert epsilon(Pure(math.inf), 1e-5).upper == math.inf
    assert epsilon(Pure(0.0), 1e-5).upper == 0
    assert delta(Pure(1.0), 1.0 + 1e-9).upper < 1e-300
    with pytest.raises(ConfigError, match="no loss distribution"):
        epsilon(Laplace(1.0), 1e-5, "pld")


def counts(coins: list[float]) -> np.ndarray:
    law = np.array([1.0])
    for p in coins:
        law = np.convolve(law, [1 - p, p])
    return np.asarray(np.log(law))


@pytest.mark.parametrize(("trials", "contributors", "theta"), [(1, 3, 0.25), (3, 2, 0.25), (2, 3, 0.1)])
@pytest.mark.parametrize("order", [2, 16])
def test_poisson_binomial_is_above_every_pair(trials: int, contributors: int, theta: float, order: int) -> None:
    bound = at(PoissonBinomial(trials=trials, theta=theta, contributors=contributors, dim=1), order)
    rng = np.random.default_rng(1)
    worst = 0.0
    for draw in range(200):
        extreme = rng.choice([-theta, theta], contributors + 1)
        p = 0.5 + (extreme if draw < 100 else rng.uniform(-theta, theta, contributors + 1))
        others = [float(x) for x in np.repeat(p[2:], trials)]
        first, second = counts([float(p[0])] * trials + others), counts([float(p[1])] * trials + others)
        worst = max(worst, divergence(first, second, order))
    assert worst <= bound * (1 + 1e-9)
    assert bound <= 1.15 * worst


def test_poisson_binomial_of_many_is_covered_by_intervals() -> None:
    trials, contributors, theta = 8, 40, 0.25
    bound = at(PoissonBinomial(trials=trials, theta=theta, contributors=contributors, dim=1), 4)
    for heads in (0, 5, 100, 312):
        pool = np.convolve(
            binom.pmf(np.arange(heads + 1), heads, 0.75), binom.pmf(np.arange(313 - heads), 312 - heads, 0.25)
        )
        own = binom.pmf(np.arange(trials + 1), trials, 0.75)
        up, down = np.convolve(pool, own), np.convolve(pool, own[::-1])
        worth = (up > 1e-250) & (down > 1e-250)
        assert divergence(np.log(up[worth]), np.log(down[worth]), 4) <= bound
    gaussian = 4 * (2 * theta * trials) ** 2 / (2 * contributors * trials * 0.1875)
    assert gaussian / 1.5 < bound < 1.5 * gaussian


def test_sampling_a_poisson_binomial_is_no_discount() -> None:
    noise = PoissonBinomial(trials=4, theta=0.25, contributors=10, dim=3)
    assert epsilon(PoissonSampled(0.1, noise), 1e-5) == epsilon(noise, 1e-5)
    assert epsilon(noise, 1e-5).upper <= 3 * 4 * math.log(3)


TABLE_1 = [
    (1, 0.6903, [5.00, 2.78, 1.22, 0.64], [3.666, 1.777, 0.634, 0.311]),
    (10, 0.9020, [5.00, 2.61, 1.19, 0.72], [3.534, 1.753, 0.788, 0.476]),
    (50, 1.1794, [5.00, 2.86, 1.55, 1.03], [3.790, 2.149, 1.143, 0.744]),  # the paper prints 2.85
]


@pytest.mark.parametrize(("steps", "sigma", "paper", "by_pld"), TABLE_1)
def test_table_1(steps: int, sigma: float, paper: list[float], by_pld: list[float]) -> None:
    """P1 (arXiv 2407.19286), Table 1; its last column recomputed by PLD."""
    for parties, theirs, ours in zip((1, 2, 5, 10), paper, by_pld, strict=True):
        for dim in (1, 1000):
            l1 = LATTICE * min(math.sqrt(dim), LATTICE)
            noise = Skellam(l1=l1, l2=LATTICE, sigma=sigma * LATTICE, contributors=parties, dim=dim)
            event = Repeated(steps, PoissonSampled(0.1, noise))
            assert epsilon(event, 1e-5, "rdp", conversion="mironov").upper == pytest.approx(theirs, abs=0.01)
            assert epsilon(event, 1e-5, "rdp").upper < epsilon(event, 1e-5, conversion="mironov").upper
        gaussian = Repeated(steps, PoissonSampled(0.1, Gaussian(sigma * math.sqrt(parties))))
        assert epsilon(gaussian, 1e-5).upper == pytest.approx(ours, abs=1e-3)


def test_mironov_curve_and_refusals() -> None:
    event = Composed((Gaussian(2.0), Repeated(3, PoissonSampled(0.1, Gaussian(1.0)))))
    eps = epsilon(event, 1e-5, conversion="mironov").upper
    assert delta(event, eps, "rdp", conversion="mironov").upper == pytest.approx(1e-5, rel=1e-6)
    assert delta(event, eps, "rdp").upper < 1e-5
    with pytest.raises(ConfigError, match="belongs to rdp"):
        epsilon(event, 1e-5, "pld", conversion="mironov")
    with pytest.raises(ConfigError, match="no conversion"):
        epsilon(event, 1e-5, conversion="loose")  # type: ignore[arg-type] # that is the point


def test_mixed_noise_composes() -> None:
    both = Composed((Gaussian(3.0), Laplace(5.0), DiscreteGaussian(l2=10, sigma=50, contributors=1, dim=2)))
    alone = [epsilon(part, 1e-5).upper for part in both.events]
    assert max(alone) < epsilon(both, 1e-5).upper < sum(alone) + 0.3
    assert epsilon(PoissonSampled(0.1, both), 1e-5).upper < epsilon(both, 1e-5).upper / 2
