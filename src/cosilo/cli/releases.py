"""What `cosilo account` is asked about: releases by options, as events."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from cosilo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cosilo.accounting import Accountant, Conversion, Method
    from cosilo.privacy import Bound, Event

__all__ = ["BINOMIAL", "JOINT_STEPS_NEED", "RULES", "Prover", "Releases"]

BINOMIAL = "poisson-binomial"
RULES = ("one-step", "noisy-steps")
JOINT_STEPS_NEED = (
    "every gradient is evaluated at a function of released sums or public randomness, which is false for ordinary "
    "local SGD with more than one step"
)
_GUARANTEES = {
    "unconditional": "every local step but the last is counted with the silo's own noise only, the last with the noise "
    "of all honest contributors; nothing is assumed about model or loss",
    "joint-steps": "NOT PROVED for more than one local step: every local step is counted with the noise of all honest "
    f"contributors, which is right only if {JOINT_STEPS_NEED}",
    "naive": "noise is added once a round to the sum of all local steps, whose sensitivity is the number of steps "
    "times that of one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """Options of `cosilo account`; see their help.

    Attributes:
        mechanism: of `cosilo.mechanisms.MECHANISMS`, or poisson-binomial.
        sensitivity_l2: of one release, in lattice units.
        contributors: None where the noise multiplier is that of all honest contributors together.
        rule: None for plain uses.
    """

    mechanism: str
    contributors: int | None
    colluding: int
    sampling_rate: float
    sensitivity_l2: float
    dim: int
    rule: str | None
    local_steps: int | None
    guarantee: str | None
    trials: int
    theta: float

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Those of all options of a command that are about the release.

        Raises:
            ConfigError: unknown names, or options that contradict each other.
        """
        found = cls(**{field.name: options[field.name] for field in fields(cls)})
        found._check()
        return found

    def _check(self) -> None:
        from cosilo.mechanisms import MECHANISMS

        if self.mechanism not in (*MECHANISMS, BINOMIAL):
            raise ConfigError(
                f"There is no mechanism {self.mechanism!r}.", f"Choose from: {', '.join((*MECHANISMS, BINOMIAL))}."
            )
        if self.rule is not None and self.rule not in RULES:
            raise ConfigError(f"There is no rule {self.rule!r} here.", f"Choose from: {', '.join(RULES)}.")
        if self.guarantee is not None and self.guarantee not in _GUARANTEES:
            raise ConfigError(f"There is no guarantee {self.guarantee!r}.", f"Choose from: {', '.join(_GUARANTEES)}.")
        if not self.local and (self.local_steps not in (None, 1) or self.guarantee is not None):
            raise ConfigError("Local steps and their guarantee belong to noisy-steps.", "Add --rule noisy-steps.")
        if self.steps < 1:
            raise ConfigError(f"--local-steps must be at least 1, got {self.steps}.", "Count the steps of one round.")
        if self.local and self.mechanism == BINOMIAL:
            raise ConfigError("poisson-binomial adds no noise at a step.", "Use --rule one-step.")
        if not (math.isfinite(self.sensitivity_l2) and self.sensitivity_l2 > 0):
            raise ConfigError(
                f"--sensitivity-l2 must be finite and > 0, got {self.sensitivity_l2}.", "Give it in lattice units."
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        from cosilo.privacy import EXACT_COUNT

        for option in ("dim", "contributors", "trials", "local_steps"):
            if (getattr(self, option) or 0) > EXACT_COUNT:
                raise ConfigError(
                    f"--{option.replace('_', '-')} is larger than {EXACT_COUNT:g}.", "Give a smaller number."
                )
        if self.dim < 1:
            raise ConfigError(f"--dim must be at least 1, got {self.dim}.", "Count the released coordinates.")
        _ = self.honest

    @property
    def local(self) -> bool:
        """Whether a round has local steps with noise of their own."""
        return self.rule == "noisy-steps"

    @property
    def steps(self) -> int:
        """Local steps of one round."""
        return 1 if self.local_steps is None else self.local_steps

    @property
    def honest(self) -> int:
        """Contributors whose noise the observer does not know."""
        total = 1 if self.contributors is None else self.contributors
        if self.colluding < 0:
            raise ConfigError(
                f"--colluding must be at least 0, got {self.colluding}.", "Count the silos that share their noise."
            )
        if total - self.colluding < 1:
            raise ConfigError(
                f"At least one contributor must be honest, got {total} contributors of whom {self.colluding} collude.",
                "Give --contributors larger than --colluding.",
            )
        return total - self.colluding

    def total(self, share: float) -> float:
        """Noise multiplier of the sum, as far as the guarantee counts it."""
        from cosilo.mechanisms import MECHANISMS

        return MECHANISMS[self.mechanism].total(share, self.honest)

    def check_sampler(self, share: float) -> None:
        """Raise ConfigError where no contributor could draw this noise; a total noise multiplier says too little."""
        from cosilo.mechanisms import MECHANISMS

        if self.mechanism == BINOMIAL or self.contributors is None or share == 0:
            return
        try:
            MECHANISMS[self.mechanism].check(share * self.sensitivity_l2, self.contributors)
        except ConfigError as error:
            raise ConfigError(
                error.what, "Give another --sensitivity-l2 (a finer or coarser lattice) or share multiplier."
            ) from None

    def event(self, share: float, uses: int, guarantee: str | None = None) -> Event:
        """`uses` releases, rounds where there is a rule, with `share` = one contributor's noise sd / l2 sensitivity."""
        from cosilo.privacy import Composed, Repeated

        guarantee = guarantee or self.guarantee or "unconditional"
        last = self._use(share, self.honest)
        if not self.local or self.steps == 1:
            return Repeated(uses, last)
        if guarantee == "joint-steps":
            return Repeated(uses * self.steps, last)
        if guarantee == "naive":
            return Repeated(uses, self._use(share, self.honest, self.steps))
        return Repeated(uses, Composed((Repeated(self.steps - 1, self._use(share, 1)), last)))

    def _use(self, share: float, contributors: int, steps: int = 1) -> Event:
        """One release of the sum of `steps` steps, noise once; a row is in it when it is in any step's batch."""
        from cosilo.mechanisms import MECHANISMS
        from cosilo.privacy import Gaussian, PoissonBinomial, PoissonSampled

        rate, l2 = self.sampling_rate, steps * self.sensitivity_l2
        noise: Event = Gaussian(0.0)
        if self.mechanism == BINOMIAL:
            noise = PoissonBinomial(trials=self.trials, theta=self.theta, contributors=contributors, dim=self.dim)
        elif share > 0:
            # integers: |x|_1 <= sqrt(dim) |x|_2, and <= |x|_2^2 as every |x_i| <= x_i^2
            noise = MECHANISMS[self.mechanism].event(
                l1=l2 * max(min(math.sqrt(self.dim), l2), 1.0),
                l2=l2,
                sigma=share * self.sensitivity_l2,
                contributors=contributors,
                dim=self.dim,
            )
        any_step = rate if steps == 1 or not 0 < rate < 1 else -math.expm1(steps * math.log1p(-rate))
        return PoissonSampled(any_step, noise)

    @property
    def assumption(self) -> str:
        """What every number here rests on, one sentence."""
        kind = "its own coins" if self.mechanism == BINOMIAL else f"fresh {self.mechanism} noise"
        parts = ["Neighbours differ by adding or removing one row", f"every use adds {kind}"]
        if self.mechanism == BINOMIAL:
            parts = ["Neighbours differ in one contributor's values", "the number of contributors is fixed"]
        if self.sampling_rate < 1:
            parts.append(f"every row enters each use by its own secret coin of probability {self.sampling_rate:g}")
        if self.contributors is not None:
            parts.append(
                "the observer sees sums only, and knows the noise of at most "
                f"{self.colluding} of {self.contributors} silos"
            )
        if self.local:
            parts.append(_GUARANTEES[self.guarantee or "unconditional"])
        return "; ".join(parts) + "."


@dataclass(frozen=True, slots=True)
class Prover:
    """The accountant as asked for."""

    delta: float
    accountant: Accountant
    conversion: Conversion

    def epsilon(self, event: Event) -> tuple[Bound, Method]:
        """Bound on epsilon, and what proves it."""
        from cosilo.accounting import epsilon_and_method

        return epsilon_and_method(event, self.delta, self.accountant, conversion=self.conversion)

    def noise(self, make_event: Callable[[float], Event], epsilon: float) -> float:
        """Smallest noise that meets `epsilon`."""
        from cosilo.accounting import calibrate_noise

        return calibrate_noise(
            make_event, epsilon=epsilon, delta=self.delta, accountant=self.accountant, conversion=self.conversion
        )

    def uses(self, make_event: Callable[[int], Event], epsilon: float) -> int:
        """Largest number of uses that meets `epsilon`."""
        from cosilo.accounting import calibrate_uses

        return calibrate_uses(
            make_event, epsilon=epsilon, delta=self.delta, accountant=self.accountant, conversion=self.conversion
        )
