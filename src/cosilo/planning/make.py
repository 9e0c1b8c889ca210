"""From a job and public facts to a plan: a function of the job, capacities and dimension, never of rows."""

from __future__ import annotations

import math
from dataclasses import replace

from cosilo import accounting
from cosilo.errors import ConfigError, JobError
from cosilo.job import Job
from cosilo.local import RULES, Guarantee
from cosilo.mechanisms import MECHANISMS
from cosilo.planning.budget import most_replies, settle
from cosilo.planning.plan import OBSERVERS, Facts, Plan, SiloPlan, seen_contributors
from cosilo.planning.ring import Ring, Sums, choose_ring
from cosilo.privacy import Event, Gaussian, Repeated, up

__all__ = ["make_plan"]

# Gradients of a micro-batch: 16 MiB in float64 stay near the caches, 64 rows keep kernels busy, and 128 MiB is the most
# unless the job says otherwise.
_NEAR, _MOST = 1 << 21, 1 << 24
_FEW_ROWS, _MANY_ROWS = 64, 4096
_ROUNDING_SHARE = 2.0**-10  # of delta: for roundings that exceed their sensitivity, all together


def make_plan(job: Job, facts: Facts) -> Plan:
    """Determine the missing one of (epsilon, noise_multiplier, rounds) and price the result.

    Raises:
        JobError: contradictory or impossible numbers, with what to write instead.
    """
    draft, mechanism, total = _draft(job, facts), MECHANISMS[job.privacy.mechanism], len(facts.capacities)
    _check_provable(job, draft)
    one_share = mechanism.total(1.0, seen_contributors(draft.against, draft.honest))

    def on_a_lattice(noise_multiplier: float, replies: int) -> Plan:
        return _on_a_lattice(job, replace(draft, share_multiplier=noise_multiplier / one_share), replies)

    def event(noise_multiplier: float, replies: int) -> Event:
        # A search passes through noise that no ring or sampler holds: too little counts as none, so that it climbs
        # on, too much as what it would be. What the search ends at is made and checked below.
        if noise_multiplier == 0:
            return Repeated(replies, Gaussian(0.0))
        try:
            plan = on_a_lattice(noise_multiplier, replies)
        except ConfigError:
            return Repeated(replies, Gaussian(noise_multiplier))
        if plan.sigma > mechanism.largest_sigma:
            return Repeated(replies, Gaussian(noise_multiplier))
        try:
            mechanism.check(plan.sigma, plan.cohort)
        except ConfigError:
            return Repeated(replies, Gaussian(0.0))
        return plan.event(plan.dearest, replies)

    given = job.privacy.noise_multiplier
    if given is not None:
        mechanism.check(on_a_lattice(given, 1).sigma, draft.cohort)
    rounds, noise_multiplier = settle(job, event, silos=total, cohort=draft.cohort)
    found = on_a_lattice(noise_multiplier, most_replies(rounds, silos=total, cohort=draft.cohort))
    mechanism.check(found.sigma, found.cohort)
    priced = _priced(replace(found, rounds=rounds, noise_multiplier=noise_multiplier))
    if job.privacy.epsilon is not None and priced.epsilon > job.privacy.epsilon:
        raise JobError(
            f"The plan's epsilon {up(priced.epsilon)} exceeds the promised {job.privacy.epsilon}.",
            "This is a fault of the planner: report the job.",
        )
    return priced


def _draft(job: Job, facts: Facts) -> Plan:
    """What job and facts say by themselves."""
    privacy, total = job.privacy, len(facts.capacities)
    cohort, min_survivors = _sizes(job, total)
    colluding = _colluding(privacy.colluding_silos, total)
    return Plan(
        job_hash=job.hash,
        rule=job.local.rule,
        mechanism=privacy.mechanism,
        accountant=privacy.accountant,
        against=privacy.against,
        guarantee=privacy.guarantee,
        steps=job.local.steps or 1,
        lr=job.local.lr or 1.0,
        cohort=cohort,
        min_survivors=min_survivors,
        colluding_silos=colluding,
        honest=max(min_survivors - colluding, 1),  # the row's own silo is, whatever the others do
        clipping_norm=job.local.clipping_norm,
        rotation=job.aggregation.rotation,
        delta=privacy.delta,
        dim=facts.dim,
        micro_batch=job.local.micro_batch or _micro_batch(facts.dim),
        silos={name: _silo(job, capacity) for name, capacity in facts.capacities.items()},
    )


def _check_provable(job: Job, draft: Plan) -> None:
    """The draws' distance from their exact laws, times e^epsilon, has to stay below delta of all that is drawn."""
    mechanism, epsilon = MECHANISMS[draft.mechanism], job.privacy.epsilon
    error = mechanism.inexact(mechanism.largest_sigma)
    if epsilon is None or error is None:
        return
    replies = most_replies(job.federation.rounds or 1, silos=len(draft.silos), cohort=draft.cohort)
    coordinates = draft.coordinates
    most = math.log(draft.delta / (error * coordinates * draft.cohort * draft.steps * replies)) - 1
    if epsilon > most:
        less = f"privacy.epsilon of at most {math.floor(most)}" if most >= 1 else "a larger privacy.delta"
        raise JobError(
            f"privacy.epsilon = {epsilon:g} is beyond what {draft.mechanism} noise can prove at delta = "
            f"{draft.delta:g}: draws are within {error:.1g} of their law, and that times e^epsilon exceeds delta.",
            f'Write {less}, or privacy.mechanism = "gaussian" for research.',
        )


def _on_a_lattice(job: Job, plan: Plan, replies: int) -> Plan:
    """The plan with granularity, clamps and ring for its noise and so many replies of a silo."""
    failure = _ROUNDING_SHARE * plan.delta / max(1, replies * plan.steps)
    ring = _ring(job, plan, failure)
    silos = {name: replace(part, clamp=ring.clamps[name]) for name, part in plan.silos.items()}
    return replace(
        plan,
        silos=silos,
        granularity=ring.granularity,
        ring_bits=ring.ring_bits,
        l2=ring.l2,
        l1=ring.l1,
        rounding_failure=failure,
        sum_bound=ring.total,
    )


def _ring(job: Job, plan: Plan, failure: float) -> Ring:
    rule = RULES[plan.rule]
    largest = {
        name: rule.largest(part.capacity, part.sampling_rate, plan.clipping_norm) for name, part in plan.silos.items()
    }
    clamps = {name: job.aggregation.clamp or bound for name, bound in largest.items()}
    sums = Sums(
        l2=plan.sensitivity(max(clamps.values())),
        clamps=clamps,
        norm=max(largest.values()),
        dim=plan.dim,
        steps=plan.steps,
        cohort=plan.cohort,
    )
    return choose_ring(
        job.aggregation,
        MECHANISMS[plan.mechanism],
        sums,
        share_multiplier=plan.share_multiplier,
        failure=failure,
    )


def _priced(plan: Plan) -> Plan:
    """The plan with its epsilons: every silo's, the largest, and the largest against each observer."""
    replies = most_replies(plan.rounds, silos=len(plan.silos), cohort=plan.cohort)
    known: dict[tuple[float, int, Guarantee], tuple[float, accounting.Method]] = {}

    def price(silo: str, observer: str, guarantee: Guarantee) -> tuple[float, accounting.Method]:
        # Silos of one rate pay the same, and so do observers who see as many shares: each is priced once.
        key = (plan.silos[silo].sampling_rate, seen_contributors(observer, plan.honest), guarantee)
        if key not in known:
            known[key] = plan.price(silo, replies, observer, guarantee)
        return known[key]

    asked, dearest = plan.guarantee, plan.dearest
    promise = _finite(price(dearest, plan.against, asked)[0])
    # A smaller rate never costs more, whatever accountant priced it: hockey-stick divergences are convex.
    silos = {
        name: replace(part, replies=replies, epsilon=min(promise, price(name, plan.against, asked)[0]))
        for name, part in plan.silos.items()
    }
    joint = "joint-steps" in RULES[plan.rule].assumptions
    return replace(
        plan,
        silos=silos,
        epsilon=promise,
        epsilon_unconditional=_known(price(dearest, plan.against, "unconditional")[0]),
        epsilon_joint_steps=_known(price(dearest, plan.against, "joint-steps")[0]) if joint else None,
        proved_by=price(dearest, plan.against, asked)[1],
        epsilon_against={observer: _known(price(dearest, observer, asked)[0]) for observer in OBSERVERS},
    )


def _known(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _finite(epsilon: float) -> float:
    """The promise, which has to be a number."""
    if math.isfinite(epsilon):
        return epsilon
    raise JobError(
        "No finite epsilon can be proved for so little noise at this delta.",
        "Raise privacy.noise_multiplier or privacy.delta, or lower federation.rounds.",
    )


def _sizes(job: Job, silos: int) -> tuple[int, int]:
    """(cohort, min_survivors), checked against the number of silos."""
    cohort = job.federation.cohort or silos
    if cohort > silos:
        raise JobError(
            f"federation.cohort = {cohort} exceeds the {silos} silos of this job.", f"Write at most {silos}."
        )
    min_survivors = job.federation.min_survivors or cohort
    if min_survivors > cohort:
        raise JobError(
            f"federation.min_survivors = {min_survivors} exceeds the cohort of {cohort}.",
            f"Write at most {cohort}.",
        )
    return cohort, min_survivors


def _colluding(asked: int, silos: int) -> int:
    """Colluding silos; the default of one means none where a silo is alone."""
    if asked >= max(silos, 2):
        raise JobError(
            f"privacy.colluding_silos = {asked} leaves no honest silo among {silos}.", f"Write at most {silos - 1}."
        )
    return min(asked, silos - 1)


def _silo(job: Job, capacity: int) -> SiloPlan:
    rate = job.local.sampling_rate or 1.0
    if job.local.batch_size is not None:
        rate = min(1.0, job.local.batch_size / capacity)  # a silo smaller than the batch uses all its rows
    return SiloPlan(capacity=capacity, sampling_rate=rate)


def _micro_batch(dim: int) -> int:
    """Rows whose gradients are held at a time."""
    near_the_caches = min(_MANY_ROWS, _NEAR // dim)
    busy_kernels = min(_FEW_ROWS, _MOST // dim)
    return max(1, near_the_caches, busy_kernels)
