"""Sentences that a careful reader of a plan wants to know: what was chosen, and what the numbers do not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.planning.ring import ACCEPTED
from cosilo.privacy import up

if TYPE_CHECKING:
    from cosilo.job import Job
    from cosilo.planning.plan import Plan

__all__ = ["cautions", "integers"]


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
    server = plan.epsilon_against["server"]
    if server is None or server > plan.epsilon:
        instead = "no finite epsilon can be proved" if server is None else f"epsilon is {up(server)}"
        found.append(
            f'The promise is made to outsiders: under protocol "{job.aggregation.protocol}" the server sees every '
            f"silo's message, and against it {instead}."
        )
    found.extend(_about_integers(job, plan))
    if plan.guarantee == "joint-steps" and plan.epsilon_joint_steps is not None and plan.steps > 1:
        holds = "nothing finite" if plan.epsilon_unconditional is None else up(plan.epsilon_unconditional)
        found.append(
            f"The promise rests on joint-steps, which is not proved for {plan.steps} local steps: epsilon "
            f"{up(plan.epsilon)} is claimed, {holds} is what holds."
        )
    return tuple(found)


def _about_integers(job: Job, plan: Plan) -> list[str]:
    found = []
    if plan.inflation > ACCEPTED:
        found.append(
            f"Rounding to a granularity of {plan.granularity:.3g} adds {plan.inflation:.2%} to the sensitivity and so "
            f"to the noise. {_finer(job, plan)}"
        )
    if job.aggregation.clamp is not None:
        found.append(
            f"Coordinates of a silo's sum beyond {job.aggregation.clamp:.4g} are cut: that costs no privacy, but the "
            "model may learn something else."
        )
    return found


def _finer(job: Job, plan: Plan) -> str:
    if job.aggregation.granularity is not None:
        return "A smaller aggregation.granularity costs less."
    if job.aggregation.ring_bits != "auto":
        return "A larger aggregation.ring_bits, or a smaller clamp, allows a finer one."
    return f'The {plan.mechanism} sampler allows no finer one; privacy.mechanism = "discrete-gaussian" does.'


def integers(plan: Plan) -> str:
    """Granularity, clamp and ring of a plan, in words."""
    clamps = [part.clamp for part in plan.silos.values()]
    return (
        f"Integers: granularity {plan.granularity:.4g} ({plan.clipping_norm / plan.granularity:,.0f} units in the "
        f"clipping norm), coordinates clamped at {min(clamps):.4g} to {max(clamps):.4g}, {plan.ring_bits}-bit ring "
        f"(sums reach {plan.sum_bound / 2 ** (plan.ring_bits - 1):.1%} of its half), noise sd {plan.sigma:.4g} units a "
        f"silo and step. Rounding adds {plan.inflation:.4%} to the sensitivity."
    )
