"""Privacy loss distributions of Poisson-sampled Gaussians, with a proved upper and a proved lower bound.

Upper. One use's delta curve is known in closed form in both directions (add, remove). Connect-the-dots
(Doroshenko et al. 2022, Algorithm 1) turns it into masses on a grid of losses h apart whose own curve lies on or
above it everywhere; dp_accounting composes the masses by FFT. A pair of distributions that dominates every use
dominates their adaptive composition (Zhu, Dong, Wang 2022, Theorems 10 and 11, add-or-remove-one).
What floating point and truncation may have removed is charged to delta: `_TAIL_SHARE` and `_ROUNDING`.

Lower. Connect-the-dots splits each outcome between two neighbouring grid losses. That split is a binary experiment
whose odds change by the factor exp(h), and probit(p) - probit(p') <= sqrt(2 pi)/4 (logit(p) - logit(p')),
so it is at most (sqrt(2 pi)/4 h)-GDP. Hence n uses on the grid are dominated by the n true uses together with
one Gaussian of spread = sqrt(2 pi n)/4 h, whose loss is W ~ N(spread^2/2, spread^2):

    delta_grid(e) <= E[delta_true(e - W)]

Both curves decrease and delta_true <= delta_grid, so splitting the expectation at W = eta gives

    delta_true(e) >= (delta_grid(e + eta) - E[delta_grid(e + eta - W); W > eta]) / P(W <= eta).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cosilo.accounting.gaussian import Floats, compose_mu, hockey_stick
from cosilo.errors import ConfigError
from cosilo.privacy import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LossDistribution", "loss_distribution"]

_FINEST, _COARSEST = 3e-6, 1e-3  # grid steps: below, a use's masses drown in rounding; above, epsilon shows it
_USELESS = 64.0  # a step so large says nothing, and exp of its multiples overflows
_GRID_PER_SD = 14  # grid steps in the sd of one use's loss: 0.1 % of epsilon where losses are skewed, too
_MAX_EXPONENT = 700.0  # exp of more overflows
_MAX_ONE_USE = 1 << 17  # grid points of one use: 0.1 s
_MAX_COMPOSED = 1 << 21  # grid points of the composition: 1 s and 150 MiB for each direction
_TAIL_SHARE = 1e-5  # of delta: truncated tails, of every use and of the composition
_ROUNDING = 2.0**-49  # delta error of one use; dp_accounting's FFT was measured at 2^-53 a use up to 1e7 uses
_MAX_ROUNDING_SHARE = 0.25  # of delta; beyond, the masses mean nothing
_NO_MASS = 1e-200  # dp_accounting's Chernoff bounds overflow on smaller masses; covered by _ROUNDING
_SPREAD = math.sqrt(2 * math.pi) / 4
_POINTS_PER_SPREAD = 2  # where the lower bound samples the curve; more gains 0.1 %
_LOWER_STEPS = [*range(1, 9), *(2**k for k in range(4, 16))]  # where below `upper` a lower is tried, in those points


def _sampled_loss(loss: float, rate: float) -> float:
    """log(1 - rate + rate exp(loss)): the loss when the row is in the batch with probability `rate`."""
    return loss if rate == 1 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + loss))


def _remove_curve(epsilons: Floats, mu: float, rate: float) -> Floats:
    """delta(epsilon >= 0) of (1 - rate) Q + rate P against Q: rate * delta_P,Q(log(1 + (e^epsilon - 1)/rate))."""
    if rate == 1:
        return hockey_stick(epsilons, mu)
    odds = np.minimum(np.expm1(np.minimum(epsilons, 1.0)), rate * 1e300) / rate
    large = np.maximum(epsilons, 1.0)
    far = large - math.log(rate) + np.log1p((rate - 1) * np.exp(-large))
    return rate * hockey_stick(np.where(epsilons <= 1.0, np.log1p(odds), far), mu)


def _add_curve(epsilons: Floats, mu: float, rate: float) -> Floats:
    """delta(epsilon >= 0) of Q against (1 - rate) Q + rate P: zero from epsilon = -log(1 - rate) on."""
    if rate == 1:
        return hockey_stick(epsilons, mu)
    weight = -np.expm1(np.minimum(epsilons + math.log1p(-rate), 0.0))  # of Q in Q - e^epsilon ((1 - rate) Q + rate P)
    inside = weight > 0
    base = math.log(rate) + epsilons - np.log(np.where(inside, weight, 1.0))
    return np.where(inside, weight * hockey_stick(np.maximum(base, 0.0), mu), 0.0)


def _ends(mu: float, rate: float, tail: float) -> tuple[float, float]:
    """Remove-losses a use leaves with probability <= `tail` at each end; the add-losses are their negatives."""
    from scipy.special import ndtri

    reach = mu * (mu / 2 - float(ndtri(tail)))
    return _sampled_loss(-reach, rate), _sampled_loss(reach, rate)


@dataclass(frozen=True, slots=True)
class _Masses:
    """Connect-the-dots masses of one use: `probs[i]` at loss (lowest + i) h, `infinite` at infinity."""

    lowest: int
    probs: Floats
    infinite: float

    @property
    def excess(self) -> float:
        """What rounding added to the total mass of one."""
        return abs(math.fsum(self.probs) + self.infinite - 1)


def _connect_the_dots(direct: Floats, reverse: Floats, lowest: int, step: float) -> _Masses:
    """Masses whose curve passes through the exact one at every grid loss (Doroshenko et al. 2022, Algorithm 1).

    Masses are second differences, which cancel. They vanish on 1 and exp(epsilon), so at epsilon < 0 the curve is
    replaced by delta(epsilon) - (1 - exp(epsilon)) = exp(epsilon) delta_reverse(-epsilon), which is small exactly
    where masses are: both ends keep their relative precision.

    Args:
        direct: delta at losses 0, h, ..., shape (upper + 1,).
        reverse: delta of the other direction at losses 0, h, ..., shape (-lowest + 1,).
        lowest: the lowest grid loss in steps, < 0.
        step: h.
    """
    below = (np.exp(-np.arange(len(reverse)) * step) * reverse)[::-1]  # at losses lowest ... 0, equal to direct at 0
    rise, growth = math.expm1(step), math.exp(step)
    left = np.diff(below, prepend=0.0)
    left = (np.diff(left, append=0.0) - (growth - 1) * left)[:-1] / rise
    left[0] = (below[1] - growth * below[0]) / rise
    ahead = direct[1] - direct[0]
    middle = (ahead - growth * (below[-1] - below[-2])) / rise + 1
    right = np.diff(direct)
    right = np.append((right[1:] - growth * right[:-1]) / rise, right[-1] / math.expm1(-step))
    probs = np.concatenate([left, [middle], right])
    return _Masses(lowest, np.where(probs > _NO_MASS, probs, 0.0), float(direct[-1]))


@lru_cache(maxsize=32)
def _one_use(mu: float, rate: float, step: float, tail: float) -> tuple[_Masses, _Masses]:
    """Masses of one use in the directions remove and add."""
    low, high = _ends(mu, rate, tail)
    lower, upper = math.ceil(-low / step) + 1, math.ceil(high / step) + 1
    grid = np.arange(max(lower, upper) + 1, dtype=np.float64) * step
    remove, add = _remove_curve(grid, mu, rate), _add_curve(grid, mu, rate)
    first = _connect_the_dots(remove[: upper + 1], add[: lower + 1], -lower, step)
    return first, first if rate == 1 else _connect_the_dots(add[: lower + 1], remove[: upper + 1], -upper, step)


def _epsilon_of(pmf: Any, delta: float) -> float:  # noqa: ANN401 - dp_accounting's DensePLDPmf
    """Where the curve of `pmf` comes down to `delta`, up to rounding.

    Between neighbouring grid losses, delta(epsilon) = mass - e^epsilon * (e^-loss mass), both of the losses above.
    """
    first = max(0, -pmf._lower_loss)  # noqa: SLF001
    losses = (pmf._lower_loss + np.arange(first, pmf.size)) * pmf._discretization  # noqa: SLF001
    if len(losses) == 0 or losses[-1] > _MAX_EXPONENT:
        return float(pmf.get_epsilon_for_delta(delta))
    probs = pmf._probs[first:]  # noqa: SLF001
    mass = np.cumsum(probs[::-1])[::-1] + pmf._infinity_mass  # noqa: SLF001 - of this loss and those above
    shrunk = np.cumsum((probs * np.exp(-losses))[::-1])[::-1]
    reached = np.append(mass[1:], pmf._infinity_mass) - np.exp(losses) * np.append(shrunk[1:], 0.0)  # noqa: SLF001
    private = np.flatnonzero(reached <= delta)
    if len(private) == 0:
        return math.inf
    at = int(private[0])
    if mass[at] <= delta or shrunk[at] <= 0:
        return float(max(losses[at - 1], 0.0)) if at > 0 else 0.0
    return max(float(np.log((mass[at] - delta) / shrunk[at])), 0.0)


@dataclass(frozen=True, slots=True)
class LossDistribution:
    """The composed uses on a grid.

    Attributes:
        coarsened: the grid is coarser than accuracy asks for, because a finer one would not fit.
    """

    coarsened: bool
    _composed: Any  # dp_accounting's PrivacyLossDistribution
    _spread: float  # gdp_mu of what the grid added
    _slack: float  # delta that rounding may have hidden
    _lost: float  # delta that truncation and rounding may have added
    _known: dict[float, float] = field(default_factory=dict, compare=False, repr=False)

    def _grid_delta(self, epsilon: float) -> float:
        if epsilon not in self._known:
            self._known[epsilon] = float(self._composed.get_delta_for_epsilon(epsilon))
        return self._known[epsilon]

    def delta_upper(self, epsilon: float) -> float:
        """Upper bound on delta at `epsilon`."""
        return min(1.0, max(0.0, self._grid_delta(epsilon)) + self._slack)

    def delta_lower(self, epsilon: float) -> float:
        """Lower bound on delta at `epsilon` (module docstring), 0 where the grid is too coarse to tell."""
        from scipy.special import ndtr

        unit = self._spread / _POINTS_PER_SPREAD
        if self._spread > 1:
            return 0.0
        reach = 9 * _POINTS_PER_SPREAD  # P(W > 8.5 spread) < 1e-17
        above = 1 - ndtr((unit * np.arange(reach + 1) - self._spread**2 / 2) / self._spread)
        shares = above[:-1] - above[1:]
        best = 0.0
        for eta in range(1, 4 * _POINTS_PER_SPREAD):
            beyond = sum(shares[m] * self.delta_upper(epsilon + (eta - m - 1) * unit) for m in range(eta, reach))
            whole = self._grid_delta(epsilon + eta * unit) - self._lost
            best = max(best, (whole - beyond - float(above[-1])) / float(1 - above[eta]))
        return min(best, self.delta_upper(epsilon))

    def epsilon_upper(self, delta: float) -> float:
        """Upper bound on epsilon at `delta`; infinite where `delta` is below what the grid resolves."""
        if delta <= self._slack:
            return math.inf
        pmfs = [self._composed._pmf_remove, self._composed._pmf_add]  # noqa: SLF001 - its own search is a Python loop
        upper = max(_epsilon_of(pmf, delta - self._slack) for pmf in pmfs)
        nudge = 2.0**-50
        while math.isfinite(upper) and self.delta_upper(upper) > delta:
            upper, nudge = upper * (1 + nudge) + 1e-300, 2 * nudge
        return upper

    def epsilon(self, delta: float) -> Bound:
        """Bound on epsilon at `delta`; the upper one is infinite where `delta` is below what the grid resolves."""
        upper = self.epsilon_upper(delta)
        if not math.isfinite(upper) or self._spread > 1:
            return Bound(0.0, upper)
        unit = self._spread / _POINTS_PER_SPREAD
        candidates = (upper - k * unit for k in _LOWER_STEPS)
        proved = (e for e in candidates if e > 0 and self.delta_lower(e) > delta)
        return Bound(next(proved, 0.0), upper)


def _step(uses: Mapping[tuple[float, float], int]) -> float:
    """Grid step that accuracy asks for: a share of one use's loss sd, q sqrt(exp(1/z^2) - 1), averaged over uses."""
    variance = sum(count * rate**2 * math.expm1(min(z**-2, _MAX_EXPONENT)) for (z, rate), count in uses.items())
    sd = math.sqrt(variance / sum(uses.values()))
    return min(max(sd / _GRID_PER_SD, _FINEST), _COARSEST)


def _collapse(uses: Mapping[tuple[float, float], int]) -> dict[tuple[float, float], int]:
    """The same uses with the unsampled ones fused into one Gaussian: exact, and one use instead of many."""
    merged = {key: count for key, count in uses.items() if key[1] < 1}
    mu = compose_mu(math.sqrt(count) / z for (z, rate), count in uses.items() if rate == 1)
    return merged | ({(1 / mu, 1.0): 1} if mu > 0 else {})


def loss_distribution(uses: Mapping[tuple[float, float], int], delta: float) -> LossDistribution:
    """Compose {(noise_multiplier > 0, sampling_rate > 0): count}, not empty, to resolve `delta` and larger.

    Raises:
        ConfigError: `delta` is below what double precision resolves for so many uses, or no grid of a useful step
            fits in time and memory.
    """
    uses = _collapse(uses)
    total = sum(uses.values())
    slack = _ROUNDING * total
    if slack > _MAX_ROUNDING_SHARE * delta:
        raise ConfigError(
            f"The pld accountant cannot resolve delta = {delta:g} over {total} uses in double precision.",
            "Use the accountant 'auto' or 'rdp'.",
        )
    # Powers of ten, so that a search over the number of uses finds the masses of one use again.
    tail = 10.0 ** math.floor(math.log10(_TAIL_SHARE * delta / total))
    finest = step = _step(uses)
    while (composed := _compose(uses, step, tail, _TAIL_SHARE * delta)) is None:
        step *= 2
        if step > _USELESS:
            raise ConfigError(
                f"The loss distribution of {total} uses with so little noise does not fit on a grid.",
                "Use the accountant 'auto' or 'rdp', or more noise.",
            )
    pld, excess = composed
    lost = 4 * total * tail + 4 * len(uses) * _TAIL_SHARE * delta + math.expm1(excess) + slack
    return LossDistribution(step > finest, pld, _SPREAD * step * math.sqrt(total), slack, lost)


def _compose(
    uses: Mapping[tuple[float, float], int], step: float, tail: float, truncation: float
) -> tuple[Any, float] | None:
    """dp_accounting's composition and the mass that rounding added to it; None where the grid would explode."""
    from dp_accounting.pld import common, pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    size, excess, parts = 0, 0.0, []
    for (z, rate), count in uses.items():
        low, high = _ends(1 / z, rate, tail)
        if (high - low) / step > _MAX_ONE_USE:
            return None
        pair = _one_use(1 / z, rate, step, tail)
        windows = [common.compute_self_convolve_bounds(m.probs, count, truncation) for m in pair]
        size += max(top - bottom for bottom, top in windows)
        if size > _MAX_COMPOSED:
            return None
        excess += count * max(m.excess for m in pair)
        # Always dense: the sparse class raises its size to the power `count`, an integer of millions of digits.
        dense = [pld_pmf.DensePLDPmf(step, m.lowest, m.probs, m.infinite, True) for m in pair]
        parts.append(PrivacyLossDistribution(*dense[: 1 if rate == 1 else 2]).self_compose(count, truncation))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part, 0.0)
    return whole, excess
