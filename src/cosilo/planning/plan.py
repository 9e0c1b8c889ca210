"""`Plan`: rounds, cohort, noise and its price, frozen and hashed.

A plan is a function of the job and of public facts (capacities, dimension), never of rows. The run follows it; the
statement quotes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from cosilo import accounting
from cosilo.accounting import Accountant
from cosilo.errors import JobError
from cosilo.job import Job
from cosilo.local import RULES, Terms
from cosilo.local.slots import OUTGROWN
from cosilo.mechanisms import MECHANISMS
from cosilo.planning.budget import most_replies, settle
from cosilo.privacy import Event, Repeated

__all__ = ["OBSERVERS", "Facts", "Plan", "SiloPlan", "make_plan", "seen_contributors"]

OBSERVERS = ("server", "outsider", "local")

# Gradients of a micro-batch: 16 MiB in float64 stay near the caches, 64 rows keep kernels busy, and 128 MiB is the most
# unless the job says otherwise.
_NEAR, _MOST = 1 << 21, 1 << 24
_FEW_ROWS, _MANY_ROWS = 64, 4096
_NEGLIGIBLE = 2.0**-53  # of delta: subtracting it would not change delta's float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Public facts a plan needs beside the job: each silo's capacity and the number of trainable parameters."""

    capacities: Mapping[str, int]
    dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiloPlan:
    """One silo's part.

    Attributes:
        capacity: rows it may hold at most.
        sampling_rate: probability with which a row enters a round's batch.
        replies: messages it sends at most (`most_replies`).
        epsilon: what `replies` rounds cost one of its rows against the job's observer, at the job's delta.
    """

    capacity: int
    sampling_rate: float
    replies: int
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every number of a run.

    Attributes:
        noise_multiplier: z, total honest noise sd / l2 sensitivity, as the job's observer sees it.
        share_multiplier: one contributor's noise sd / l2 sensitivity.
        honest: contributors whose noise counts against an outsider (worst allowed case).
        epsilon: the promise against the job's observer: the largest over silos.
        proved_by: what proves it: "closed-form", "pld" or "rdp".
        epsilon_against: the same noise seen by "server", "outsider" and "local" (one silo's own noise only).
    """

    job_hash: str
    rule: str
    mechanism: str
    accountant: Accountant
    against: str
    rounds: int
    cohort: int
    min_survivors: int
    colluding_silos: int
    honest: int
    clipping_norm: float
    noise_multiplier: float
    share_multiplier: float
    epsilon: float
    delta: float
    proved_by: str
    epsilon_against: Mapping[str, float]
    dim: int
    micro_batch: int
    silos: Mapping[str, SiloPlan]

    def terms(self, silo: str) -> Terms:
        """The public numbers under which `silo` works."""
        part = self.silos[silo]
        return Terms(
            clipping_norm=self.clipping_norm,
            sampling_rate=part.sampling_rate,
            capacity=part.capacity,
            share_multiplier=self.share_multiplier,
            dim=self.dim,
            micro_batch=self.micro_batch,
        )

    def event(self, silo: str, replies: int, observer: str | None = None) -> Event:
        """What `replies` rounds of `silo` released towards `observer` (default: the job's)."""
        contributors = seen_contributors(observer or self.against, self.honest)
        use = RULES[self.rule].event(self.terms(silo), MECHANISMS[self.mechanism], contributors)
        return Repeated(replies, use)

    @property
    def dearest(self) -> str:
        """A silo whose rows pay most: one with the largest sampling rate."""
        return max(self.silos, key=lambda name: self.silos[name].sampling_rate)

    def price(self, silo: str, replies: int, observer: str | None = None) -> tuple[float, accounting.Method]:
        """Upper bound on epsilon of `event` at the plan's delta, and what proves it."""
        event = self.event(silo, replies, observer)
        bound, method = accounting.epsilon_and_method(event, self.delta, self.accountant)
        return bound.upper, method

    @property
    def overflow(self) -> float:
        """Probability that some sampled batch of a silo outgrows its slots: part of delta, below its last bit."""
        return max(part.replies * OUTGROWN if part.sampling_rate < 1 else 0.0 for part in self.silos.values())

    def to_tree(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Self:
        """Read back what `to_tree` gave."""
        silos = {name: SiloPlan(**part) for name, part in tree["silos"].items()}
        return cls(**{**tree, "silos": silos})

    @property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON of the plan, hex."""
        canonical = json.dumps(self.to_tree(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def seen_contributors(observer: str, honest: int) -> int:
    """Noise shares that hide a row from `observer` under the plain protocol.

    The server sees every message, so one share; "local" asks for one share by definition; an outsider sees
    released models only, so all honest shares.
    """
    return honest if observer == "outsider" else 1


def make_plan(job: Job, facts: Facts) -> Plan:
    """Determine the missing one of (epsilon, noise_multiplier, rounds) and price the result.

    Raises:
        JobError: contradictory or impossible numbers, with what to write instead.
    """
    privacy, total = job.privacy, len(facts.capacities)
    cohort, min_survivors = _sizes(job, total)
    colluding = _colluding(privacy.colluding_silos, total)
    honest = max(min_survivors - colluding, 1)  # the row's own silo is, whatever the others do
    mechanism = MECHANISMS[privacy.mechanism]
    one_share = mechanism.total(1.0, seen_contributors(privacy.against, honest))
    draft = Plan(
        job_hash=job.hash,
        rule=job.local.rule,
        mechanism=privacy.mechanism,
        accountant=privacy.accountant,
        against=privacy.against,
        rounds=0,
        cohort=cohort,
        min_survivors=min_survivors,
        colluding_silos=colluding,
        honest=honest,
        clipping_norm=job.local.clipping_norm,
        noise_multiplier=0.0,
        share_multiplier=0.0,
        epsilon=0.0,
        delta=privacy.delta,
        proved_by="",
        epsilon_against={},
        dim=facts.dim,
        micro_batch=job.local.micro_batch or _micro_batch(facts.dim),
        silos={name: _silo(job, capacity) for name, capacity in facts.capacities.items()},
    )

    def event(noise_multiplier: float, replies: int) -> Event:
        return replace(draft, share_multiplier=noise_multiplier / one_share).event(draft.dearest, replies)

    rounds, noise_multiplier = settle(job, event, silos=total, cohort=cohort)
    share = noise_multiplier / one_share
    mechanism.check(draft.clipping_norm, share, max(facts.capacities.values()), cohort)
    return _priced(replace(draft, rounds=rounds, noise_multiplier=noise_multiplier, share_multiplier=share))


def _priced(plan: Plan) -> Plan:
    """The plan with its epsilons: every silo's, the largest, and the largest against each observer."""
    replies = most_replies(plan.rounds, silos=len(plan.silos), cohort=plan.cohort)
    known: dict[tuple[float, int], tuple[float, accounting.Method]] = {}

    def price(silo: str, observer: str) -> tuple[float, accounting.Method]:
        # Silos of one rate pay the same, and so do observers who see as many shares: each is priced once.
        key = (plan.silos[silo].sampling_rate, seen_contributors(observer, plan.honest))
        if key not in known:
            known[key] = plan.price(silo, replies, observer)
        return known[key]

    silos = {
        name: replace(part, replies=replies, epsilon=price(name, plan.against)[0]) for name, part in plan.silos.items()
    }
    priced = replace(
        plan,
        silos=silos,
        epsilon=max(part.epsilon for part in silos.values()),
        proved_by=price(plan.dearest, plan.against)[1],
        epsilon_against={observer: price(plan.dearest, observer)[0] for observer in OBSERVERS},
    )
    if priced.overflow > _NEGLIGIBLE * priced.delta:
        raise JobError(
            f"delta = {priced.delta:g} is too small for sampled batches: one outgrows its slots with "
            f"probability {priced.overflow:.1g}.",
            "Raise privacy.delta, or use all rows (leave out sampling_rate and batch_size).",
        )
    return priced


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
    return SiloPlan(capacity=capacity, sampling_rate=rate, replies=0, epsilon=0.0)


def _micro_batch(dim: int) -> int:
    """Rows whose gradients are held at a time."""
    near_the_caches = min(_MANY_ROWS, _NEAR // dim)
    busy_kernels = min(_FEW_ROWS, _MOST // dim)
    return max(1, near_the_caches, busy_kernels)
