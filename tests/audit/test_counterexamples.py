"""Counterexamples to joint-steps: the design's table by the accountant, and the algorithm itself by simulation.

Every statistical test is exact (chi-square, normal, Clopper-Pearson) and raises a false alarm once in 1e9 runs;
noise is keyed afresh by the operating system in every run.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cosilo.accounting import delta, epsilon
from cosilo.audit import ErasedNoise, RevealedSign
from cosilo.entropy import Entropy
from cosilo.errors import ConfigError
from cosilo.privacy import Gaussian, Repeated

DELTA, FALSE_ALARM = 1e-5, 1e-9
TRIALS = 200_000
TABLE = [(10, 2, 1.39, 5.0e-4), (10, 11, 2.58, 2.4e-2), (51, 20, 4.50, 0.135), (100, 100, 9.39, 0.47)]


def claiming(silos: int, steps: int) -> ErasedNoise:
    return ErasedNoise.claiming(1.0, DELTA, silos=silos, steps=steps)


@pytest.mark.parametrize(("silos", "steps", "true_epsilon", "true_delta"), TABLE)
def test_the_designs_table(silos: int, steps: int, true_epsilon: float, true_delta: float) -> None:
    example = claiming(silos, steps)
    assert round(example.true_epsilon(DELTA), 2) == true_epsilon
    assert float(f"{example.true_delta(1.0):.{3 if true_delta == 0.135 else 2}g}") == true_delta
    assert example.claimed_epsilon(DELTA) == pytest.approx(1.0, rel=1e-9)
    assert example.claimed_delta(1.0) == pytest.approx(DELTA, rel=1e-9)


@pytest.mark.parametrize(("silos", "steps"), [(2, 2), (10, 10), (51, 20)])
def test_every_number_is_the_accountants_for_an_event(silos: int, steps: int) -> None:
    example = claiming(silos, steps)
    true = Gaussian(math.sqrt(example.true_variance) / steps)
    claimed = Repeated(steps, Gaussian(example.sigma * math.sqrt(silos)))
    assert example.true_epsilon(DELTA) == pytest.approx(epsilon(true, DELTA).upper, rel=1e-12)
    assert example.true_delta(1.0) == pytest.approx(delta(true, 1.0).upper, rel=1e-9)
    assert example.claimed_epsilon(DELTA) == pytest.approx(epsilon(claimed, DELTA).upper, rel=1e-9)


@pytest.mark.parametrize("silos", [2, 10, 51, 100])
@pytest.mark.parametrize("steps", [2, 3, 20, 1000])
def test_the_truth_lies_between_the_claim_and_the_unconditional_bound(silos: int, steps: int) -> None:
    example = claiming(silos, steps)
    assert example.claimed_mu < example.true_mu < example.unconditional_mu
    assert example.true_mu / example.claimed_mu == pytest.approx(math.sqrt(steps * silos / (steps + silos - 1)))


def within(sample: np.ndarray, mean: float, variance: float) -> tuple[bool, bool]:
    """Whether a Gaussian sample's mean and variance agree with these; each a false alarm once in 1e9."""
    tail, n = FALSE_ALARM / 2, len(sample)
    far = stats.norm.isf(tail) * math.sqrt(variance / n)
    low, high = stats.chi2.ppf(tail, n - 1), stats.chi2.isf(tail, n - 1)
    return abs(sample.mean() - mean) <= far, bool(low <= (n - 1) * sample.var(ddof=1) / variance <= high)


def test_the_algorithm_has_the_variance_of_the_counterexample_and_not_the_claimed_one() -> None:
    example = claiming(10, 10)
    assert example.sigma == pytest.approx(3.731, abs=5e-4)
    assert example.true_variance == pytest.approx(264.43, abs=0.01)
    assert example.claimed_variance == pytest.approx(1391.76, abs=0.01)
    assert example.clip_probability < 1e-300
    entropy = Entropy.system()
    for present, mean in ((True, 10.0), (False, 0.0)):
        totals = example.simulate(entropy, TRIALS, present=present)
        assert within(totals, mean, example.true_variance) == (True, True)
        assert within(totals, mean, example.claimed_variance)[1] is False
        assert stats.kstest(totals[::100], stats.norm(mean, math.sqrt(example.true_variance)).cdf).pvalue > FALSE_ALARM


def test_the_simulation_refutes_the_claim_by_itself() -> None:
    """A threshold test on the totals alone: epsilon > 1 at delta = 1e-5, Clopper-Pearson, mistaken once in 1e9."""
    example, entropy = claiming(51, 20), Entropy.system()
    threshold = example.steps / 2 + example.true_variance / example.steps
    hits = [int((example.simulate(entropy, 60_000, present=p) > threshold).sum()) for p in (True, False)]
    low = stats.beta.ppf(FALSE_ALARM / 2, hits[0], 60_000 - hits[0] + 1)
    high = stats.beta.isf(FALSE_ALARM / 2, hits[1] + 1, 60_000 - hits[1])
    assert low - math.e * high > 0.08  # delta at epsilon = 1; claimed 1e-5, true .135
    assert math.log((low - DELTA) / high) > 1.2


def test_fewer_examples_clip_and_the_closed_form_says_so() -> None:
    example = ErasedNoise(silos=3, steps=3, sigma=2.0, examples=2)
    assert example.clip_probability > 0.5
    totals = example.simulate(Entropy.system(), 20_000, present=False)
    assert not within(totals, 0.0, example.true_variance)[1]


def test_repeated_simulations_need_a_name_each() -> None:
    example, entropy = ErasedNoise(silos=2, steps=2, sigma=1.0), Entropy.seeded(1, "test")
    first = example.simulate(entropy, 50, present=True)
    assert not np.array_equal(first, example.simulate(entropy, 50, present=True, run=b"second"))
    again = example.simulate(Entropy.seeded(1, "test"), 50, present=True)
    assert np.array_equal(first, again)


@pytest.mark.parametrize(("silos", "revealed"), [(10, 1.887e-2), (51, 0.262), (100, 0.472)])
def test_a_revealed_sign_leaves_step_one_with_its_own_noise(silos: int, revealed: float) -> None:
    example, entropy = RevealedSign.claiming(1.0, DELTA, silos=silos), Entropy.system()
    assert example.claimed_delta == pytest.approx(DELTA, rel=1e-9)
    assert example.revealed_delta == pytest.approx(revealed, rel=2e-3)
    assert example.revealed_mu == pytest.approx(example.claimed_mu * math.sqrt(silos / 2))
    chances = [example.revealed_probability(present=present) for present in (True, False)]
    assert chances[0] - math.e * chances[1] == pytest.approx(example.revealed_delta, rel=1e-9)
    hits = [int(example.reads(example.simulate(entropy, 100_000, present=p)).sum()) for p in (True, False)]
    for hit, chance in zip(hits, chances, strict=True):
        assert stats.binomtest(hit, 100_000, chance).pvalue > FALSE_ALARM
    low = stats.beta.ppf(FALSE_ALARM / 2, hits[0], 100_000 - hits[0] + 1)
    high = stats.beta.isf(FALSE_ALARM / 2, hits[1] + 1, 100_000 - hits[1])
    assert low - math.e * high > 100 * DELTA


@pytest.mark.parametrize(
    "wrong",
    [{"silos": 1}, {"steps": 1}, {"sigma": 0.0}, {"sigma": math.nan}, {"sigma": math.inf}],
)
def test_what_is_no_counterexample_is_refused(wrong) -> None:
    with pytest.raises(ConfigError):
        ErasedNoise(**{"silos": 3, "steps": 3, "sigma": 1.0, **wrong})


def test_the_page_prints_the_accountants_numbers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "joint-steps.md").read_text(encoding="utf-8")
    for silos, steps, _, _ in TABLE:
        example = claiming(silos, steps)
        row = f"| {silos} | {steps} | {example.true_epsilon(DELTA):.2f} | {example.true_delta(1.0):.3g} "
        assert f"{row}| {example.unconditional_epsilon(DELTA):.2f} |" in page
