"""The law of integer noise, by chi-square against pmfs computed another way (scipy, float64), and by tail counts.

Every test function returns a p-value; a sound sampler fails one test with probability 1e-9 (chi-square's asymptotics
are good to a factor: every bin expects 1,000 draws and more), the whole file with probability below 1e-7.
Power: with 100 bins a scale wrong by 3 % moves the statistic by about 1.8e-3 a draw, so by 1,800 at 1e6 draws against
a threshold of 114 above its mean; one missing contributor of 50 by 2e-4 a draw, 800 at 4e6. Each fault named here is
missed with probability below 1e-9.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from cosilo.entropy import Context, Entropy
from cosilo.mechanisms import MECHANISMS
from cosilo.mechanisms.discrete_laplace import decay

FALSE_ALARM = 1e-9
BINS = 100
DISCRETE = ("discrete-gaussian", "skellam", "discrete-laplace")


@cache
def pmf(name: str, sigma: float, contributors: int = 1) -> NDArray[np.float64]:
    """Masses of -reach .. reach, the family's formula in float64; sums by repeated convolution."""
    if name == "skellam":
        sigma, contributors = sigma * math.sqrt(contributors), 1
    reach = math.ceil((45 if name == "discrete-laplace" else 12) * sigma + 30)
    k = np.abs(np.arange(-reach, reach + 1)).astype(np.float64)
    if name == "discrete-gaussian":
        one = np.exp(-0.5 * (k / sigma) ** 2)
    elif name == "skellam":
        one = skellam(k, sigma**2)
    else:
        one = np.exp(-decay(sigma) * k)
    one /= one.sum()
    total = one
    for _ in range(contributors - 1):
        total = np.convolve(total, one)
    return total


def skellam(k: NDArray[np.float64], variance: float) -> NDArray[np.float64]:
    """exp(-v) I_k(v); scipy's ive where it holds, else by the ratio of neighbours from the continued fraction."""
    if variance < 1e6:
        return np.asarray(special.ive(k, variance))
    order = np.arange(int(k.max()) + 1, 0, -1)
    ratios, ratio = np.empty(order.size), 0.0
    for i, n in enumerate(order):
        ratio = 1 / (2 * n / variance + ratio)
        ratios[i] = ratio
    half = np.concatenate([[0.0], np.cumsum(np.log(ratios[::-1]))])
    return np.asarray(np.exp(half[k.astype(int)]))


def draws(name: str, sigma: float, count: int, silo: str = "a", entropy: Entropy | None = None) -> NDArray[np.int64]:
    source = entropy or Entropy.system()
    stream = source.stream(Context(run=bytes(32), silo=silo, round=1, attempt=1, purpose="noise"))
    return MECHANISMS[name].sample(stream, count, sigma)


def law_pvalue(sample: NDArray[np.int64], masses: NDArray[np.float64]) -> float:
    """Chi-square over about 100 equally likely bins of neighbouring values."""
    reach = masses.size // 2
    bins = np.minimum((np.cumsum(masses) - masses / 2) * BINS, BINS - 1).astype(np.intp)
    _, bins = np.unique(bins, return_inverse=True)
    if np.abs(sample).max() > reach:
        return 0.0
    counts = np.bincount(bins[sample + reach])
    expected = np.bincount(bins, weights=masses) * sample.size
    counts = np.pad(counts, (0, expected.size - counts.size))
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), expected.size - 1))


def tail_pvalue(sample: NDArray[np.int64], masses: NDArray[np.float64], beyond: float) -> float:
    """Two-sided Poisson test of how many |x| > beyond."""
    far = np.abs(np.arange(masses.size) - masses.size // 2) > beyond
    expected = float(masses[far].sum()) * sample.size
    count = int((np.abs(sample) > beyond).sum())
    return 2 * min(float(stats.poisson.sf(count - 1, expected)), float(stats.poisson.cdf(count, expected)))


@pytest.mark.parametrize("sigma", [0.5, 3.0, 10.0, 300.0, 1e4])
@pytest.mark.parametrize("name", DISCRETE)
def test_law(name: str, sigma: float):
    sample = draws(name, sigma, 10_000_000)
    masses = pmf(name, sigma)
    assert law_pvalue(sample, masses) > FALSE_ALARM
    assert stats.binomtest(int((sample > 0).sum()), int((sample != 0).sum())).pvalue > FALSE_ALARM
    for sds in (3, 4, 5):
        assert tail_pvalue(sample, masses, sds * sigma) > FALSE_ALARM


@pytest.mark.parametrize("sigma", [0.5, 3.0, 10.0, 300.0, 1e4])
@pytest.mark.parametrize("name", DISCRETE)
def test_a_wrong_scale_is_rejected(name: str, sigma: float):
    """Noise that is 0.97 or 1.03 of the planned sd."""
    sample = draws(name, sigma, 2_000_000)
    for factor in (0.97, 1.03):
        assert law_pvalue(sample, pmf(name, sigma / factor)) < FALSE_ALARM


@pytest.mark.parametrize("sigma", [10.0, 1e4])
def test_tails_reach_beyond_six_sd(sigma: float):
    """1e8 draws: 57 beyond 5 sd, 0.2 beyond 6; the tables' own masses are checked exactly in tests/mechanisms."""
    entropy, name = Entropy.system(), "discrete-gaussian"
    largest = [np.abs(draws(name, sigma, 10_000_000, f"silo {i}", entropy)) for i in range(10)]
    far = np.concatenate([x[x > 4 * sigma] for x in largest])
    k = np.abs(np.arange(pmf(name, sigma).size) - pmf(name, sigma).size // 2)
    for sds in (5, 6):
        expected = float(pmf(name, sigma)[k > sds * sigma].sum()) * 1e8
        count = int((far > sds * sigma).sum())
        assert stats.poisson.sf(count - 1, expected) > FALSE_ALARM
        assert stats.poisson.cdf(count, expected) > FALSE_ALARM
    thin = int(((far > 5 * sigma) & (far > 5 / 0.9 * sigma)).sum())
    assert stats.poisson.cdf(thin, float(pmf(name, sigma)[k > 5 * sigma].sum()) * 1e8) < FALSE_ALARM, "lost tails show"


def test_wide_laws_in_standard_units():
    """Where no pmf fits in memory: quantile bins of the normal law, which is within 1e-9 of it from sd 1e5 on."""
    edges = stats.norm.ppf(np.linspace(0, 1, BINS + 1)[1:-1])
    for sigma in (1e5, 2.0**30, 2.0**36):
        sample = (draws("discrete-gaussian", sigma, 4_000_000) + 0.0) / sigma
        for factor, sound in ((1.0, True), (0.97, False), (1.03, False)):
            counts = np.bincount(np.searchsorted(edges, sample * factor), minlength=BINS)
            assert bool(stats.chisquare(counts).pvalue > FALSE_ALARM) is sound


def test_skellam_at_the_end_of_its_range():
    sigma = 2.0**17
    sample = draws("skellam", sigma, 4_000_000)
    masses = pmf("skellam", sigma)
    assert law_pvalue(sample, masses) > FALSE_ALARM
    assert law_pvalue(np.rint(sample * 1.03).astype(np.int64), masses) < FALSE_ALARM


@pytest.mark.parametrize("contributors", [2, 10, 50])
@pytest.mark.parametrize("name", DISCRETE)
def test_sum_of_contributors_and_a_missing_one(name: str, contributors: int):
    sigma, count = 3.0, 4_000_000
    total = draws(name, sigma, count, "first")
    last = draws(name, sigma, count, "last")
    for i in range(contributors - 2):
        total += draws(name, sigma, count, f"silo {i}")
    masses = pmf(name, sigma, contributors)
    assert law_pvalue(total + last, masses) > FALSE_ALARM
    assert law_pvalue(total, masses) < FALSE_ALARM


@pytest.mark.parametrize("name", DISCRETE)
def test_a_shared_stream_is_rejected(name: str):
    one, other = (draws(name, 3.0, 1_000_000, "a", Entropy.seeded(1, "same")) for _ in range(2))
    assert law_pvalue(one + other, pmf(name, 3.0, 2)) < FALSE_ALARM
    fresh = draws(name, 3.0, 1_000_000, "a", Entropy.seeded(2, "same"))
    assert law_pvalue(one + fresh, pmf(name, 3.0, 2)) > FALSE_ALARM


def test_neighbouring_draws_are_independent():
    """Signs and sizes of draws at lags 1, 2, 512 and a block: correlations of 4e6 pairs within 6.2 / 2000."""
    for sigma in (10.0, 1e5):
        sample = draws("discrete-gaussian", sigma, 4_000_000) / sigma
        for lag in (1, 2, 512, 1 << 15, 1 << 16):
            for values in (sample, sample**2 - 1):
                correlation = float(np.mean(values[lag:] * values[:-lag]) / np.mean(values**2))
                assert abs(correlation) < 6.2 / math.sqrt(values.size - lag)
