"""Local rules: what a silo computes in a round. One folder a rule, one registry."""

from cosilo.local.noisy_steps.spec import NOISY_STEPS
from cosilo.local.one_step.spec import ONE_STEP
from cosilo.local.rule import Guarantee, LocalWork, Noisy, Release, Rule, StepDesk, Terms

__all__ = ["RULES", "Guarantee", "LocalWork", "Noisy", "Release", "Rule", "StepDesk", "Terms"]

RULES: dict[str, Rule] = {rule.name: rule for rule in (ONE_STEP, NOISY_STEPS)}
