"""The accountant: a bound on epsilon or delta as a function of an event alone.

An event is first flattened to {(noise_multiplier, sampling_rate): count}; sampling_rate 1 is an unsampled release.
Order does not matter: every bound here holds for adaptively chosen results of a fixed list of uses. It does not
hold for a list whose next entry is chosen after seeing results (that needs a filter).

`auto` takes the closed form where nothing is sampled (exact), else PLD. Where PLD cannot resolve delta or its grid
had to be coarsened, it takes the smallest of the valid upper bounds: PLD, RDP, and the closed form of the same uses
without sampling (sampling never costs privacy: the sampled pair is a mixture of the pair and of no difference).

Statement everywhere: add-or-remove-one; noise is fresh and Gaussian; a sampled use draws every row with its own coin.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeAlias

from cosilo.accounting import gaussian, pld, rdp
from cosilo.errors import ConfigError
from cosilo.privacy import Bound, Composed, Gaussian, PoissonSampled, Repeated, check_delta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cosilo.privacy import Event

__all__ = ["Accountant", "Method", "Uses", "delta", "epsilon", "epsilon_and_method", "flatten", "upper_delta"]

Accountant: TypeAlias = Literal["auto", "pld", "rdp"]
Method: TypeAlias = Literal["closed-form", "pld", "rdp"]
Uses: TypeAlias = dict[tuple[float, float], int]

_LEAST_NOISE = 1e-6  # below, exp(1/z^2) and its powers leave double precision in every sampled curve
_MOST_USES = 10**15  # counts are exact in double precision
_SMALLEST = math.ulp(0.0)  # a delta that underflows is still not zero
_RESOLUTION = 1e-10  # of `delta`, which is not told how small a delta matters


def flatten(event: Event) -> Uses:
    """{(noise_multiplier, sampling_rate): count} with the same guarantee; uses that release nothing are left out.

    A row must pass every coin around a release, so nested rates multiply. One coin shared by several Gaussian
    releases is one sampled release of all of them, a Gaussian of 1/z^2 = sum of 1/z_i^2 (Zhu, Dong, Wang 2022,
    Theorem 11, applied to the dominating pair of their composition).

    Raises:
        ConfigError: one coin shared by several releases that have coins of their own; no accountant here knows it.
    """
    match event:
        case Gaussian(noise_multiplier=z):
            return {(z, 1.0): 1}
        case Repeated(count=count, event=inner):
            return {key: count * uses for key, uses in flatten(inner).items() if count}
        case Composed(events=events):
            total: Counter[tuple[float, float]] = Counter()
            for part in events:
                total.update(flatten(part))
            return dict(total)
        case PoissonSampled(sampling_rate=rate, event=inner):
            return _sampled(rate, flatten(inner))


def _sampled(rate: float, uses: Uses) -> Uses:
    if rate == 0 or not uses:
        return {}
    if rate == 1:
        return uses
    if sum(uses.values()) == 1:
        ((z, inner_rate),) = uses
        product = rate * inner_rate
        return {(z, product): 1} if product > 0 else {}
    if any(inner_rate < 1 for _, inner_rate in uses):
        raise ConfigError(
            "One sampling coin is shared by several releases that are sampled again inside it.",
            "Sample each release on its own: Repeated(n, PoissonSampled(rate, event)).",
        )
    z = 0.0 if any(z == 0 for z, _ in uses) else 1 / _fused_mu(uses)
    return {(z, rate): 1}


def _fused_mu(uses: Mapping[tuple[float, float], int]) -> float:
    """gdp_mu of all uses taken as unsampled."""
    return gaussian.compose_mu(math.sqrt(count) / z for (z, _), count in uses.items())


def _touched(uses: Uses) -> float:
    """Probability that a row is in at least one batch: an upper bound on delta at every epsilon >= 0."""
    if any(rate == 1 for _, rate in uses):
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-rate) for (_, rate), count in uses.items()))


def _check(uses: Uses, accountant: str) -> None:
    if accountant not in ("auto", "pld", "rdp"):
        raise ConfigError(f"There is no accountant {accountant!r}.", "Use 'auto', 'pld' or 'rdp'.")
    if sum(uses.values()) > _MOST_USES:
        raise ConfigError(f"More than {_MOST_USES:g} uses are outside of what can be computed.", "Use fewer.")
    for z, rate in uses:
        if 0 < z < _LEAST_NOISE and rate < 1:
            raise ConfigError(
                f"A sampled use with noise_multiplier {z:g} is outside of what can be computed.",
                f"Use at least {_LEAST_NOISE:g}, or 0 for no noise at all.",
            )


def _closed(uses: Uses, accountant: str) -> bool:
    return accountant == "auto" and all(rate == 1 for _, rate in uses)


def _losses(uses: Uses, delta: float, accountant: str) -> pld.LossDistribution | None:
    """The loss distribution; None where it is not asked for, or refuses and others may answer."""
    if accountant == "rdp":
        return None
    try:
        return pld.loss_distribution(uses, delta)
    except ConfigError:
        if accountant == "pld":
            raise
        return None


def epsilon(event: Event, delta: float, accountant: Accountant = "auto") -> Bound:
    """Bound on the smallest epsilon for which `event` is (epsilon, delta)-private. Promises use `.upper` only.

    | event                                             | bound                              |
    |---------------------------------------------------|------------------------------------|
    | releases nothing, or touches a row w.p. <= delta  | (0, 0)                             |
    | unsampled Gaussians, auto                         | lower == upper, exact              |
    | a release without noise, w.p. > delta             | (inf, inf)                         |
    | a release without noise, w.p. <= delta, and more  | (None, inf)                        |
    | RDP                                               | (None, upper)                      |

    Raises:
        ConfigError: delta not in (0, 1), an unknown accountant, or `pld` asked for a delta it cannot resolve.
    """
    return epsilon_and_method(event, delta, accountant)[0]


def epsilon_and_method(event: Event, delta: float, accountant: Accountant = "auto") -> tuple[Bound, Method]:
    """`epsilon`, and which accountant proved its upper bound."""
    check_delta(delta)
    uses = flatten(event)
    _check(uses, accountant)
    if _touched(uses) <= delta:
        return Bound(0.0, 0.0), "closed-form"
    bare = {key: count for key, count in uses.items() if key[0] == 0}
    if bare:
        infinite = _touched(bare) > delta
        return Bound(math.inf if infinite else None, math.inf), "closed-form"
    if _closed(uses, accountant):
        exact = gaussian.epsilon_of_mu(mu=_fused_mu(uses), delta=delta)
        return Bound(exact, exact), "closed-form"
    if accountant == "rdp":
        return Bound(None, rdp.epsilon_upper(uses, delta)), "rdp"
    losses = _losses(uses, delta, accountant)
    found: list[tuple[Bound, Method]] = [] if losses is None else [(losses.epsilon(delta), "pld")]
    if accountant == "auto" and (losses is None or losses.coarsened):
        found.append((Bound(None, rdp.epsilon_upper(uses, delta)), "rdp"))
        found.append((Bound(None, gaussian.epsilon_of_mu(mu=_fused_mu(uses), delta=delta)), "closed-form"))
    best, method = min(found, key=lambda pair: pair[0].upper)
    lower = found[0][0].lower
    return Bound(None if lower is None else min(lower, best.upper), best.upper), method


def delta(event: Event, epsilon: float, accountant: Accountant = "auto") -> Bound:
    """Bound on the smallest delta for which `event` is (epsilon, delta)-private; epsilon >= 0.

    Sampled events: resolved down to about 1e-10 by PLD, below that by RDP's upper bound.
    """
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ConfigError(f"epsilon must be finite and >= 0, got {epsilon}.", "Use 0 for the total variation.")
    uses = flatten(event)
    _check(uses, accountant)
    touched = _touched(uses)
    bare = {key: count for key, count in uses.items() if key[0] == 0}
    if bare or touched == 0:
        return Bound(_touched(bare) if bare else 0.0, touched)
    if _closed(uses, accountant):
        exact = gaussian.delta_of_mu(mu=_fused_mu(uses), epsilon=epsilon)
        return Bound(exact, max(exact, _SMALLEST))
    lower, upper = None, touched
    resolution = _RESOLUTION * max(1.0, math.sqrt(sum(uses.values())))
    losses = _losses(uses, resolution, accountant)
    if losses is not None:
        lower, upper = losses.delta_lower(epsilon), min(upper, losses.delta_upper(epsilon))
    if accountant != "pld":
        upper = min(upper, rdp.delta_upper(uses, epsilon))
    if accountant == "auto":
        upper = min(upper, gaussian.delta_of_mu(mu=_fused_mu(uses), epsilon=epsilon))
    return Bound(None if lower is None else min(lower, upper), max(upper, _SMALLEST))


def upper_delta(event: Event, epsilon: float, delta: float, accountant: Accountant = "auto") -> float:
    """Upper bound on delta at `epsilon` > 0, resolved around the asked `delta`: what calibration searches on.

    Consistent with `epsilon`: the same accountant on the same grid, without the lower bound.
    """
    uses = flatten(event)
    _check(uses, accountant)
    if _touched(uses) <= delta or any(z == 0 for z, _ in uses):
        return _touched(uses)
    if _closed(uses, accountant):
        return gaussian.delta_of_mu(mu=_fused_mu(uses), epsilon=epsilon)
    if accountant == "rdp":
        return rdp.delta_upper(uses, epsilon)
    losses = _losses(uses, delta, accountant)
    upper = 1.0 if losses is None else losses.delta_upper(epsilon)
    if accountant == "auto" and (losses is None or losses.coarsened):
        unsampled = gaussian.delta_of_mu(mu=_fused_mu(uses), epsilon=epsilon)
        upper = min(upper, rdp.delta_upper(uses, epsilon), unsampled)
    return upper
