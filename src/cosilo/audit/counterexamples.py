"""Two counterexamples to joint-steps accounting, in closed form and as the algorithm itself.

The claim (Heikkila, arXiv 2407.19286, Theorem 4.6): N silos take S local DP-SGD steps each, every step with its own
noise of sd sigma C; the sum of all silos' movements is as private as S releases with noise_multiplier
sigma sqrt(N). For full batches: gdp_mu = sqrt(S / N) / sigma.

It fails because a silo's second gradient depends on its own noisy state, which nobody released. Both examples are
one-parameter least squares, (u theta - y)^2 / 2, convex, clipped per example to C, disjoint silos with the same
learning rate gamma, clip C and S. Everything below is in units of gamma C. The unit is one example of silo 1, added
or removed; the released number is theta's total movement over all silos.

* `ErasedNoise`: silos 2 ... N each hold m examples with y = 0 and u^2 = 1 / (gamma m). One step moves theta to zero,
  noise of the step before included, so that only each silo's last noise is left. The total is N(S, (S + N - 1)
  sigma^2) with the example and N(0, the same) without: gdp_mu = S / (sigma sqrt(S + N - 1)), exactly, where no
  example is clipped, that is while |noise| <= m: `clip_probability` bounds the rest.
* `RevealedSign`, S = 2: silo 1 also holds B examples whose gradients are saturated, B C sign(theta - tau). They tell
  on which side of tau the state is after step 1, so loudly that no noise hides it. What is left is a test on step 1
  with silo 1's noise alone: gdp_mu >= 1 / sigma against a claim of sqrt(2 / N) / sigma.

Assumption: exact Gaussian noise; the simulation rounds every draw to 2^-20 of its sd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cosilo.accounting.gaussian import delta_of_mu, epsilon_of_mu, mu_for
from cosilo.entropy import Context
from cosilo.errors import ConfigError
from cosilo.mechanisms import MECHANISMS

if TYPE_CHECKING:
    from cosilo.entropy import Entropy

__all__ = ["ErasedNoise", "RevealedSign"]

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]

_FINEST = 2.0**20  # lattice steps of one sd
_FAR = 1e6  # labels and features that saturate every clip
_LOUD = 16.0  # sds of the total between the two signs' thresholds: misread with probability < 1e-14


def _check(silos: int, steps: int, sigma: float) -> None:
    if silos < 2 or steps < 2:  # noqa: PLR2004 - one step or one silo is no counterexample
        raise ConfigError(f"Needs two silos and two steps, got {silos} and {steps}.", "One step is accounted rightly.")
    if not (math.isfinite(sigma) and sigma > 0):
        raise ConfigError(f"sigma must be finite and > 0, got {sigma}.", "Use noise sd of one silo's step over C.")


class _Noise:
    """Step noise of every silo, each from its own stream of `entropy`."""

    def __init__(self, entropy: Entropy, trials: int, sigma: float, run: bytes) -> None:
        self._entropy, self._trials, self._sigma, self._run = entropy, trials, sigma, run

    def __call__(self, silo: int, step: int) -> Floats:
        """Shape (trials,), in units of C."""
        context = Context(run=self._run, silo=str(silo), round=1, attempt=1, purpose="noise", step=step)
        drawn = MECHANISMS["gaussian"].sample(self._entropy.stream(context), self._trials, _FINEST)
        return np.asarray(drawn * (self._sigma / _FINEST), dtype=np.float64)


def _clipped(theta: Floats, u: float, y: float) -> Floats:
    """Gradient of (u theta - y)^2 / 2, clipped to norm 1, shape (trials,)."""
    return np.clip(u * (u * theta - y), -1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedNoise:
    """Silos whose steps erase the noise of the step before.

    Attributes:
        silos: N, all honest.
        steps: S, local steps.
        sigma: noise sd of one silo's step, in units of C.
        examples: m, held by each of the silos 2 ... N.
    """

    silos: int
    steps: int
    sigma: float
    examples: int = 200

    def __post_init__(self) -> None:
        _check(self.silos, self.steps, self.sigma)

    @classmethod
    def claiming(cls, epsilon: float, delta: float, *, silos: int, steps: int, examples: int = 200) -> ErasedNoise:
        """With the noise for which joint-steps claims (epsilon, delta)."""
        sigma = math.sqrt(steps / silos) / mu_for(epsilon=epsilon, delta=delta)
        return cls(silos=silos, steps=steps, sigma=sigma, examples=examples)

    @property
    def claimed_mu(self) -> float:
        """gdp_mu by joint-steps."""
        return math.sqrt(self.steps / self.silos) / self.sigma

    @property
    def true_mu(self) -> float:
        """gdp_mu of what is released, exactly."""
        return self.steps / math.sqrt(self.true_variance)

    @property
    def unconditional_mu(self) -> float:
        """gdp_mu that holds for every loss: S - 1 steps with silo 1's noise alone, one with everybody's."""
        return math.sqrt(self.steps - 1 + 1 / self.silos) / self.sigma

    @property
    def true_variance(self) -> float:
        """Of the total."""
        return (self.steps + self.silos - 1) * self.sigma**2

    @property
    def claimed_variance(self) -> float:
        """That a shift of S needs for the claim."""
        return self.steps * self.silos * self.sigma**2

    @property
    def clip_probability(self) -> float:
        """Bound on the probability that any example of silos 2 ... N is ever clipped."""
        tail = math.erfc(self.examples / self.sigma / math.sqrt(2))
        return (self.silos - 1) * (self.steps - 1) * tail

    def true_epsilon(self, delta: float) -> float:
        """Of what is released."""
        return epsilon_of_mu(mu=self.true_mu, delta=delta)

    def claimed_epsilon(self, delta: float) -> float:
        """By joint-steps."""
        return epsilon_of_mu(mu=self.claimed_mu, delta=delta)

    def unconditional_epsilon(self, delta: float) -> float:
        """That holds for every loss."""
        return epsilon_of_mu(mu=self.unconditional_mu, delta=delta)

    def true_delta(self, epsilon: float) -> float:
        """Of what is released."""
        return delta_of_mu(mu=self.true_mu, epsilon=epsilon)

    def claimed_delta(self, epsilon: float) -> float:
        """By joint-steps."""
        return delta_of_mu(mu=self.claimed_mu, epsilon=epsilon)

    def simulate(self, entropy: Entropy, trials: int, *, present: bool, run: bytes = b"") -> Floats:
        """The released total of independent runs of the algorithm, shape (trials,).

        `run` tells the streams of repeated calls with one `entropy` apart.
        """
        noise = _Noise(entropy, trials, self.sigma, run + (b"with" if present else b"without"))
        total = np.zeros(trials)
        u = math.sqrt(1 / self.examples)
        for silo in range(1, self.silos + 1):
            theta = np.zeros(trials)
            for step in range(self.steps):
                if silo > 1:
                    gradient = self.examples * _clipped(theta, u, 0.0)
                else:
                    gradient = _clipped(theta, 1.0, _FAR) if present else np.zeros(trials)
                theta = theta - (gradient + noise(silo, step))
            total += theta
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealedSign:
    """Saturated examples of the row's own silo shout on which side of tau its first noisy state lies.

    Attributes:
        silos: N, all honest; silos 2 ... N hold no rows and only add noise.
        sigma: noise sd of one silo's step, in units of C.
        epsilon: at which delta is compared; places tau at the best test of step 1.
    """

    silos: int
    sigma: float
    epsilon: float

    def __post_init__(self) -> None:
        _check(self.silos, 2, self.sigma)

    @classmethod
    def claiming(cls, epsilon: float, delta: float, *, silos: int) -> RevealedSign:
        """With the noise for which joint-steps claims (epsilon, delta) for two steps."""
        sigma = math.sqrt(2 / silos) / mu_for(epsilon=epsilon, delta=delta)
        return cls(silos=silos, sigma=sigma, epsilon=epsilon)

    @property
    def claimed_mu(self) -> float:
        """gdp_mu by joint-steps."""
        return math.sqrt(2 / self.silos) / self.sigma

    @property
    def revealed_mu(self) -> float:
        """gdp_mu of step 1 with silo 1's noise alone: what is revealed is at least its best test at `epsilon`."""
        return 1 / self.sigma

    @property
    def amplitude(self) -> int:
        """B: number of saturated examples."""
        return math.ceil(2 + _LOUD * self.sigma * math.sqrt(2 * self.silos) / 2)

    @property
    def revealed_delta(self) -> float:
        """Lower bound on the true delta at `epsilon`, up to a misread sign of probability < 1e-14."""
        return delta_of_mu(mu=self.revealed_mu, epsilon=self.epsilon)

    @property
    def claimed_delta(self) -> float:
        """Delta at `epsilon` by joint-steps."""
        return delta_of_mu(mu=self.claimed_mu, epsilon=self.epsilon)

    def revealed_probability(self, *, present: bool) -> float:
        """Of the state above tau after step 1: P(N(present, sigma^2) > 1/2 + sigma^2 epsilon)."""
        distance = 0.5 + self.sigma**2 * self.epsilon - (1.0 if present else 0.0)
        return math.erfc(distance / self.sigma / math.sqrt(2)) / 2

    def simulate(self, entropy: Entropy, trials: int, *, present: bool, run: bytes = b"") -> Floats:
        """The released total of independent runs of the algorithm, shape (trials,); see `reads`."""
        noise = _Noise(entropy, trials, self.sigma, run + (b"with" if present else b"without"))
        many, total = self.amplitude, np.zeros(trials)
        tau = many + 0.5 + self.sigma**2 * self.epsilon  # step 1 moves every state up by B
        for silo in range(1, self.silos + 1):
            theta = np.zeros(trials)
            for step in range(2):
                gradient = np.zeros(trials)
                if silo == 1:
                    gradient = many * _clipped(theta, _FAR, _FAR * tau)
                    gradient += _clipped(theta, 1.0, _FAR) if present else 0.0
                theta = theta - (gradient + noise(silo, step))
            total += theta
        return total

    def reads(self, totals: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """The observer's guess of "above tau", shape (trials,): up by B then down by B, instead of up by 2 B."""
        return totals < self.amplitude
