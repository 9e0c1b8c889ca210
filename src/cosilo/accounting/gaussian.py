"""Closed forms for unsampled Gaussian releases: mu-GDP.

A Gaussian release with noise_multiplier z is mu-GDP with gdp_mu = 1/z: no test between two neighbours does better
than between N(0, 1) and N(gdp_mu, 1). Adaptive composition is exact: gdp_mu = sqrt(sum of squares). Hence

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)

and epsilon and delta here are exact up to floating point, for add-or-remove-one and one release of l2 sensitivity 1.

Source: Dong, Roth, Su 2022, "Gaussian differential privacy", Corollaries 1 and 2; Balle, Wang 2018, Theorem 8.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cosilo.errors import ConfigError
from cosilo.privacy import check_delta, check_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["compose_mu", "delta_of_mu", "epsilon_of_mu", "hockey_stick", "mu_for"]

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_ULP = 2.0**-52
_SMALL_MU = 0.01  # below, Mills' ratio is integrated instead of subtracted
_FAR = 50.0  # phi(50) is zero in double precision, and so is delta
_UNDERFLOWN = 1e9  # keeps squares finite
_MILLS_FROM = 4.0  # below x = -4, hence mu >= 8, delta is near 1 and the plain difference does not cancel


def _check_mu(mu: float) -> None:
    if not (math.isfinite(mu) and mu >= 0):
        raise ConfigError(f"gdp_mu must be finite and >= 0, got {mu}.", "Use 1 / noise_multiplier.")


def compose_mu(mus: Iterable[float]) -> float:
    """gdp_mu of all of `mus` together, each allowed to depend on the results of those before it."""
    return math.hypot(*mus)


def _mills(x: Floats) -> Floats:
    from scipy.special import erfcx

    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)), dtype=np.float64)


def _mills_drop(x: Floats, mu: float) -> Floats:
    """M(x) - M(x + mu) for Mills' ratio M = (1 - Phi)/phi and x >= -4, shape (n,): no cancellation at any mu."""
    if mu > _SMALL_MU:
        return _mills(x) - _mills(x + mu)
    # -M'(t) = 1 - t M(t), below 1/t^2, by three-point Gauss-Legendre: relative error mu^6.
    nodes = [x + mu * (1 + node) / 2 for node in (-math.sqrt(0.6), 0.0, math.sqrt(0.6))]
    slopes = [np.where(t < _FAR, 1 - t * _mills(np.minimum(t, _FAR)), np.maximum(t, _FAR) ** -2.0) for t in nodes]
    return np.asarray(mu * (5 * slopes[0] + 8 * slopes[1] + 5 * slopes[2]) / 18, dtype=np.float64)


def hockey_stick(epsilons: Floats, mu: float) -> Floats:
    """delta(epsilon) of mu-GDP for epsilons >= 0, shape (n,) -> (n,), 0 < mu < infinity.

    With x = epsilon/mu - mu/2 both terms share the density phi(x), so delta = phi(x) (M(x) - M(x + mu)): no
    relative precision is lost down to the smallest float. Below x = -4, where M grows like exp(x^2/2), the plain
    difference does not cancel and is used.
    """
    from scipy.special import ndtr

    x = np.clip(epsilons / mu - mu / 2, -_UNDERFLOWN, _UNDERFLOWN)
    body, tail = np.minimum(x, -_MILLS_FROM), np.maximum(x, -_MILLS_FROM)
    head = ndtr(-body) - np.exp(-body * body / 2 - _LOG_SQRT_2PI) * _mills(np.maximum(body + mu, 0))
    shared = np.exp(-tail * tail / 2 - _LOG_SQRT_2PI) * _mills_drop(tail, mu)
    return np.clip(np.where(x > -_MILLS_FROM, shared, head), 0.0, 1.0)


def _log_delta(epsilon: float, mu: float) -> float:
    """Logarithm of delta(epsilon), also where delta itself underflows."""
    x = epsilon / mu - mu / 2
    if x > _UNDERFLOWN:
        return -math.inf
    if x <= -_MILLS_FROM:
        return math.log(float(hockey_stick(np.array([epsilon]), mu)[0]))
    return -x * x / 2 - _LOG_SQRT_2PI + math.log(float(_mills_drop(np.array([x]), mu)[0]))


def delta_of_mu(*, mu: float, epsilon: float) -> float:
    """Smallest delta for which mu-GDP implies (epsilon, delta); epsilon >= 0. Zero when mu is zero."""
    _check_mu(mu)
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ConfigError(f"epsilon must be finite and >= 0, got {epsilon}.", "Use 0 for the total variation.")
    return 0.0 if mu == 0 else float(hockey_stick(np.array([float(epsilon)]), mu)[0])


def epsilon_of_mu(*, mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 with delta(epsilon) <= delta under mu-GDP.

    The root is bracketed by delta(epsilon) <= Phi(-epsilon/mu + mu/2) and then moved up until
    delta(epsilon) <= delta holds as computed: the result is never below the exact epsilon by more than rounding.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtri

    _check_mu(mu)
    check_delta(delta)
    if mu == 0 or _log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    log_delta = math.log(delta)
    high = max(mu * (mu / 2 - float(ndtri(delta))), mu * mu / 2) * (1 + 1e-9) + 1e-300
    if not math.isfinite(high):
        raise ConfigError(f"epsilon overflows at gdp_mu = {mu}.", "Use more noise.")
    root = float(brentq(lambda e: _log_delta(e, mu) - log_delta, 0.0, high, xtol=1e-300, rtol=4 * _ULP))
    return _onto_private_side(root, _ULP, lambda e: _log_delta(e, mu) <= log_delta)


def mu_for(*, epsilon: float, delta: float) -> float:
    """Largest gdp_mu that implies (epsilon, delta); its inverse is the noise_multiplier of one such release.

    Moved down until both delta(epsilon) <= delta and epsilon(delta) <= epsilon hold as computed.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtri

    check_epsilon(epsilon)
    check_delta(delta)
    log_delta = math.log(delta)
    # delta(epsilon) <= delta(0) <= mu / sqrt(2 pi), and delta(epsilon) <= Phi(-epsilon/mu + mu/2)
    quantile = max(-float(ndtri(delta)), 0.0)
    low = high = max(
        delta * math.sqrt(2 * math.pi), 2 * epsilon / (quantile + math.hypot(quantile, math.sqrt(2 * epsilon)))
    )
    low *= 1 - 2.0**-40
    while _log_delta(epsilon, high) <= log_delta:
        low, high = high, 2 * high
    root = low
    if _log_delta(epsilon, low) < log_delta:
        root = float(brentq(lambda m: _log_delta(epsilon, m) - log_delta, low, high, xtol=1e-300, rtol=4 * _ULP))

    def private(mu: float) -> bool:
        return _log_delta(epsilon, mu) <= log_delta and epsilon_of_mu(mu=mu, delta=delta) <= epsilon

    return _onto_private_side(root, -_ULP, private)


def _onto_private_side(root: float, step: float, private: Callable[[float], bool]) -> float:
    """`root`, moved by a growing relative `step` until `private` says yes."""
    moved = root
    while not private(moved):
        moved = root * (1 + step)
        step *= 2
    return moved
