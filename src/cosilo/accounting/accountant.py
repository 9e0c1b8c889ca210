"""The accountant: a bound on epsilon or delta as a function of an event alone.

An event is first flattened to a multiset of uses, failures and distances (`cosilo.accounting.flat`).
Order does not matter: every bound here holds for adaptively chosen results of a fixed list of uses. It does not
hold for a list whose next entry is chosen after seeing results (that needs a filter).

Routes to a curve delta(epsilon) of the uses:

| method      | for                                   | models                                             |
|-------------|---------------------------------------|----------------------------------------------------|
| closed-form | unsampled uses near a Gaussian        | Gaussians (`cosilo.accounting.slack`); exact       |
| pld         | any uses near a Gaussian              | Gaussians, loss distribution                       |
| rdp         | everything                            | what is released                                   |
| closed-form | Laplace noise and pure guarantees     | epsilons added up, delta = 0                       |

What is promised is the smallest epsilon with  curve(epsilon) + failures + (1 + e^epsilon) * distances <= delta, where
distances are the total variation of what a route models from what is released. `auto` takes the closed form where
nothing is sampled, else PLD; where that models discrete noise badly, cannot resolve delta or had to coarsen its
grid, it takes the smallest of all valid upper bounds, with the closed form of the same uses without sampling
among them (sampling never costs privacy: the sampled pair is a mixture of the pair and of no difference).

Statement everywhere: add-or-remove-one; noise is fresh; a sampled use draws every row with its own coin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from cosilo.accounting import gaussian, pld, rdp
from cosilo.accounting.flat import Flat, Uses, distance_charge, flatten, fused_mu
from cosilo.accounting.renyi import pure_epsilon
from cosilo.accounting.slack import gaussian_model
from cosilo.errors import ConfigError
from cosilo.privacy import EXACT_COUNT, Bound, check_delta

if TYPE_CHECKING:
    from cosilo.accounting.rdp import Conversion
    from cosilo.privacy import Event

__all__ = ["Accountant", "Method", "delta", "epsilon", "epsilon_and_method", "upper_delta"]

Accountant: TypeAlias = Literal["auto", "pld", "rdp"]
Method: TypeAlias = Literal["closed-form", "pld", "rdp"]

_LEAST_NOISE = 1e-6  # below, exp(1/z^2) and its powers leave double precision in every sampled curve
_SMALLEST = math.ulp(0.0)  # a delta that underflows is still not zero
_RESOLUTION = 1e-10  # of `delta`, which is not told how small a delta matters
_NEGLIGIBLE = 1e-3  # of delta: a smaller distance is not worth comparing with RDP
_ROUNDS = 500  # of the search for an epsilon that pays for its own distance
_AHEAD = 1e-12


@dataclass(frozen=True, slots=True)
class _Route:
    """One way to a curve.

    Attributes:
        epsilon: delta -> bound on epsilon.
        epsilon_upper: delta -> its upper one.
        delta: epsilon -> upper bound on delta.
        delta_lower: epsilon -> lower bound on delta.
        distance: total variation of the modelled transcript from the released one.
        coarse: another route may be better.
    """

    method: Method
    epsilon: Callable[[float], Bound]
    epsilon_upper: Callable[[float], float]
    delta: Callable[[float], float]
    delta_lower: Callable[[float], float] | None = None
    distance: float = 0.0
    coarse: bool = False


def _check(flat: Flat, accountant: str, conversion: str) -> None:
    if accountant not in ("auto", "pld", "rdp"):
        raise ConfigError(f"There is no accountant {accountant!r}.", "Use 'auto', 'pld' or 'rdp'.")
    if conversion not in ("tight", "mironov"):
        raise ConfigError(f"There is no conversion {conversion!r}.", "Use 'tight' or 'mironov'.")
    if conversion == "mironov" and accountant == "pld":
        raise ConfigError("The conversion belongs to rdp; pld has none.", "Use the accountant 'rdp'.")
    if sum(count for _, count in flat.rates) > EXACT_COUNT:
        raise ConfigError(f"More than {EXACT_COUNT:g} uses are outside of what can be computed.", "Use fewer.")
    for z, rate in flat.gaussian:
        if 0 < z < _LEAST_NOISE and rate < 1:
            raise ConfigError(
                f"A sampled use with noise_multiplier {z:g} is outside of what can be computed.",
                f"Use at least {_LEAST_NOISE:g}, or 0 for no noise at all.",
            )


def _closed_form(uses: Uses, distance: float) -> _Route:
    mu = fused_mu(uses)

    def exact(delta: float) -> Bound:
        found = gaussian.epsilon_of_mu(mu=mu, delta=delta)
        return Bound(found, found)

    def curve(epsilon: float) -> float:
        return gaussian.delta_of_mu(mu=mu, epsilon=epsilon)

    return _Route("closed-form", exact, lambda delta: exact(delta).upper, curve, curve, distance)


def _unsampled(uses: Uses, distance: float) -> _Route:
    """The closed form of sampled uses as if they were not: an upper bound only."""
    route = _closed_form(uses, distance)
    upper = route.epsilon_upper
    return _Route("closed-form", lambda delta: Bound(None, upper(delta)), upper, route.delta, None, distance)


def _pld(uses: Uses, distance: float, delta: float) -> _Route:
    losses = pld.loss_distribution(uses, delta)
    upper, lower = losses.delta_upper, losses.delta_lower
    return _Route("pld", losses.epsilon, losses.epsilon_upper, upper, lower, distance, losses.coarsened)


def _rdp(flat: Flat, conversion: Conversion) -> _Route:
    def upper(delta: float) -> float:
        return rdp.epsilon_upper(flat, delta, conversion)

    return _Route(
        "rdp",
        lambda delta: Bound(None, upper(delta)),
        upper,
        lambda epsilon: rdp.delta_upper(flat, epsilon, conversion),
    )


def _pure(flat: Flat) -> list[_Route]:
    """Epsilons added up, where every use has one."""
    if flat.gaussian:
        return []
    total = math.fsum(count * pure_epsilon(bundle, rate) for (bundle, rate), count in flat.others.items())
    if not math.isfinite(total):
        return []
    total *= 1 + _AHEAD
    bound = Bound(None, total)
    return [_Route("closed-form", lambda _: bound, lambda _: total, lambda epsilon: 0.0 if epsilon >= total else 1.0)]


def _modelled(flat: Flat) -> tuple[Uses, float] | None:
    model = gaussian_model(flat)
    if model is None or any(z < _LEAST_NOISE and rate < 1 for z, rate in model[0]):
        return None
    return None if not math.isfinite(fused_mu(model[0])) else model


def _routes(flat: Flat, delta: float, accountant: str, conversion: Conversion) -> list[_Route]:
    """What can bound `flat`, of which every use is noisy, in the order of preference; never empty."""
    if accountant == "rdp" or conversion == "mironov":
        return [_rdp(flat, conversion)]
    model = _modelled(flat) if flat.others else (flat.gaussian, 0.0)
    if model is None:
        if accountant == "pld":
            raise ConfigError(
                "The pld accountant knows no loss distribution of these uses.", "Use the accountant 'auto' or 'rdp'."
            )
        return [_rdp(flat, conversion), *_pure(flat)]
    uses, distance = model
    if accountant == "pld":
        return [_pld(uses, distance, delta)]
    if all(rate == 1 for _, rate in uses):
        first = _closed_form(uses, distance)
    else:
        try:
            first = _pld(uses, distance, delta)
        except ConfigError:
            return [_rdp(flat, conversion), _unsampled(uses, distance)]
    if first.coarse:
        return [first, _rdp(flat, conversion), _unsampled(uses, distance)]
    return [first] if distance == 0 else [first, _rdp(flat, conversion)]


def _paid(route: _Route, flat: Flat, delta: float) -> float:
    """Smallest epsilon with curve + failure + (1 + e^epsilon) distance <= delta; infinite where none is found.

    Starting from the epsilon of the largest possible budget, each round pays for the distance at the epsilon found
    before: that rises to the smallest solution from below. A round that finds no more than it paid for proves it.
    """
    distance = route.distance + flat.distance
    paid_for = 0.0
    for _ in range(_ROUNDS):
        budget = delta - flat.failure - distance_charge(distance, paid_for)
        if not budget > 0:
            return math.inf
        found = route.epsilon_upper(budget)
        if found <= paid_for:
            return paid_for
        if distance == 0 or found == math.inf:
            return found
        paid_for = found * (1 + _AHEAD)
    return math.inf


def _worth_more(route: _Route, epsilon: float, delta: float) -> bool:
    """Whether the distance of `route` costs so much that another route may be better."""
    return not distance_charge(route.distance, epsilon) <= _NEGLIGIBLE * delta


def epsilon(event: Event, delta: float, accountant: Accountant = "auto", *, conversion: Conversion = "tight") -> Bound:
    """Bound on the smallest epsilon for which `event` is (epsilon, delta)-private. Promises use `.upper` only.

    | event                                             | bound                              |
    |---------------------------------------------------|------------------------------------|
    | releases nothing, or touches a row w.p. <= delta  | (0, 0)                             |
    | unsampled Gaussians, auto                         | lower == upper, exact              |
    | a release without noise, w.p. > delta             | (inf, inf)                         |
    | a release without noise, w.p. <= delta, and more  | (None, inf)                        |
    | failures and distances leave nothing of delta     | (None, inf)                        |
    | RDP; discrete noise; failures or distances        | (None, upper)                      |

    `conversion="mironov"` is for comparison with published numbers, and implies RDP.

    Raises:
        ConfigError: delta not in (0, 1), an unknown accountant or conversion, or `pld` asked for a delta it cannot
            resolve or for noise that has no Gaussian near it.
    """
    return epsilon_and_method(event, delta, accountant, conversion=conversion)[0]


def epsilon_and_method(
    event: Event, delta: float, accountant: Accountant = "auto", *, conversion: Conversion = "tight"
) -> tuple[Bound, Method]:
    """`epsilon`, and which accountant proved its upper bound."""
    check_delta(delta)
    flat = flatten(event)
    _check(flat, accountant, conversion)
    if flat.touched + flat.failure + distance_charge(flat.distance, 0.0) <= delta:
        return Bound(0.0, 0.0), "closed-form"
    if flat.bare > 0:
        infinite = flat.bare > delta and flat.distance == 0
        return Bound(math.inf if infinite else None, math.inf), "closed-form"
    if not flat.rates:  # failures and distances only
        return Bound(None, _only_distance(flat, delta)), "closed-form"
    routes = _routes(flat, delta, accountant, conversion)
    if flat.plain:
        return _of_gaussians(routes, delta)
    best, method = math.inf, routes[0].method
    for number, route in enumerate(routes):
        found = _paid(route, flat, delta)
        if found < best:
            best, method = found, route.method
        if number == 0 and not route.coarse and route.distance > 0 and not _worth_more(route, found, delta):
            break
    return Bound(None, best), method


def _only_distance(flat: Flat, delta: float) -> float:
    """Nothing is modelled but that the real release is near one that is the same for both neighbours."""
    return 0.0 if flat.failure + distance_charge(flat.distance, 0.0) <= delta else math.inf


def _of_gaussians(routes: list[_Route], delta: float) -> tuple[Bound, Method]:
    found = [(route.epsilon(delta), route.method) for route in routes]
    best, method = min(found, key=lambda pair: pair[0].upper)
    lower = found[0][0].lower
    return Bound(None if lower is None else min(lower, best.upper), best.upper), method


def delta(event: Event, epsilon: float, accountant: Accountant = "auto", *, conversion: Conversion = "tight") -> Bound:
    """Bound on the smallest delta for which `event` is (epsilon, delta)-private; epsilon >= 0.

    Sampled events: resolved down to about 1e-10 by PLD, below that by RDP's upper bound.
    """
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ConfigError(f"epsilon must be finite and >= 0, got {epsilon}.", "Use 0 for the total variation.")
    flat = flatten(event)
    _check(flat, accountant, conversion)
    touched = min(flat.touched + flat.failure + distance_charge(flat.distance, epsilon), 1.0)
    if flat.bare > 0 or touched == 0:
        return Bound(flat.bare if flat.distance == 0 else None, touched)
    if not flat.rates:
        return Bound(None, touched)
    resolution = _RESOLUTION * max(1.0, math.sqrt(sum(count for _, count in flat.rates)))
    routes = _routes(flat, resolution, accountant, conversion)
    upper = min(touched, *(_total(route, flat, epsilon) for route in routes))
    if accountant == "auto" and routes[0].method == "pld":
        more = [_rdp(flat, conversion)] if len(routes) == 1 else []
        model = _modelled(flat) if flat.others else (flat.gaussian, 0.0)
        more += [] if model is None else [_unsampled(*model)]
        upper = min(upper, *(_total(route, flat, epsilon) for route in more))
    exact = routes[0].delta_lower if flat.plain else None
    return Bound(None if exact is None else min(exact(epsilon), upper), max(upper, _SMALLEST))


def _total(route: _Route, flat: Flat, epsilon: float) -> float:
    return min(route.delta(epsilon) + flat.failure + distance_charge(route.distance + flat.distance, epsilon), 1.0)


def upper_delta(
    event: Event, epsilon: float, delta: float, accountant: Accountant = "auto", *, conversion: Conversion = "tight"
) -> float:
    """Upper bound on delta at `epsilon` > 0, resolved around the asked `delta`: what calibration searches on.

    Consistent with `epsilon`: the same accountant on the same grid, without the lower bound.
    """
    flat = flatten(event)
    _check(flat, accountant, conversion)
    touched = flat.touched + flat.failure + distance_charge(flat.distance, epsilon)
    if touched <= delta or flat.bare > 0 or not flat.rates:
        return touched
    best = 1.0
    for number, route in enumerate(_routes(flat, delta, accountant, conversion)):
        best = min(best, _total(route, flat, epsilon))
        if number == 0 and not route.coarse and route.distance > 0 and not _worth_more(route, epsilon, delta):
            break
    spent = flat.failure + distance_charge(flat.distance, epsilon)
    return best if spent < delta or spent == 0 else max(best, math.nextafter(delta, 1.0))  # as `epsilon` sees it
