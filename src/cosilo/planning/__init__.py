"""From a job and public facts to a plan: every number a run follows, fixed before any row is touched."""

from cosilo.planning.cautions import cautions
from cosilo.planning.plan import Facts, Plan, SiloPlan, make_plan, seen_contributors

__all__ = ["Facts", "Plan", "SiloPlan", "cautions", "make_plan", "seen_contributors"]
