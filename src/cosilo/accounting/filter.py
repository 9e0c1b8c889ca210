"""Privacy filters: one budget for events that are chosen after seeing what the events before them released.

The accountant's bounds are for a fixed list of events. When the next event is chosen by results, delta adds up over
the choices: two pairs of 1.0e-5 each became 1.9e-5 (tests/accounting/test_filter.py). A filter decides before every
event whether it may run; a refused event is not run. Refusals depend on events alone and tell nothing about rows.

Statement: whatever is chosen, adaptively and by anyone, everything released under one budget together is
(epsilon, delta)-private, add-or-remove-one, as long as every event ran only where `fits` said yes and was added.
Assumption: given what was released before, each event's own guarantee holds (fresh noise, fresh coins); events run
one after the other.

* "gdp": unsampled Gaussians, sum of 1/z^2 <= mu^2, mu the largest gdp_mu that implies (epsilon, delta). Proof:
  given its past, a release says as much about the row as a Brownian motion of drift 1 (row) or 0 (no row), watched
  for a time of at most 1/z^2. All releases together are that motion up to a time that is chosen while watching, and
  never later than mu^2; the whole path up to mu^2 is as good as its end, N(mu^2, mu^2) against N(0, mu^2).
  (Smith, Thakurta 2022, arXiv 2210.17520; Koskela, Tobaben, Honkela 2023, "Individual privacy accounting with
  Gaussian differential privacy".) Nothing is lost against a fixed list.
* "rdp" at one order a: the sum of the divergences of order a stays <= rho, the largest divergence that implies
  (epsilon, delta) by Canonne, Kamath, Steinke 2020, Proposition 12. Proof: (P/Q)^a e^(-(a-1) spent) is a
  supermartingale under Q, whichever event comes next (Feldman, Zrnic 2021, "Individual privacy accounting via a Renyi
  filter"; Lecuyer 2021, "Practical privacy filters and odometers with Renyi differential privacy"; filters as such:
  Rogers, Roth, Ullman, Vadhan 2016, "Privacy odometers and filters").
* "rdp" at several orders fixed beforehand: order a_j has its own share delta_j of delta and its own rho_j, and an
  event fits where any one order still allows it. Proof: let j(t) be the first order that allows the whole transcript
  t. The same algorithm stopped as soon as order j no longer allows has P(S) <= e^epsilon Q(S) + delta_j, and agrees
  with the real one on {j(t) = j}. Summed over j: delta. Without the split the sum would be k delta.

Failures and distances have caps of their own, fixed with the budget: along every transcript failures sum to <= f and
distances to <= d, and epsilon is promised at delta = curve + f + (1 + e^epsilon) d. Proof: the runs in which nothing
failed weigh a transcript by the same product of 1 - p_i under both neighbours, which is a test in [0, 1]; the
others have probability E[sum p_i] <= f. Real and described process can be coupled until they part, with probability
E[sum of distances] <= d under either neighbour. One common cap on p + (1 + e^epsilon) tv would not do: transcripts
likely with the row could spend it on failures, those likely without on distances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from cosilo.accounting import gaussian
from cosilo.accounting.flat import distance_charge, flatten
from cosilo.accounting.renyi import ORDERS, bundle_divergences
from cosilo.errors import ConfigError, RefusedError
from cosilo.privacy import check_delta, check_epsilon

if TYPE_CHECKING:
    from cosilo.accounting.flat import Flat
    from cosilo.privacy import Event

__all__ = ["FilterBudget", "FilterKind", "Remaining", "Spent", "add", "fits", "remaining"]

FilterKind: TypeAlias = Literal["gdp", "rdp"]

_ULPS = 2.0**-48  # roundings in a limit of four terms, each of a few ulp
_PLACE = {int(order): place for place, order in enumerate(ORDERS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBudget:
    """What all events together may spend; fixed before the first of them.

    Attributes:
        epsilon, delta: the promise.
        kind: "gdp" (unsampled Gaussians only) or "rdp" (everything).
        orders: integer Renyi orders of "rdp", each with an equal share of delta; one order gets all of it.
        failure: share of delta for failure probabilities.
        distance: cap on the sum of total variations; takes (1 + e^epsilon) times as much of delta.
        limits: largest sum of 1/z^2 ("gdp"), or of the divergences at every order ("rdp"); follows from the rest.
    """

    epsilon: float
    delta: float
    kind: FilterKind
    orders: tuple[int, ...] = ()
    failure: float = 0.0
    distance: float = 0.0
    limits: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        _check_orders(self.kind, self.orders)
        curve = _curve(self)
        if self.kind == "gdp":
            mu = gaussian.mu_for(epsilon=self.epsilon, delta=curve)
            limits: tuple[float, ...] = (mu * mu * (1 - _ULPS),)
        else:
            limits = tuple(_largest_divergence(self.epsilon, curve / len(self.orders), order) for order in self.orders)
        if not max(limits) > 0:
            raise ConfigError(
                f"No order of {self.orders} can prove epsilon {self.epsilon:g} at delta {curve:g}.",
                "Use a larger order, near 1 + 2 log(1/delta) / epsilon, or a larger epsilon or delta.",
            )
        object.__setattr__(self, "limits", limits)


@dataclass(frozen=True, slots=True)
class Spent:
    """What the events so far cost; `Spent()` is nothing.

    Attributes:
        losses: sum of 1/z^2, or of the divergences at every order of the budget; empty before the first event.
        failure: sum of the failure probabilities.
        distance: sum of the total variations.
    """

    losses: tuple[float, ...] = ()
    failure: float = 0.0
    distance: float = 0.0


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left; never negative.

    Attributes:
        share: largest part of its limit that any order has left, in [0, 1].
        noise_multiplier: smallest of one more unsampled Gaussian that would fit; infinite where none does.
        failure: of the cap on failures.
        distance: of the cap on distances.
    """

    share: float
    noise_multiplier: float
    failure: float
    distance: float


def _check_orders(kind: str, orders: tuple[int, ...]) -> None:
    if kind not in ("gdp", "rdp"):
        raise ConfigError(f"There is no filter {kind!r}.", "Use 'gdp' or 'rdp'.")
    if kind == "gdp" and orders:
        raise ConfigError("A gdp filter has no orders.", "Leave them out, or use 'rdp'.")
    if kind == "rdp" and (not orders or len(set(orders)) < len(orders)):
        raise ConfigError(f"An rdp filter needs different orders, got {orders}.", "One or two are best.")
    unknown = [order for order in orders if order not in _PLACE]
    if unknown:
        nearest = min(_PLACE, key=lambda order: abs(order - unknown[0]))
        raise ConfigError(f"No divergences are computed at order {unknown[0]}.", f"The nearest is {nearest}.")


def _curve(budget: FilterBudget) -> float:
    """What failures and distances leave of delta."""
    for name, cap in (("failure", budget.failure), ("distance", budget.distance)):
        if not (math.isfinite(cap) and cap >= 0):
            raise ConfigError(f"The share for {name} must be finite and >= 0, got {cap}.", "Use 0 for none.")
    apart = distance_charge(budget.distance, budget.epsilon)
    left = budget.delta - budget.failure - apart
    left -= _ULPS * (budget.delta + budget.failure + apart) if budget.failure or apart else 0.0
    if not left > 0:
        raise ConfigError(
            f"Failures and distances take {budget.failure + apart:g} of delta {budget.delta:g}.",
            "Give them smaller shares.",
        )
    return left


def _largest_divergence(epsilon: float, delta: float, order: int) -> float:
    """Largest divergence of `order` that implies (epsilon, delta), rounded down; 0 where none does."""
    terms = (epsilon, -math.log1p(-1 / order), math.log(delta) / (order - 1), math.log(order) / (order - 1))
    return max(math.fsum(terms) - _ULPS * math.fsum(map(abs, terms)), 0.0)


def _losses(budget: FilterBudget, flat: Flat) -> tuple[float, ...]:
    """Upper bounds in the units of `budget.limits`; infinite for a release without noise."""
    if budget.kind == "gdp":
        if flat.others or any(rate < 1 for _, rate in flat.gaussian):
            raise ConfigError(
                "A gdp filter knows unsampled Gaussian noise only.", "Use a budget of kind 'rdp' for this event."
            )
        precision = math.fsum(_square_up(count, z) for (z, _), count in flat.gaussian.items())
        return (precision * (1 + _ULPS),)
    bundles = flat.bundles
    bare = math.inf if flat.bare > 0 else 0.0
    curves = [(count, bundle_divergences(*use)) for use, count in bundles.items()]
    return tuple(
        bare + (1 + _ULPS) * math.fsum(count * float(curve[_PLACE[order]]) for count, curve in curves)
        for order in budget.orders
    )


def _square_up(count: int, z: float) -> float:
    return count / z / z if z > 0 else math.inf


def _sum_up(spent: float, more: float) -> float:
    """The sum rounded upwards, so that no number of roundings ever hides a loss."""
    return math.nextafter(spent + more, math.inf) if spent and more else spent + more


def _after(budget: FilterBudget, spent: Spent, event: Event) -> Spent:
    before = spent.losses or (0.0,) * len(budget.limits)
    if len(before) != len(budget.limits):
        raise ConfigError("What was spent belongs to another budget.", "Use the budget it was added under.")
    flat = flatten(event)
    losses = tuple(_sum_up(old, new) for old, new in zip(before, _losses(budget, flat), strict=True))
    return Spent(losses, _sum_up(spent.failure, flat.failure), _sum_up(spent.distance, flat.distance))


def _allowed(budget: FilterBudget, spent: Spent) -> bool:
    within = any(limit > 0 and loss <= limit for loss, limit in zip(spent.losses, budget.limits, strict=True))
    return within and spent.failure <= budget.failure and spent.distance <= budget.distance


def fits(budget: FilterBudget, spent: Spent, event: Event) -> bool:
    """Whether `event` may run after what was `spent`; see the module for what that proves.

    Sums are rounded upwards: events that together make up exactly the budget may miss it by the last digit.

    Raises:
        ConfigError: `event` is outside of what this kind of budget can account for.
    """
    return _allowed(budget, _after(budget, spent, event))


def add(budget: FilterBudget, spent: Spent, event: Event) -> Spent:
    """What is spent once `event` runs; call it before the event releases anything.

    Raises:
        RefusedError: the event does not fit; it must not run.
        ConfigError: as in `fits`.
    """
    after = _after(budget, spent, event)
    if not _allowed(budget, after):
        raise RefusedError(
            f"The event does not fit into what is left of epsilon {budget.epsilon:g}, delta {budget.delta:g}.",
            "Use more noise or fewer uses, or stop here; nothing was released.",
        )
    return after


def remaining(budget: FilterBudget, spent: Spent) -> Remaining:
    """What is left of every cap."""
    losses = spent.losses or (0.0,) * len(budget.limits)
    pairs = [(limit - loss, limit) for loss, limit in zip(losses, budget.limits, strict=True) if limit > 0]
    share = max(max(left, 0.0) / limit for left, limit in pairs)
    units = budget.orders or (2,)  # a Gaussian costs order / (2 z^2), or 1/z^2
    precision = max(
        max(limit - loss - 4 * math.ulp(limit), 0.0) * 2 / order  # less what `add` may round up
        for loss, limit, order in zip(losses, budget.limits, units, strict=True)
    )
    noise = (1 + 2 * _ULPS) / math.sqrt(precision) if precision > 0 else math.inf
    return Remaining(share, noise, max(budget.failure - spent.failure, 0.0), max(budget.distance - spent.distance, 0.0))
