"""From a job and public facts to a plan: every number a run follows, fixed before any row is touched."""

from cosilo.planning.cautions import cautions, integers
from cosilo.planning.make import make_plan
from cosilo.planning.plan import Facts, Plan, SiloPlan, seen_contributors

__all__ = ["Facts", "Plan", "SiloPlan", "cautions", "integers", "make_plan", "seen_contributors"]
