"""Counts are exact binomials, sums decode without bias, the ranges are refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cosilo.entropy import Context, Entropy
from cosilo.errors import ConfigError
from cosilo.mechanisms import poisson_binomial as pb
from cosilo.privacy import PoissonBinomial


def stream(silo: str = "a"):
    return Entropy.system().stream(Context(run=bytes(32), silo=silo, round=1, attempt=1, purpose="noise"))


def test_probabilities_stay_inside_theta():
    vector = np.array([-5.0, -1.0, 0.0, 0.5, 1.0, 5.0, np.inf])
    assert pb.encode(vector, 1.0, 0.25).tolist() == [0.25, 0.25, 0.5, 0.625, 0.75, 0.75, 0.75]
    extreme = pb.encode(np.array([-1e300, 1e300]), 1e-3, 0.1)
    assert extreme[0] >= 0.5 - 0.1
    assert extreme[1] <= 0.5 + 0.1


@pytest.mark.parametrize("p", [0.25, 0.4, 0.75])
def test_counts_are_binomial(p: float):
    """Chi-square, false alarm 1e-9; p wrong by 3 % is rejected."""
    trials, count = 16, 200_000
    counts = np.bincount(pb.sample(stream(), np.full(count, p), trials), minlength=trials + 1)
    for assumed, sound in ((p, True), (0.97 * p, False), (1.03 * p, False)):
        expected = stats.binom.pmf(np.arange(trials + 1), trials, assumed) * count
        keep = expected > 20
        pooled, ideal = counts[keep], expected[keep]
        pooled = np.append(pooled, count - pooled.sum())
        ideal = np.append(ideal, count - ideal.sum())
        statistic = float(((pooled - ideal) ** 2 / ideal).sum())
        assert bool(stats.chi2.sf(statistic, keep.sum()) > 1e-9) is sound


def test_coins_are_exact_for_the_float():
    for p in pb.encode(np.linspace(-1, 1, 101), 1.0, 0.25):
        assert (float(p) * 2**64).is_integer()


def test_a_padded_sum_decodes_without_bias():
    rng = np.random.default_rng(1)
    vectors = rng.uniform(-2, 2, (3, 4000))
    sent = [pb.sample(stream(f"{i}"), pb.encode(x, 2.0, 0.25), 64) for i, x in enumerate(vectors)]
    total = np.sum([*sent, pb.padding(stream("absent"), 4000, 64)], axis=0)
    error = pb.decode(total, 2.0, 64, 0.25, 4) - vectors.sum(axis=0)
    # Variance of one coordinate at most 4 * 64 / 4 * (2 / (0.25 * 64))^2 = 1.
    assert abs(error.mean()) < 6.2 / np.sqrt(4000)
    assert 0.7 < error.var() < 1.1


def test_event_covers_every_probability_that_encode_gives():
    event = pb.event(trials=64, theta=0.1, contributors=4, dim=7)
    assert event == PoissonBinomial(trials=64, theta=event.theta, contributors=4, dim=7)
    low, high = pb.encode(np.array([-1.0, 1.0]), 1.0, 0.1)
    assert 0.5 - event.theta <= low <= high <= 0.5 + event.theta
    assert event.theta == pytest.approx(0.1, abs=1e-15)


@pytest.mark.parametrize(("numbers", "what"), [
    ((0, 0.1, 1), r"trials must lie in \[1, 65536\], got 0"),
    ((65537, 0.1, 1), r"trials must lie in \[1, 65536\]"),
    ((1, 0.3, 1), r"theta must lie in \(0, 0.25\], got 0.3"),
    ((1, 0.0, 1), "theta must lie in"),
    ((1, 0.1, 0), "at least one contributor"),
])  # fmt: skip
def test_refusals_name_the_range(numbers: tuple[int, float, int], what: str):
    with pytest.raises(ConfigError, match=what):
        pb.check(*numbers)


def test_bad_vectors_are_refused():
    with pytest.raises(ConfigError, match="not a number"):
        pb.encode(np.array([np.nan]), 1.0, 0.1)
    with pytest.raises(ConfigError, match="bound must be finite"):
        pb.encode(np.array([0.0]), 0.0, 0.1)
    for p in (0.2, 0.8, np.nan):
        with pytest.raises(ConfigError, match=r"outside \[1/4, 3/4\]"):
            pb.sample(stream(), np.array([p]), 4)
