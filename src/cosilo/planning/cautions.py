"""Sentences that a careful reader of a plan wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.privacy import up

if TYPE_CHECKING:
    from cosilo.job import Job
    from cosilo.planning.plan import Plan

__all__ = ["cautions"]


def cautions(job: Job, plan: Plan) -> tuple[str, ...]:
    """What the numbers do not say by themselves; empty when there is nothing."""
    found = []
    rows = sum(part.capacity for part in plan.silos.values())
    if plan.delta >= 1 / rows:
        found.append(
            f"delta = {plan.delta:g} is not below 1/{rows}, one over the rows the silos may hold: a mechanism that "
            "publishes one random row would meet it. Lower privacy.delta."
        )
    if job.local.batch_size is not None and any(part.sampling_rate == 1 for part in plan.silos.values()):
        found.append("local.batch_size is not below the capacity of every silo: those silos use all rows every round.")
    if plan.epsilon_against["server"] > plan.epsilon:
        found.append(
            f'The promise is made to outsiders: under protocol "{job.aggregation.protocol}" the server sees every '
            f"silo's message, and against it epsilon is {up(plan.epsilon_against['server'])}."
        )
    return tuple(found)
