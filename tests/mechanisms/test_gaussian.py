"""The sampler's law, and that the test rejects noise that is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from cosilo.entropy import Context, Entropy
from cosilo.errors import ConfigError
from cosilo.mechanisms import MECHANISMS
from cosilo.privacy import Gaussian

GAUSSIAN = MECHANISMS["gaussian"]
DRAWS = 1_000_000
BINS = 100
FALSE_ALARM = 1e-9


def draws(silo: str, sd: float, entropy: Entropy | None = None) -> NDArray[np.float64]:
    source = entropy or Entropy.system()
    stream = source.stream(Context(run=bytes(32), silo=silo, round=1, attempt=1, purpose="noise"))
    return GAUSSIAN.sample(stream, DRAWS, sd)


def accepted(sample: NDArray[np.float64], sd: float) -> bool:
    """Chi-square over 100 equally likely bins, false alarm 1e-9.

    Power: scaling by 1.03 moves the statistic's noncentrality to about 1,300 at 1e6 draws against a threshold of
    213, so a wrong scale is missed with probability below 1e-9.
    """
    edges = stats.norm.ppf(np.linspace(0, 1, BINS + 1)[1:-1], scale=sd)
    counts = np.bincount(np.searchsorted(edges, sample), minlength=BINS)
    statistic = float(((counts - DRAWS / BINS) ** 2).sum() / (DRAWS / BINS))
    return statistic < float(stats.chi2.isf(FALSE_ALARM, BINS - 1))


@pytest.mark.parametrize("sd", [1e-3, 1.0, 1e4])
def test_law(sd: float):
    assert accepted(draws("a", sd), sd)


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_wrong_scale_is_rejected(factor: float):
    assert not accepted(draws("a", factor), 1.0)


def test_sum_of_contributors_and_a_missing_one():
    shares = [draws(f"silo {i}", 0.5) for i in range(10)]
    total = GAUSSIAN.total(0.5, 10)
    assert accepted(np.sum(shares, axis=0), total)
    assert not accepted(np.sum(shares[:-1], axis=0), total)


def test_a_shared_stream_is_rejected():
    one = draws("a", 1.0, Entropy.seeded(1, "same"))
    other = draws("a", 1.0, Entropy.seeded(1, "same"))
    assert not accepted(one + other, math.sqrt(2))


def test_tails_are_symmetric_and_reach_beyond_four_sd():
    # 1e6 draws: 63 expected beyond 4 sd in both tails together; Poisson two-sided at 1e-9.
    sample = draws("a", 1.0)
    beyond = int((np.abs(sample) > 4).sum())
    expected = 2 * stats.norm.sf(4) * DRAWS
    assert stats.poisson.sf(beyond - 1, expected) > FALSE_ALARM
    assert stats.poisson.cdf(beyond, expected) > FALSE_ALARM
    assert stats.binomtest(int((sample > 0).sum()), DRAWS).pvalue > FALSE_ALARM


def test_extreme_words_give_finite_draws():
    class Ends:
        def __init__(self, word: int) -> None:
            self.word = word

        def words(self, count: int) -> NDArray[np.uint64]:
            return np.full(count, self.word, dtype=np.uint64)

    sample: Callable[..., NDArray[np.float64]] = GAUSSIAN.sample
    for word, expected in ((0, -9.1), (1, 9.1), (2**64 - 1, 0.0), (2**64 - 2, 0.0)):
        assert sample(Ends(word), 1, 1.0)[0] == pytest.approx(expected, abs=0.2)


def test_messages_are_multiples_of_a_public_grid_whatever_the_input():
    """The low-order bits of float64 noise betray its input: without the grid, whether a message lies in the sampler's
    range tells "no row" from "one row" with delta 0.57 at every epsilon. On the grid both have the same range.
    """
    entropy = Entropy.system()
    grid = 2.0 ** (math.floor(math.log2(4.0)) - 24)
    for number, value in enumerate((0.0, 0.03, 0.5, 1 / 3)):
        stream = entropy.stream(Context(run=bytes(32), silo="a", round=number, attempt=1, purpose="noise"))
        message = GAUSSIAN.add_share(np.full(50_000, value), 1.0, 4.0, stream)
        steps = message / grid
        assert np.array_equal(steps, np.rint(steps))
        odd = int((steps % 2).sum())
        assert stats.binomtest(odd, 50_000).pvalue > FALSE_ALARM
        assert abs(message.mean() - value) < 6.2 * 4 / math.sqrt(50_000)


def test_noise_is_sized_for_the_rounded_sensitivity():
    """dim 1e6 at l2 1e-3 of the noise: rounding adds 2^-24 * 1,000 sd, 3 % of the sensitivity."""
    stream = Entropy.system().stream(Context(run=bytes(32), silo="a", round=1, attempt=1, purpose="noise"))
    message = GAUSSIAN.add_share(np.zeros(DRAWS), 1.0, 1000.0, stream)
    grid = 2.0 ** (math.floor(math.log2(1000.0)) - 24)
    assert accepted(message, 1000.0 * (1 + grid * 1000))
    assert not accepted(message, 1000.0)


def test_what_float64_cannot_add_exactly_is_refused_by_public_numbers():
    GAUSSIAN.check(3.0, 4.3, 60_000, 16)
    for numbers, what in (
        ((1.0, 1e-9, 1000, 3), "too small beside sums of 1000 rows in 3 silos"),
        ((1.0, 4e-4, 60_000, 16), "too small beside sums"),
        ((1e50, 1e60, 10, 3), "out of the range of floating point"),
        ((1e-50, 1e-60, 10, 3), "out of the range of floating point"),
    ):
        with pytest.raises(ConfigError, match=what):
            GAUSSIAN.check(*numbers)


def test_sums_at_the_edge_of_what_is_allowed_are_exact():
    """16 silos at the largest sums that pass: every partial sum of messages is a multiple of the grid."""
    share = 2e-3
    GAUSSIAN.check(1.0, share, 60_000, 16)
    grid = 2.0 ** (math.floor(math.log2(share)) - 24)
    stream = Entropy.system().stream(Context(run=bytes(32), silo="a", round=1, attempt=1, purpose="noise"))
    messages = [GAUSSIAN.add_share(np.full(1000, 60_000.0 - 1 / 3), 1.0, share, stream) for _ in range(16)]
    exact = [sum(int(m[i] / grid) for m in messages) for i in range(1000)]
    assert (np.sum(messages, axis=0) / grid).astype(object).tolist() == exact


def test_event_and_limits():
    assert GAUSSIAN.event(GAUSSIAN.total(2.0, 9)) == Gaussian(6.0)
    with pytest.raises(ConfigError, match="dim >= 1"):
        GAUSSIAN.sample(Entropy.system().stream(Context(run=b"", silo="", round=0, attempt=0, purpose="noise")), 0, 1.0)
    with pytest.raises(ConfigError, match="sd > 0"):
        draws("a", 0.0)
    with pytest.raises(ConfigError, match="at least one honest contributor"):
        GAUSSIAN.total(1.0, 0)
