"""What every family answers: events, ranges, tails, distance, dominance."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from cosilo.entropy import Context, Entropy
from cosilo.errors import ConfigError
from cosilo.mechanisms import MECHANISMS
from cosilo.mechanisms.discrete_laplace import decay
from cosilo.privacy import DiscreteGaussian, Gaussian, Laplace, Pure, Skellam

EXACT = ("discrete-gaussian", "skellam", "discrete-laplace")


def sample(name: str, sigma: float, dim: int, silo: str = "a") -> NDArray[np.int64]:
    stream = Entropy.system().stream(Context(run=bytes(32), silo=silo, round=1, attempt=1, purpose="noise"))
    return MECHANISMS[name].sample(stream, dim, sigma)


def pmf(name: str, sigma: float) -> NDArray[np.float64]:
    k = np.abs(np.arange(-math.ceil(60 * sigma), math.ceil(60 * sigma) + 1)).astype(np.float64)
    if name == "skellam":
        return np.asarray(special.ive(k, sigma**2))
    masses = np.exp(-0.5 * (k / sigma) ** 2) if name == "discrete-gaussian" else np.exp(-decay(sigma) * k)
    return np.asarray(masses / masses.sum())


def test_registry():
    assert list(MECHANISMS) == ["discrete-gaussian", "skellam", "gaussian", "laplace", "discrete-laplace"]
    assert all(name == family.name for name, family in MECHANISMS.items())


def test_events():
    asked = {"l1": 8.0, "l2": 4.0, "sigma": 6.0, "contributors": 9, "dim": 5}
    assert MECHANISMS["discrete-gaussian"].event(**asked) == DiscreteGaussian(l2=4.0, sigma=6.0, contributors=9, dim=5)
    assert MECHANISMS["skellam"].event(**asked) == Skellam(l1=8.0, l2=4.0, sigma=6.0, contributors=9, dim=5)
    assert MECHANISMS["gaussian"].event(**asked) == Gaussian(4.5)
    laplace = MECHANISMS["laplace"].event(**asked)
    assert isinstance(laplace, Laplace)
    assert laplace.noise_multiplier == pytest.approx(6 / math.sqrt(2) / 8, rel=1e-14)
    assert laplace.noise_multiplier < 6 / math.sqrt(2) / 8, "rounded to the private side"
    pure = MECHANISMS["discrete-laplace"].event(**asked)
    assert isinstance(pure, Pure)
    masses = pmf("discrete-laplace", 6.0)
    assert pure.epsilon == pytest.approx(8 * math.log(masses[360] / masses[361]), rel=1e-12)


def test_discrete_laplace_has_the_sd_it_is_asked_for():
    for sigma in (0.5, 3.0, 300.0):
        masses = pmf("discrete-laplace", sigma)
        k = np.arange(masses.size) - masses.size // 2
        assert math.sqrt(float((masses * k * k).sum())) == pytest.approx(sigma, rel=1e-9)


def test_totals():
    for name, family in MECHANISMS.items():
        alone = name.endswith("laplace")
        assert family.total(2.0, 9) == (2.0 if alone else 6.0)
        with pytest.raises(ConfigError, match="at least one honest contributor"):
            family.total(1.0, 0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_refusals_name_the_range(name: str):
    family = MECHANISMS[name]
    for contributors in (1, 5):
        for sigma in (0.1, family.largest_sigma * 1.01, math.nan, math.inf, -3.0):
            with pytest.raises(ConfigError, match=re.escape(f"<= sigma <= {family.largest_sigma:g} lattice")):
                family.check(sigma, contributors)
            with pytest.raises(ConfigError, match="validated for"):
                family.sample(Entropy.system().stream(context()), 3, sigma)
        family.check(family.largest_sigma, contributors)
    with pytest.raises(ConfigError, match="at least one honest contributor"):
        family.check(10.0, 0)


def context() -> Context:
    return Context(run=bytes(32), silo="a", round=1, attempt=1, purpose="noise")


def test_discrete_gaussian_shares_need_sigma_three():
    check = MECHANISMS["discrete-gaussian"].check
    check(0.5, 1)
    check(3.0, 2)
    with pytest.raises(ConfigError, match="3 <= sigma <= .* for each of 2 contributors, got 2.9"):
        check(2.9, 2)


@pytest.mark.parametrize("name", EXACT)
def test_tails_bound_the_exact_ones_and_are_not_wasteful(name: str):
    tail = MECHANISMS[name].tail
    for sigma in (0.5, 3.0, 40.0):
        masses = pmf(name, sigma)
        for contributors in (1, 2, 5):
            total = masses
            for _ in range(contributors - 1):
                total = np.convolve(total, masses)
            k = np.abs(np.arange(total.size) - total.size // 2)
            for probability in (1e-2, 1e-6, 1e-12):
                bound = tail(sigma, contributors, probability)
                assert total[k > bound].sum() <= probability
                assert total[k > 0.55 * bound - 3].sum() > probability


def test_tails_of_the_rounded_families():
    assert MECHANISMS["gaussian"].tail(10.0, 9, 1e-9) == pytest.approx(30 * math.sqrt(2 * math.log(2e9)) + 4.5)
    laplace = MECHANISMS["laplace"].tail
    assert laplace(math.sqrt(2), 1, 1e-9) == pytest.approx(math.log(2e9) + 0.5, rel=1e-6)
    # The sum of two: P(|X1 + X2| > t) = (1 + t / 2) exp(-t) at scale 1.
    bound = laplace(math.sqrt(2), 2, 1e-9) - 1
    assert (1 + bound / 2) * math.exp(-bound) <= 1e-9
    many = laplace(1.0, 10_000, 1e-9) - 5_000
    assert 100 * stats.norm.isf(5e-10) < many < 1.12 * 100 * stats.norm.isf(5e-10)


def test_distance_is_claimed_only_where_it_is_proved():
    for name, family in MECHANISMS.items():
        assert family.inexact(100.0) == (2.0**-127 if name in EXACT else None)
        assert (family.limits is None) == (name in EXACT)
        assert (family.finest_sigma is None) == (name in EXACT)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_rounded_families_have_their_law(name: str):
    """Chi-square over 100 equally likely bins, false alarm 1e-9; a scale wrong by 3 % is rejected (power as in
    tests/statistical/test_noise_law.py).
    """
    sigma, count = 2.0**20, 1_000_000
    law = stats.norm(scale=sigma) if name == "gaussian" else stats.laplace(scale=sigma / math.sqrt(2))
    edges = law.ppf(np.linspace(0, 1, 101)[1:-1])
    drawn = sample(name, sigma, count)
    for factor, sound in ((1.0, True), (0.97, False), (1.03, False)):
        counts = np.bincount(np.searchsorted(edges, drawn * factor), minlength=100)
        assert bool(stats.chisquare(counts).pvalue > 1e-9) is sound


def hockey_stick(masses: NDArray[np.float64], shift: int, epsilon: float) -> float:
    moved = np.concatenate([np.zeros(shift), masses])
    still = np.concatenate([masses, np.zeros(shift)])
    return float(np.maximum(still - math.exp(epsilon) * moved, 0).sum())


@pytest.mark.parametrize("name", EXACT)
def test_a_sum_is_dominated_by_one_contributor(name: str):
    """Every epsilon: the sum's divergence is at most one contributor's; strictly below for the proper families, and
    for the Laplace kind with the same largest privacy loss (its tails decay at the same rate).
    """
    sigma, shift = 3.0, 2
    one = pmf(name, sigma)
    total = one
    for contributors in (2, 3, 4):
        total = np.convolve(total, one)
        for epsilon in (0.0, 0.1, 0.3, 0.5, 0.8):
            single, joint = hockey_stick(one, shift, epsilon), hockey_stick(total, shift, epsilon)
            assert joint <= single * (1 + 1e-12)
            if MECHANISMS[name].sum_dominating == "proper" and single > 1e-9:
                assert joint < 0.95 * single, contributors
    if name == "discrete-laplace":
        loss = np.log(total[total.size // 2 : -1] / total[total.size // 2 + 1 :])[:150].max()
        assert 0.9 * decay(sigma) < loss <= decay(sigma) * (1 + 1e-9)
        assert MECHANISMS[name].sum_dominating == "yes"
