"""How much noise, or how many uses, fit a promise.

Both searches look for the place where the accountant's upper bound on delta at the promised epsilon crosses the
promised delta, start from the central limit (Dong, Roth, Su 2022, Theorem 6: n sampled uses are nearly
q sqrt(n (exp(1/z^2) - 1))-GDP), keep one point on either side, return the private one and check it with `epsilon`.
They assume that more noise and fewer uses never leak more; every event of `cosilo.privacy` satisfies that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cosilo.accounting.accountant import epsilon as epsilon_bound
from cosilo.accounting.accountant import upper_delta
from cosilo.accounting.flat import flatten
from cosilo.accounting.gaussian import mu_for
from cosilo.accounting.renyi import bundle_divergences
from cosilo.errors import ConfigError
from cosilo.privacy import check_delta, check_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable

    from cosilo.accounting.accountant import Accountant
    from cosilo.accounting.rdp import Conversion
    from cosilo.privacy import Event

__all__ = ["MOST_USES", "calibrate_noise", "calibrate_uses"]

MOST_USES = 10_000_000

_EXACT = 1e-13  # width of the bracket of log noise_multiplier where an evaluation costs microseconds
_CLOSE = 5e-5  # the same where it costs a tenth of a second
_LEAST, _MOST = math.log(1e-6), math.log(1e15)  # log noise_multiplier: what is considered
_FIRST_STEP = 0.02  # of the bracket, in log noise_multiplier or log uses; the guess is mostly within 5 %
_MAX_EXPONENT = 700.0
_UNDERFLOWN = -745.0  # log of less than the smallest float


def calibrate_noise(
    make_event: Callable[[float], Event],
    *,
    epsilon: float,
    delta: float,
    accountant: Accountant = "auto",
    conversion: Conversion = "tight",
) -> float:
    """Smallest noise_multiplier z for which `make_event(z)` is (epsilon, delta)-private; errs upwards only.

    Within a relative 1e-4 of the accountant's own optimum for sampled events, 1e-13 for unsampled ones; 0 where
    nothing is released; never between 0 and 1e-6.

    Raises:
        ConfigError: no noise_multiplier up to 1e15 is enough.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if epsilon_bound(make_event(0.0), delta, accountant, conversion=conversion).upper <= epsilon:
        return 0.0

    def excess(log_z: float) -> float:
        return _excess(make_event(math.exp(log_z)), epsilon, delta, accountant, conversion)

    target = mu_for(epsilon=epsilon, delta=delta)
    low, high = _bracket(excess, _guess(make_event, target))
    sampled = accountant != "auto" or any(rate < 1 for rate, _ in flatten(make_event(1.0)).rates)
    z = math.exp(_close_in(excess, low, high, _CLOSE if sampled else _EXACT))
    nudge = 2.0**-52
    while epsilon_bound(make_event(z), delta, accountant, conversion=conversion).upper > epsilon:
        if nudge > 1:
            raise _hopeless()
        z, nudge = z * (1 + nudge), 2 * nudge
    return z


def calibrate_uses(
    make_event: Callable[[int], Event],
    *,
    epsilon: float,
    delta: float,
    accountant: Accountant = "auto",
    conversion: Conversion = "tight",
    limit: int = MOST_USES,
) -> int:
    """Largest number of uses n <= `limit` for which `make_event(n)` is (epsilon, delta)-private; 0 if not even one."""
    check_epsilon(epsilon)
    check_delta(delta)
    if limit < 1:
        raise ConfigError(f"limit must be >= 1, got {limit}.", "Give the largest number of uses to consider.")

    def excess(uses: int) -> float:
        return _excess(make_event(uses), epsilon, delta, accountant, conversion)

    one = _limit_mu(make_event(1))
    target = mu_for(epsilon=epsilon, delta=delta)
    guess = limit if one * math.sqrt(limit) <= target else max(1, int((target / one) ** 2))
    best = _most_uses(excess, guess, limit)
    while best > 0 and epsilon_bound(make_event(best), delta, accountant, conversion=conversion).upper > epsilon:
        best -= 1
    return best


def _excess(event: Event, epsilon: float, delta: float, accountant: Accountant, conversion: Conversion) -> float:
    """Log of delta reached / delta promised: <= 0 on the private side."""
    reached = upper_delta(event, epsilon, delta, accountant, conversion=conversion)
    return (math.log(reached) if reached > 0 else _UNDERFLOWN) - math.log(delta)


def _limit_mu(event: Event) -> float:
    """gdp_mu of the central limit: a guess, never a promise."""
    variance = 0.0
    flat = flatten(event)
    for (z, rate), count in flat.gaussian.items():
        if z == 0:
            return math.inf
        variance += count * _limit_variance(1 / z / z, rate)
    for (bundle, rate), count in flat.others.items():
        # at order 2 the Renyi divergence of a Gaussian is its squared gdp_mu
        variance += count * _limit_variance(float(bundle_divergences(bundle, 1.0)[0]), rate)
    return math.sqrt(variance)


def _limit_variance(square: float, rate: float) -> float:
    return square if rate == 1 else rate**2 * math.expm1(min(square, _MAX_EXPONENT))


def _guess(make_event: Callable[[float], Event], target: float) -> float:
    """Where the central limit reaches gdp_mu = `target`, in log z."""
    low, high = _LEAST, _MOST
    while high - low > _FIRST_STEP / 4:
        middle = (low + high) / 2
        low, high = (middle, high) if _limit_mu(make_event(math.exp(middle))) > target else (low, middle)
    return high


def _hopeless() -> ConfigError:
    return ConfigError(
        "No noise_multiplier up to 1e15 meets this epsilon and delta.", "Allow a larger epsilon or delta."
    )


_Point = tuple[float, float]


def _bracket(excess: Callable[[float], float], start: float) -> tuple[_Point, _Point]:
    """Points (log z, excess) on the leaking and on the private side, found by growing steps from `start`."""
    low: _Point | None = None
    high: _Point | None = None
    at, step = start, _FIRST_STEP
    while low is None or high is None:
        point = (at, excess(at))
        if point[1] > 0:
            low, at = point, min(at + step, _MOST)
        else:
            high, at = point, max(at - step, _LEAST)
        if point[0] == at:  # an end of what is considered
            if point[1] > 0:
                raise _hopeless()
            return point, point
        step *= 2
    return low, high


def _close_in(excess: Callable[[float], float], low: _Point, high: _Point, width: float) -> float:
    """A log z on the private side, at most `width` above one that leaks.

    Secant steps kept a third of `width` inside the bracket, so that the step after convergence lands on the
    other side and ends the search; a bracket that two secants did not halve is bisected.
    """
    patience, halved = 2, (high[0] - low[0]) / 2
    while high[0] - low[0] > width:
        share = low[1] / (low[1] - high[1]) if patience > 0 else 0.5
        at = low[0] + share * (high[0] - low[0])
        at = min(max(at, low[0] + width / 3), high[0] - width / 3)
        value = excess(at)
        low, high = ((at, value), high) if value > 0 else (low, (at, value))
        patience -= 1
        if high[0] - low[0] <= halved or patience < 0:
            patience, halved = 2, (high[0] - low[0]) / 2
    return high[0]


def _most_uses(excess: Callable[[int], float], guess: int, limit: int) -> int:
    """Largest n in 0 ... limit with excess(n) <= 0."""
    known: dict[int, float] = {}
    best, over = 0, limit + 1
    at, factor = guess, math.exp(_FIRST_STEP)
    while best < at < over:
        known[at] = excess(at)
        if known[at] <= 0:
            best, at = at, min(limit, max(at + 1, int(at * factor)))
        else:
            over, at = at, max(1, int(at / factor))
        if best > 0 and over <= limit:
            break
        factor *= factor
    while over - best > 1:
        at = _between(best, over, known)
        known[at] = excess(at)
        best, over = (at, over) if known[at] <= 0 else (best, at)
    return best


def _between(best: int, over: int, known: dict[int, float]) -> int:
    """Next number of uses to try: secant in log n, every third time the middle."""
    middle = (best + over) // 2
    if best not in known or over not in known or len(known) % 3 == 0:
        return middle
    share = known[best] / (known[best] - known[over])
    return min(max(int(best * (over / best) ** share), best + 1), over - 1)
