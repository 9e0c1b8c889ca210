"""Local rules: what a silo computes in a round. One folder a rule, one registry."""

from cosilo.local.one_step.spec import ONE_STEP
from cosilo.local.rule import LocalWork, Release, Rule, Terms

__all__ = ["RULES", "LocalWork", "Release", "Rule", "Terms"]

RULES: dict[str, Rule] = {ONE_STEP.name: ONE_STEP}
