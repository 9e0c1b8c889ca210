"""Filters against every adaptive strategy, computed exactly by dynamic programming over the privacy loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from cosilo.accounting import FilterBudget, Spent, add, delta, epsilon, fits, mu_for, remaining
from cosilo.errors import ConfigError, RefusedError
from cosilo.privacy import (
    Composed,
    DiscreteGaussian,
    Distance,
    Event,
    Failure,
    Gaussian,
    Laplace,
    PoissonSampled,
    Pure,
    Repeated,
)

EPSILON, DELTA = 1.0, 1e-5
LOSSES = np.linspace(-12.0, 12.0, 2401)


@dataclass(frozen=True)
class Pair:
    """A sampled Gaussian: outputs x, their weights under the law that is watched, and log(watched / other) at x."""

    event: Event
    weights: np.ndarray
    losses: np.ndarray


def pair(z: float, rate: float = 1.0, *, removed: bool = False) -> Pair:
    """P = (1-rate) N(0, 1) + rate N(1/z, 1) against Q = N(0, 1); `removed`: Q watched."""
    m = 1 / z
    x = np.linspace(-9, 9 + m, 801)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    losses = np.log1p(rate * np.expm1(m * x - m * m / 2))
    event = Gaussian(z) if rate == 1 else PoissonSampled(rate, Gaussian(z))
    return Pair(event, density if removed else density * np.exp(losses), -losses if removed else losses)


def gaussian_after(t: np.ndarray, mu: float) -> np.ndarray:
    """Exact sup_S P(S) - e^t Q(S) of one Gaussian, t of any sign."""
    return np.asarray(ndtr(-t / mu + mu / 2) - np.exp(t) * ndtr(-t / mu - mu / 2))


def sampled_after(t: np.ndarray, z: float, rate: float) -> np.ndarray:
    """The same of a sampled Gaussian, row present against absent."""
    odds = np.exp(t) - (1 - rate)
    x = np.where(odds > 0, z * np.log(np.maximum(odds, 1e-300) / rate) + 0.5 / z, -np.inf)
    return np.asarray((1 - rate) * ndtr(-x) + rate * ndtr(1 / z - x) - np.exp(t) * ndtr(-x))


def worst_delta(moves: tuple[Pair, ...], allowed: Callable[[tuple[int, ...]], bool]) -> float:
    """Exact delta at EPSILON of the best adaptive strategy that may use counts of `moves` as `allowed` says.

    value(counts)[t] = the largest P(S) - e^t Q(S) from here on; linear interpolation of a function that is convex in
    e^t is from above up to the grid, 0.01.
    """

    def expected(move: Pair, later: np.ndarray) -> np.ndarray:
        left = LOSSES[:, None] - move.losses[None, :]
        ahead = np.interp(left, LOSSES, later, right=0.0)
        return np.asarray(np.where(left < LOSSES[0], -np.expm1(np.minimum(left, 0)), ahead) @ move.weights)

    memo: dict[tuple[int, ...], np.ndarray] = {}
    end = np.maximum(-np.expm1(LOSSES), 0.0)

    def value(counts: tuple[int, ...]) -> np.ndarray:
        if counts not in memo:
            best = end
            for place, move in enumerate(moves):
                after = tuple(count + (place == at) for at, count in enumerate(counts))
                if allowed(after):
                    best = np.maximum(best, expected(move, value(after)))
            memo[counts] = best
        return memo[counts]

    return float(np.interp(EPSILON, LOSSES, value((0,) * len(moves))))


def repeated(moves: tuple[Pair, ...], counts: tuple[int, ...]) -> Event:
    return Composed(tuple(Repeated(n, move.event) for n, move in zip(counts, moves, strict=True)))


BUDGETS = [
    FilterBudget(epsilon=EPSILON, delta=DELTA, kind="rdp", orders=(18,)),
    FilterBudget(epsilon=EPSILON, delta=DELTA, kind="rdp", orders=(15, 22)),
]


# -- the choice that breaks a list: 1.9e-5 where each pair alone has 1.0e-5 ------------------------------------------


def the_two_pairs() -> tuple[Event, Event, Event, float]:
    """First event, two second events, and the delta of choosing between them by the first result; by quadrature."""
    first, z = 0.2, 0.3
    x = np.linspace(-10, 10, 200_001)
    weights = np.exp(-((x - first) ** 2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    left = EPSILON - (first * x - first * first / 2)
    mu = math.sqrt(mu_for(epsilon=EPSILON, delta=DELTA) ** 2 - first**2)
    log_rate = brentq(lambda r: weights @ sampled_after(left, z, math.exp(r)) - DELTA, math.log(1e-6), math.log(0.05))
    rate = math.exp(log_rate)
    each = gaussian_after(left, mu), sampled_after(left, z, rate)
    assert [float(weights @ one) for one in each] == pytest.approx([DELTA, DELTA], rel=1e-6)
    return Gaussian(1 / first), Gaussian(1 / mu), PoissonSampled(rate, Gaussian(z)), float(weights @ np.maximum(*each))


def test_choosing_after_seeing_breaks_what_holds_for_each_list_and_the_filter_refuses_it() -> None:
    first, calm, leaky, adaptive = the_two_pairs()
    assert adaptive == pytest.approx(1.9e-5, abs=0.01e-5)
    for second in (calm, leaky):
        assert delta(Composed((first, second)), EPSILON).upper <= DELTA * 1.01  # the accountant allows either list
    gdp = FilterBudget(epsilon=EPSILON, delta=DELTA, kind="gdp")
    spent = add(gdp, Spent(), first)
    assert fits(gdp, spent, Gaussian(calm.noise_multiplier * (1 + 1e-9)))  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="unsampled"):
        fits(gdp, spent, leaky)
    for budget in BUDGETS:
        spent = add(budget, Spent(), first)
        assert not fits(budget, spent, calm)
        assert not fits(budget, spent, leaky)


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("budget", BUDGETS, ids=["one order", "two orders"])
def test_no_adaptive_strategy_exceeds_a_renyi_budget(budget: FilterBudget, *, removed: bool) -> None:
    moves = (pair(6.0, removed=removed), pair(2.5, 0.15, removed=removed))

    def allowed(counts: tuple[int, ...]) -> bool:
        return fits(budget, Spent(), repeated(moves, counts))

    assert allowed((2, 0))
    assert allowed((0, 1))
    assert not allowed((2, 1))
    exact = worst_delta(moves, allowed)
    assert 0.02 * DELTA < exact <= DELTA


def test_a_list_rule_used_adaptively_does_exceed_its_promise() -> None:
    first, calm, leaky, _ = the_two_pairs()
    moves = tuple(
        pair(e.event.noise_multiplier, e.sampling_rate) if isinstance(e, PoissonSampled) else pair(e.noise_multiplier)  # type: ignore[union-attr]
        for e in (first, calm, leaky)
    )
    lists = {(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1)}
    assert worst_delta(moves, lambda counts: counts in lists) == pytest.approx(1.904e-5, rel=0.01)
    assert worst_delta(moves, lambda counts: counts in lists - {(1, 0, 1)}) == pytest.approx(DELTA, rel=0.01)


def test_gaussian_trees_are_worth_exactly_the_budget() -> None:
    unit = mu_for(epsilon=EPSILON, delta=DELTA) / 2  # four units of mu^2
    budget = FilterBudget(epsilon=EPSILON, delta=DELTA * (1 + 1e-9), kind="gdp")
    moves = (pair(1 / unit), pair(1 / (unit * math.sqrt(2))))
    exact = worst_delta(moves, lambda counts: fits(budget, Spent(), repeated(moves, counts)))
    assert exact == pytest.approx(DELTA, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(
    share=st.floats(0.02, 0.98),
    cuts=st.lists(st.floats(-3, 3), min_size=1, max_size=6),
    parts=st.lists(st.floats(0, 1), min_size=7, max_size=7),
    kind=st.sampled_from(["gdp", "rdp"]),
)
def test_two_step_trees_of_gaussians_stay_below_delta(share, cuts, parts, kind) -> None:
    """The second noise is any step function of the first result, as small as the filter lets it be."""
    budget = FilterBudget(epsilon=EPSILON, delta=DELTA, kind=kind, orders=(20,) if kind == "rdp" else ())
    least = remaining(budget, Spent()).noise_multiplier
    z = least / math.sqrt(share)
    spent = add(budget, Spent(), Gaussian(z))
    tightest = remaining(budget, spent).noise_multiplier
    x = np.linspace(-9, 10, 20_001)
    weights = np.exp(-((x - 1 / z) ** 2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    left = EPSILON - (x / z - 0.5 / z / z)
    which = np.searchsorted(np.sort(cuts), x)
    total = 0.0
    for place in range(len(cuts) + 1):
        here = which == place
        second = tightest / math.sqrt(max(parts[place], 1e-3))
        add(budget, spent, Gaussian(second))
        total += float(weights[here] @ gaussian_after(left[here], 1 / second))
    assert total <= DELTA * (1 + 1e-6)


# -- against fixed lists --------------------------------------------------------------------------------------------

EVENTS = st.sampled_from(
    [
        Gaussian(20.0),
        PoissonSampled(0.05, Gaussian(2.0)),
        Laplace(30.0),
        Pure(0.02),
        DiscreteGaussian(l2=10.0, sigma=100.0, contributors=3, dim=7),
        PoissonSampled(0.1, Composed((Gaussian(9.0), Laplace(20.0)))),
        Repeated(3, PoissonSampled(0.01, Gaussian(0.9))),
    ]
)


@settings(max_examples=40, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=40), st.sampled_from([(16,), (24,), (40,), (14, 20, 64)]))
def test_what_a_filter_accepts_a_list_of_the_same_events_affords(events, orders) -> None:
    budget = FilterBudget(epsilon=EPSILON, delta=DELTA, kind="rdp", orders=orders)
    spent, taken = Spent(), []
    for event in events:
        if fits(budget, spent, event):
            before, spent = spent, add(budget, spent, event)
            taken.append(event)
            assert all(new >= old for new, old in zip(spent.losses, before.losses or (0.0,) * 9, strict=False))
            assert remaining(budget, spent).share <= remaining(budget, before).share
        else:
            with pytest.raises(RefusedError, match="nothing was released"):
                add(budget, spent, event)
    if taken:
        assert epsilon(Composed(tuple(taken)), DELTA, "rdp").upper <= EPSILON * (1 + 1e-9)


def test_one_order_loses_little_where_it_is_well_chosen() -> None:
    used = Gaussian(1 / 0.2)
    listed = epsilon(used, DELTA, "rdp").upper

    def affords(epsilon: float) -> bool:
        budgets = (FilterBudget(epsilon=epsilon, delta=DELTA, kind="rdp", orders=(order,)) for order in range(16, 40))
        return any(fits(budget, Spent(), used) for budget in budgets)

    assert not affords(listed * (1 - 1e-9))
    assert affords(listed * 1.001)


def test_more_orders_cost_a_share_of_delta_each() -> None:
    one = FilterBudget(epsilon=EPSILON, delta=DELTA, kind="rdp", orders=(24,))
    two = FilterBudget(epsilon=EPSILON, delta=DELTA, kind="rdp", orders=(24, 32))
    assert one.limits[0] - two.limits[0] == pytest.approx(math.log(2) / 23, rel=1e-9)
    half = FilterBudget(epsilon=EPSILON, delta=DELTA / 2, kind="rdp", orders=(32,))
    assert two.limits[1] == half.limits[0]


@pytest.mark.parametrize("kind", ["gdp", "rdp"])
def test_remaining_names_the_noise_that_still_fits(kind) -> None:
    budget = FilterBudget(epsilon=2.0, delta=1e-6, kind=kind, orders=(12, 20) if kind == "rdp" else ())
    spent = Spent()
    for z in (30.0, 11.0, 7.0, 25.0):
        spent = add(budget, spent, Gaussian(z))
        least = remaining(budget, spent).noise_multiplier
        assert fits(budget, spent, Gaussian(least))
        assert not fits(budget, spent, Gaussian(least * (1 - 1e-9)))
    spent = add(budget, spent, Gaussian(remaining(budget, spent).noise_multiplier))
    assert remaining(budget, spent).share < 1e-12
    assert not fits(budget, spent, Gaussian(1e3))
    assert fits(budget, spent, PoissonSampled(0.0, Gaussian(1.0)))  # releases nothing


def test_failures_and_distances_have_caps_of_their_own() -> None:
    budget = FilterBudget(epsilon=1.0, delta=1e-5, kind="gdp", failure=2e-6, distance=1e-6)
    curve = 1e-5 - 2e-6 - (1 + math.e) * 1e-6
    assert math.sqrt(budget.limits[0]) == pytest.approx(mu_for(epsilon=1.0, delta=curve), rel=1e-9)
    spent = add(budget, Spent(), Composed((Failure(1.5e-6), Distance(0.4e-6), Gaussian(9.0))))
    assert not fits(budget, spent, Failure(0.6e-6))  # room for distances does not pay for failures
    assert not fits(budget, spent, Distance(0.7e-6))
    assert fits(budget, spent, Composed((Failure(0.4e-6), Distance(0.5e-6))))
    plain = FilterBudget(epsilon=1.0, delta=1e-5, kind="gdp")
    assert not fits(plain, Spent(), Failure(1e-12))
    whole = Composed((Failure(1.5e-6), Distance(0.4e-6), Gaussian(9.0)))
    assert epsilon(whole, 1e-5).upper <= 1.0


def test_a_release_without_noise_never_fits() -> None:
    for budget in (*BUDGETS, FilterBudget(epsilon=1.0, delta=1e-5, kind="gdp")):
        assert not fits(budget, Spent(), Gaussian(0.0))
    assert not fits(BUDGETS[0], Spent(), PoissonSampled(1e-9, Pure(math.inf)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "pld"}, "no filter"),
        ({"kind": "rdp"}, "needs different orders"),
        ({"kind": "rdp", "orders": (4, 4)}, "needs different orders"),
        ({"kind": "rdp", "orders": (1,)}, "order 1"),
        ({"kind": "gdp", "orders": (4,)}, "no orders"),
        ({"kind": "rdp", "orders": (2, 3)}, "larger order"),
        ({"kind": "gdp", "failure": 1e-5}, "smaller shares"),
        ({"kind": "gdp", "distance": 4e-6}, "smaller shares"),
        ({"kind": "gdp", "failure": math.nan}, "finite"),
        ({"kind": "gdp", "epsilon": 0.0}, "epsilon"),
        ({"kind": "gdp", "delta": 1.0}, "delta"),
    ],
)
def test_wrong_budgets_say_what_to_change(wrong, message) -> None:
    with pytest.raises(ConfigError, match=message):
        FilterBudget(**{"epsilon": EPSILON, "delta": DELTA, **wrong})


def test_spending_belongs_to_its_budget() -> None:
    spent = add(BUDGETS[0], Spent(), Gaussian(20.0))
    with pytest.raises(ConfigError, match="another budget"):
        fits(BUDGETS[1], spent, Gaussian(20.0))


def test_a_distance_whose_charge_overflows_is_refused():
    with pytest.raises(ConfigError, match="Failures and distances take inf"):
        FilterBudget(epsilon=720.0, delta=1e-5, kind="rdp", orders=(20,), distance=1e-312)


def test_an_unknown_order_names_the_nearest():
    with pytest.raises(ConfigError, match=r"at order 97\. The nearest is 96"):
        FilterBudget(epsilon=1.0, delta=1e-5, kind="rdp", orders=(97,))
