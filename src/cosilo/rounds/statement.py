"""The privacy statement of a run: what is promised, what it rests on, what it does not cover (design 10, section 8)."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from cosilo import accounting
from cosilo.local import RULES
from cosilo.mechanisms import MECHANISMS

if TYPE_CHECKING:
    from cosilo.job import Job
    from cosilo.planning import Plan

__all__ = ["Spending", "SpentCurve", "statement"]

_COMPUTATIONAL = "Noise and batches come from AES-256-CTR streams keyed by the operating system (computational)."
_ALL_MODELS = "The promise covers the models of all rounds together, not only the last."
_NOT_COVERED = (
    "Choices made by looking at private rows: hyper-parameters, features, early stopping.",
    "Other jobs on the same rows: their epsilons add to this one.",
    "Side channels: the time a silo takes, the number of its rows up to the capacity.",
    "Poisoned inputs, and silos that do not run this code or whose random generator is broken.",
)
_VERSIONED = ("cosilo", "dp-accounting", "numpy", "torch", "cryptography")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What really happened.

    Attributes:
        rounds: rounds done.
        replies: messages each silo sent, retries included.
        fewest_survivors: smallest number of silos that delivered in a round; None before the first.
    """

    rounds: int
    replies: Mapping[str, int]
    fewest_survivors: int | None


class SpentCurve:
    """Epsilon spent after n replies, for progress: a proved upper bound, cheap to ask for every round.

    Sampled events are priced at ten points only; between two of them the later one is quoted, which is an upper
    bound because epsilon grows with the replies.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._silo = max(plan.silos, key=lambda name: plan.silos[name].sampling_rate)
        self._most = plan.silos[self._silo].replies
        unsampled = plan.silos[self._silo].sampling_rate == 1
        self._step = 1 if unsampled else max(1, math.ceil(self._most / 10))
        self._known: dict[int, float] = {0: 0.0, self._most: plan.epsilon}

    def __call__(self, replies: int) -> float:
        """Upper bound on epsilon after `replies` messages of the silo that pays most."""
        priced = min(math.ceil(replies / self._step) * self._step, self._most)
        if priced not in self._known:
            self._known[priced] = _upper(self._plan, self._silo, priced)
        return self._known[priced]


def statement(
    job: Job, plan: Plan, spending: Spending, *, entropy: Literal["system", "seeded"], public_test_rows: bool
) -> dict[str, Any]:
    """privacy.json: plain JSON data, every number an upper bound."""
    rule, mechanism = RULES[plan.rule], MECHANISMS[plan.mechanism]
    per_silo = _per_silo(plan, spending)
    not_covered = [*_NOT_COVERED, mechanism.limits]
    if public_test_rows:
        not_covered.append("The held-out rows: they are public by declaration and carry no guarantee.")
    return {
        "unit": job.privacy.unit,
        "relation": job.privacy.relation,
        "adjacency": {
            "capacity": {name: part.capacity for name, part in plan.silos.items()},
            "silos": "disjoint",
        },
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "delta_items": {"curve": plan.delta, "rounding": 0.0, "sampler": 0.0, "overflow": 0.0},
        "epsilon_spent": max((part["epsilon"] for part in per_silo), default=0.0),
        "rule": plan.rule,
        "mechanism": plan.mechanism,
        "guarantee": "unconditional",
        "assumption": f"{rule.assumption} {_COMPUTATIONAL} {_ALL_MODELS}",
        "epsilon_unconditional": plan.epsilon,
        "epsilon_joint_steps": None,
        "against": plan.against,
        "epsilon_against": dict(plan.epsilon_against),
        "protocol": job.aggregation.protocol,
        "colluding_silos": plan.colluding_silos,
        "honest_contributors": plan.honest,
        "silos": len(plan.silos),
        "cohort": plan.cohort,
        "min_survivors": plan.min_survivors,
        "survivors": {"planned": plan.min_survivors, "fewest": spending.fewest_survivors},
        "rounds": {"planned": plan.rounds, "done": spending.rounds},
        "per_silo": per_silo,
        "accountant": plan.accountant,
        "clipping_norm": plan.clipping_norm,
        "noise_multiplier": plan.noise_multiplier,
        "share_multiplier": plan.share_multiplier,
        "granularity": None,
        "ring_bits": None,
        "failure_probability": {"rounding": 0.0, "sampler": 0.0, "overflow": 0.0},
        "entropy": "system" if entropy == "system" else "seeded: not a private release",
        "not_covered": not_covered,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _VERSIONED}},
        "job_hash": plan.job_hash,
        "plan_hash": plan.hash,
    }


def _per_silo(plan: Plan, spending: Spending) -> list[dict[str, Any]]:
    """Each silo's epsilon from its own record; silos with the same record are priced once."""
    priced: dict[tuple[float, int], float] = {}
    rows = []
    for silo, part in plan.silos.items():
        replies = spending.replies.get(silo, 0)
        key = (part.sampling_rate, replies)
        if key not in priced:
            priced[key] = part.epsilon if replies == part.replies else _upper(plan, silo, replies)
        rows.append({"silo": silo, "rounds": replies, "epsilon": priced[key], "epsilon_planned": part.epsilon})
    return rows


def _upper(plan: Plan, silo: str, replies: int) -> float:
    if replies == 0:
        return 0.0
    return accounting.epsilon(plan.event(silo, replies), plan.delta, plan.accountant).upper
