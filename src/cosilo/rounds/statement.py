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
from cosilo.planning import seen_contributors

if TYPE_CHECKING:
    from cosilo.job import Job
    from cosilo.planning import Plan
    from cosilo.privacy import Event

__all__ = ["Spending", "SpentCurve", "statement"]

_DOMAIN = (
    "Neighbours are data sets of the same public, disjoint silos, each holding 1 to capacity rows, that pass the job's "
    "checks (schema, finite features) and on which no silo's code fails."
)
_PUBLIC = (
    "Public are the job with its schema and capacities, the set of silos, the initial model and all it never trains."
)
_OBSERVERS = {
    "server": "The server sees every silo's message; nobody is trusted but the row's own silo.",
    "outsider": "The observer sees the models of all rounds and may know the noise of {colluding} colluding silos; the "
    "server is trusted, because it sees every message.",
}
_ENTROPY = {
    "system": "Noise, rounding and batches come from AES-256-CTR streams keyed by the system (computational).",
    "seeded": "SIMULATION: noise, rounding and batches come from a seed, and whoever knows it can subtract them.",
}
_ALL_MODELS = "The promise covers the models of all rounds together, not only the last."
_NOT_COVERED = (
    "Several rows of one person: the unit is one row, and k rows are covered with about k times epsilon.",
    "Choices made by looking at private rows: hyper-parameters, features, early stopping, evaluation on them.",
    "Other jobs on the same rows: their epsilons add to this one.",
    "A run folder restored from a backup: it forgets what was spent since.",
    "A run stopped by looking at its results: epsilon_realised is information, the promise stays epsilon.",
    "Side channels: the time that reading rows takes, and that a row makes a silo's code fail.",
    "Poisoned inputs, and silos that do not run this code or whose random generator is broken.",
)
_PUBLIC_ROWS = "The held-out rows: they are public by declaration and carry no guarantee."
_VERSIONED = ("cosilo", "dp-accounting", "numpy", "numba", "torch", "cryptography")


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
        self._silo = plan.dearest
        self._most = plan.silos[self._silo].replies
        unsampled = plan.silos[self._silo].sampling_rate == 1
        self._step = 1 if unsampled else max(1, math.ceil(self._most / 10))
        self._known: dict[int, float] = {0: 0.0, self._most: plan.epsilon}

    def __call__(self, replies: int) -> float:
        """Upper bound on epsilon after `replies` messages of the silo that pays most."""
        priced = min(math.ceil(replies / self._step) * self._step, self._most)
        if priced not in self._known:
            self._known[priced] = self._plan.price(self._silo, priced)[0]
        return self._known[priced]


def statement(
    job: Job, plan: Plan, spending: Spending, *, entropy: Literal["system", "seeded"], public_test_rows: bool
) -> dict[str, Any]:
    """privacy.json: plain JSON data, every epsilon an upper bound; None where nothing is known or nothing applies."""
    rule, mechanism = RULES[plan.rule], MECHANISMS[plan.mechanism]
    limits = [mechanism.limits] if mechanism.limits else []
    not_covered = [*limits, *_NOT_COVERED, *([_PUBLIC_ROWS] if public_test_rows else [])]
    observer = _OBSERVERS[plan.against].format(colluding=plan.colluding_silos)
    sentences = (rule.assumptions[plan.guarantee], _PUBLIC, observer, _ENTROPY[entropy], _ALL_MODELS)
    return {
        "unit": job.privacy.unit,
        "relation": job.privacy.relation,
        "adjacency": {"domain": _DOMAIN, "capacity": {name: part.capacity for name, part in plan.silos.items()}},
        **_promise(plan),
        "rule": plan.rule,
        "mechanism": plan.mechanism,
        "guarantee": plan.guarantee,
        "assumption": " ".join(sentences),
        "protocol": job.aggregation.protocol,
        **_noise(plan),
        **_record(plan, spending),
        "entropy": "system" if entropy == "system" else "seeded: not a private release",
        "not_covered": not_covered,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _VERSIONED}},
        "job_hash": plan.job_hash,
        "plan_hash": plan.hash,
    }


def _promise(plan: Plan) -> dict[str, Any]:
    event = plan.event(plan.dearest, plan.silos[plan.dearest].replies)
    paid = accounting.flatten(event)
    sampler = None if plan.draw_error is None else paid.distance
    rounding = paid.failure - plan.outgrown
    items = {
        "law": accounting.distance_charge(_law(plan, event), plan.epsilon),
        "rounding": rounding,
        "sampler": None if sampler is None else accounting.distance_charge(sampler, plan.epsilon),
        "slots": plan.outgrown,
    }
    return {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "delta_items": {"curve": plan.delta - math.fsum(item or 0.0 for item in items.values()), **items},
        "failure_probability": {"rounding": rounding, "sampler": sampler, "overflow": plan.overflow},
        "epsilon_unconditional": plan.epsilon_unconditional,
        "epsilon_joint_steps": plan.epsilon_joint_steps,
        "against": plan.against,
        "epsilon_against": dict(plan.epsilon_against),
        "accountant": plan.proved_by,
    }


def _law(plan: Plan, event: Event) -> float:
    """Total variation between the run's discrete noise and the Gaussian noise that its accountant stands on."""
    if plan.proved_by == "rdp" or plan.epsilon == 0:  # priced by its own curve, or a row is hardly ever in a batch
        return 0.0
    return accounting.distance_from_gaussian(event)


def _noise(plan: Plan) -> dict[str, Any]:
    return {
        "clipping_norm": plan.clipping_norm,
        "noise_multiplier": plan.noise_multiplier,
        "share_multiplier": plan.share_multiplier,
        "local_steps": plan.steps,
        "granularity": plan.granularity,
        "ring_bits": plan.ring_bits,
        "clamp": {name: part.clamp for name, part in plan.silos.items()},
        "rotation": plan.rotation,
        "rounding_inflation": plan.inflation,
        "colluding_silos": plan.colluding_silos,
        "honest_contributors": seen_contributors(plan.against, plan.honest),
        "silos": len(plan.silos),
        "cohort": plan.cohort,
        "min_survivors": plan.min_survivors,
    }


def _record(plan: Plan, spending: Spending) -> dict[str, Any]:
    per_silo = _per_silo(plan, spending)
    return {
        "rounds": {"planned": plan.rounds, "done": spending.rounds},
        "survivors": {"planned": plan.min_survivors, "fewest": spending.fewest_survivors},
        "per_silo": per_silo,
        "epsilon_realised": max((part["epsilon_realised"] for part in per_silo), default=0.0),
    }


def _per_silo(plan: Plan, spending: Spending) -> list[dict[str, Any]]:
    """Each silo's promise, and its epsilon by its own record; silos with the same record are priced once."""
    priced: dict[tuple[float, int], float] = {}
    rows = []
    for silo, part in plan.silos.items():
        replies = spending.replies.get(silo, 0)
        key = (part.sampling_rate, replies)
        if key not in priced:  # fewer replies never cost more than the planned ones
            known = replies >= part.replies
            priced[key] = part.epsilon if known else min(part.epsilon, plan.price(silo, replies)[0])
        rows.append({"silo": silo, "rounds": replies, "epsilon": part.epsilon, "epsilon_realised": priced[key]})
    return rows
