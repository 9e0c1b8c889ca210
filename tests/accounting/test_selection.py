"""Private selection against exact enumeration: the law of the best of K, and its true Renyi divergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr

from cosilo.accounting import (
    PoissonTrials,
    TrialLaw,
    TruncatedNegativeBinomial,
    delta,
    epsilon,
    flatten,
    mu_for,
    negative_binomial_of_mean,
    select,
)
from cosilo.accounting.renyi import ORDERS
from cosilo.accounting.selection import _hockey_sticks, _negative_binomial, _poisson
from cosilo.errors import ConfigError
from cosilo.privacy import Composed, Distance, Failure, Gaussian, Laplace, PoissonSampled, Pure, Repeated

LAWS: list[TrialLaw] = [
    TruncatedNegativeBinomial(1.0, 0.2),
    TruncatedNegativeBinomial(0.0, 0.05),
    TruncatedNegativeBinomial(-0.5, 0.01),
    TruncatedNegativeBinomial(3.0, 0.4),
    PoissonTrials(0.3),
    PoissonTrials(1.0),
    PoissonTrials(12.0),
]


def best_of(law: TrialLaw, p: np.ndarray, most: int = 2000) -> np.ndarray:
    """Law of the best result, "nothing" first: sums of P(K = k) (F(y)^k - F(y-)^k), shape (n + 1,)."""
    below = np.concatenate([[0.0], np.cumsum(p)])
    below[-1] = 1.0
    k = np.arange(most)
    weights = np.array([law.probability(int(trials)) for trials in k])
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    generating = np.array([weights[1:] @ x ** k[1:] for x in below])
    return np.concatenate([[weights[0]], np.diff(generating)])


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    here = p > 0
    return float(logsumexp(order * np.log(p[here]) + (1 - order) * np.log(q[here])) / (order - 1))


def either_way(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    return np.array([max(divergence(p, q, a), divergence(q, p, a)) for a in orders])


def hockey_stick(p: np.ndarray, q: np.ndarray, eps: float) -> float:
    return float(max(np.maximum(p - math.exp(eps) * q, 0).sum(), np.maximum(q - math.exp(eps) * p, 0).sum()))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_laws_add_up_and_have_their_mean(law: TrialLaw) -> None:
    weights = np.array([law.probability(k) for k in range(20_000)])
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    assert weights @ np.arange(20_000) == pytest.approx(law.mean, rel=1e-9)
    assert law.probability(-1) == 0.0


def test_the_law_is_the_papers() -> None:
    """Definition of the truncated negative binomial, its factors written out; geometric and logarithmic cases."""
    eta, gamma = 0.7, 0.15
    law = TruncatedNegativeBinomial(eta, gamma)
    for k in (1, 2, 5, 30):
        product = math.prod((at + eta) / (at + 1) for at in range(k))
        assert law.probability(k) == pytest.approx((1 - gamma) ** k / (gamma**-eta - 1) * product, rel=1e-12)
    assert TruncatedNegativeBinomial(1.0, 0.25).probability(3) == pytest.approx(0.25 * 0.75**2, rel=1e-12)
    assert TruncatedNegativeBinomial(1.0, 0.25).mean == pytest.approx(4.0)
    logarithmic = TruncatedNegativeBinomial(0.0, 0.25)
    assert logarithmic.probability(3) == pytest.approx(0.75**3 / 3 / math.log(4), rel=1e-12)
    assert TruncatedNegativeBinomial(1e-9, 0.25).mean == pytest.approx(logarithmic.mean, rel=1e-8)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("eps", [0.05, 0.5, 2.0])
def test_randomised_response_is_below_the_bound(law: TrialLaw, eps: float) -> None:
    """Two and three results, every place of the result that the row makes likelier."""
    yes = math.exp(eps)
    for p in ([yes, 1.0], [1.0, yes], [yes, 1.0, 1.0], [1.0, yes, 1.0], [1.0, 1.0, yes], [yes, yes, 1.0]):
        here = np.array(p) / sum(p)
        for q in (here[::-1], np.roll(here, 1)):
            true = either_way(best_of(law, here), best_of(law, q), ORDERS)
            assert np.all(true <= select(Pure(eps), law).divergences + 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.3, 3)), min_size=2, max_size=6),
    law=st.sampled_from(LAWS),
)
def test_the_theorems_hold_for_any_finite_pair(rows, law) -> None:
    """The formulas fed with the pair's own exact divergences and hockey sticks, not with bounds on them."""
    p = np.array([weight for weight, _ in rows])
    q = p * np.array([ratio for _, ratio in rows])
    p, q = p / p.sum(), q / q.sum()
    curve = either_way(p, q, ORDERS)
    if isinstance(law, PoissonTrials):
        deltas = np.array([hockey_stick(p, q, math.log1p(1 / (a - 1))) for a in ORDERS])
        bound = _poisson(law, curve, deltas)
    else:
        bound = _negative_binomial(law, curve, float(np.max(np.abs(np.log(p / q)))))
    assert np.all(either_way(best_of(law, p), best_of(law, q), ORDERS) <= bound + 1e-9)


def test_the_bound_is_nearly_reached() -> None:
    """A constant too large would show: (2 + eta) epsilon in the limit of many trials and a pure guarantee."""
    law, order = TruncatedNegativeBinomial(1.0, 2e-3), ORDERS[-1:]
    rare, better = 1e-6, 0.1  # a rare result likelier with the row, better ones likelier without
    p = np.array([1 - rare * math.e - better, rare * math.e, better])
    q = np.array([1 - rare - better * math.e, rare, better * math.e])
    true = float(either_way(best_of(law, p, 20_000), best_of(law, q, 20_000), order)[0])
    bound = float(select(Pure(1.0), law).divergences[-1])
    assert bound == pytest.approx(3 + math.log(law.mean) / (order[0] - 1), rel=1e-3)
    assert 0.97 * bound <= true <= bound


@pytest.mark.parametrize(("eta", "shape"), [(1.0, 1.0), (0.0, 0.0), (0.5, 0.5)])
def test_negative_binomials_agree_with_dp_accounting(eta: float, shape: float) -> None:
    curve = ORDERS / (2 * 4.0**2)
    law = negative_binomial_of_mean(eta, 20.0)
    theirs = np.array(rdp_privacy_accountant._compute_rdp_repeat_and_select(ORDERS, curve, 20.0, shape))
    assert select(Gaussian(4.0), law).divergences == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("mean", [1.0, 5.0, 50.0])
def test_poisson_is_dp_accountings_with_the_empty_selection_paid(mean: float) -> None:
    curve = ORDERS / (2 * 4.0**2)
    theirs = np.array(rdp_privacy_accountant._compute_rdp_repeat_and_select(ORDERS, curve, mean, math.inf))
    ours = select(Gaussian(4.0), PoissonTrials(mean)).divergences
    more = np.log1p(math.exp(-mean) / mean) / (ORDERS - 1)
    assert np.all(ours <= theirs + more + 1e-9)  # their delta is RDP's, ours the exact Gaussian one where smaller


@pytest.mark.parametrize(("eta", "mean"), [(1.0, 10.0), (0.0, 10.0), (-0.5, 300.0), (2.0, 1.01), (0.0, 1e6)])
def test_a_law_of_a_wanted_mean(eta: float, mean: float) -> None:
    assert negative_binomial_of_mean(eta, mean).mean == pytest.approx(mean, rel=1e-9)


def selected_gaussian_delta(mu: float, law: TruncatedNegativeBinomial, eps: float) -> float:
    """Exact delta of releasing the largest of K results N(0, 1) against N(mu, 1), geometric K, both ways."""
    x = np.linspace(-12, 14, 200_001)

    def cumulative(shift: float) -> np.ndarray:
        tail = ndtr(-(x - shift))
        return np.asarray(law.gamma * (1 - tail) / (law.gamma + (1 - law.gamma) * tail))

    p, q = np.diff(cumulative(mu)), np.diff(cumulative(0.0))
    return hockey_stick(p, q, eps)


@pytest.mark.parametrize("mean", [3.0, 20.0, 200.0])
def test_the_largest_of_gaussians_is_within_the_promise(mean: float) -> None:
    mu, law = 0.25, negative_binomial_of_mean(1.0, mean)
    promised = select(Gaussian(1 / mu), law).epsilon(1e-6)
    true = brentq(lambda e: math.log(max(selected_gaussian_delta(mu, law, e), 1e-300)) + math.log(1e6), 0.01, promised)
    assert true <= promised <= 5 * true


def test_selection_costs_more_than_a_run_and_more_trials_cost_more() -> None:
    event = Repeated(100, PoissonSampled(0.05, Gaussian(1.2)))
    single = epsilon(event, 1e-5, "rdp").upper
    for eta in (-0.5, 0.0, 1.0):
        costs = [select(event, negative_binomial_of_mean(eta, m)).epsilon(1e-5) for m in (1.5, 5.0, 30.0, 300.0)]
        assert single < costs[0]
        assert costs == sorted(costs)
    assert costs[-1] < 3.5 * single
    poisson = [select(event, PoissonTrials(m)).epsilon(1e-5) for m in (1.0, 5.0, 30.0)]
    assert poisson == sorted(poisson)


def test_poisson_takes_the_delta_of_sampled_runs_from_their_privacy_loss() -> None:
    event = Repeated(1000, PoissonSampled(0.01, Gaussian(1.0)))
    found = _hockey_sticks(flatten(event), np.full(ORDERS.shape, math.inf))
    for place in (0, 8, 60):
        bound = delta(event, math.log1p(1 / (ORDERS[place] - 1)))
        assert bound.lower is not None
        assert bound.lower <= found[place] == pytest.approx(bound.upper, rel=1e-3)
    assert select(event, PoissonTrials(10.0)).epsilon(1e-5) == pytest.approx(3.55, abs=0.01)


def test_laplace_noise_pays_the_pure_price_at_most() -> None:
    law = TruncatedNegativeBinomial(0.0, 0.001)
    assert select(Laplace(10.0), law).divergences[-1] <= 2 * 0.1 + math.log(law.mean) / 1023 + 1e-9


def test_failures_and_distances_are_paid_per_expected_trial() -> None:
    law = TruncatedNegativeBinomial(1.0, 0.1)
    noise = Gaussian(1 / mu_for(epsilon=1.0, delta=1e-6))
    chosen = select(Composed((noise, Failure(1e-8), Distance(2e-8))), law)
    assert chosen.failure == pytest.approx(1e-7)
    assert chosen.distance == pytest.approx(2e-7)
    found = chosen.epsilon(1e-5)
    plain = select(noise, law)
    assert found == pytest.approx(plain.epsilon(1e-5 - 1e-7 - (1 + math.exp(found)) * 2e-7), rel=1e-6)
    assert select(Composed((noise, Failure(1e-6))), law).epsilon(1e-5) == math.inf
    assert select(Gaussian(0.0), law).epsilon(1e-5) == math.inf
    assert select(Gaussian(0.0), PoissonTrials(2.0)).epsilon(1e-5) == math.inf


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TruncatedNegativeBinomial(-1.0, 0.5),
        lambda: TruncatedNegativeBinomial(math.nan, 0.5),
        lambda: TruncatedNegativeBinomial(1.0, 0.0),
        lambda: TruncatedNegativeBinomial(1.0, 1.0),
        lambda: PoissonTrials(0.0),
        lambda: PoissonTrials(math.inf),
        lambda: negative_binomial_of_mean(1.0, 1.0),
        lambda: select(Gaussian(1.0), PoissonTrials(1.0)).epsilon(0.0),
    ],
)
def test_wrong_parameters_are_refused(wrong) -> None:
    with pytest.raises(ConfigError):
        wrong()


def test_extreme_laws_stay_finite() -> None:
    for law in (TruncatedNegativeBinomial(1e3, 1e-300), TruncatedNegativeBinomial(-0.999, 1e-300), PoissonTrials(1e9)):
        assert not math.isnan(law.mean)
        assert not math.isnan(law.probability(10))
        assert not math.isnan(select(Gaussian(5.0), law).epsilon(1e-5))


def test_laws_at_the_edge_of_double_precision_never_cost_less_than_one_run():
    one = select(Gaussian(1e5), TruncatedNegativeBinomial(0.0, 0.5)).orders / 2e10
    for law in (TruncatedNegativeBinomial(-0.9, 1 - 2.0**-27), TruncatedNegativeBinomial(5e-324, 0.9)):
        assert law.mean >= 1
        assert (select(Gaussian(1e5), law).divergences >= one * (1 - 1e-12)).all()
    assert math.isinf(select(Composed((Gaussian(0.02), Distance(total_variation=1e-315))), law).epsilon(1e-5))
    for eta, mean in ((-0.999, 100.0), (1e300, 3.0)):
        with pytest.raises(ConfigError, match="No law with eta"):
            negative_binomial_of_mean(eta, mean)
