"""`Plan`: rounds, cohort, noise, integers and their price, frozen and hashed; a run follows it and quotes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from cosilo import accounting
from cosilo.accounting import Accountant
from cosilo.lattice import Lattice, coordinates_of
from cosilo.local import RULES, Guarantee, Terms
from cosilo.local.slots import OUTGROWN
from cosilo.mechanisms import MECHANISMS
from cosilo.planning.ring import OUTSIDE, within
from cosilo.privacy import Event, Repeated

__all__ = ["OBSERVERS", "Facts", "Plan", "SiloPlan", "seen_contributors"]

OBSERVERS = ("server", "outsider", "local")


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
        clamp: largest coordinate of one step's vector, real units.
    """

    capacity: int
    sampling_rate: float
    replies: int = 0
    epsilon: float = 0.0
    clamp: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every number of a run.

    Attributes:
        guarantee: what `epsilon` rests on; "unconditional" unless the job asks for the other.
        steps: local steps a round.
        lr: local step size; it scales the summed messages.
        noise_multiplier: z, total honest noise sd / l2 sensitivity, as the job's observer sees it.
        share_multiplier: one contributor's noise sd / l2 sensitivity, in every step.
        granularity: real value of one lattice unit.
        ring_bits: messages are integers modulo 2^ring_bits.
        rotation: whether vectors are rotated before they are clamped.
        l2: l2 sensitivity of one step's integers, in lattice units.
        l1: their l1 sensitivity.
        rounding_failure: probability that one rounding exceeds them.
        sum_bound: bound on a coordinate of a round's sum, in lattice units.
        honest: contributors whose noise counts against an outsider (worst allowed case).
        epsilon: the promise against the job's observer: the largest over silos.
        epsilon_unconditional: the same without the assumption of joint-steps; None: no finite one is proved.
        epsilon_joint_steps: what joint-steps says; None for a rule without local steps.
        proved_by: what proves it: "closed-form", "pld" or "rdp".
        epsilon_against: the same noise seen by "server", "outsider" and "local" (one silo's own noise only).
    """

    job_hash: str
    rule: str
    mechanism: str
    accountant: Accountant
    against: str
    guarantee: Guarantee
    steps: int
    lr: float
    cohort: int
    min_survivors: int
    colluding_silos: int
    honest: int
    clipping_norm: float
    rotation: bool
    delta: float
    dim: int
    micro_batch: int
    silos: Mapping[str, SiloPlan]
    # Found by `make_plan`, in this order: a draft has none of them.
    rounds: int = 0
    noise_multiplier: float = 0.0
    share_multiplier: float = 0.0
    granularity: float = 0.0
    ring_bits: int = 0
    l2: float = 0.0
    l1: float = 0.0
    rounding_failure: float = 0.0
    sum_bound: int = 0
    epsilon: float = 0.0
    epsilon_unconditional: float | None = None
    epsilon_joint_steps: float | None = None
    proved_by: str = ""
    epsilon_against: Mapping[str, float | None] = field(default_factory=dict)

    def lattice(self, silo: str) -> Lattice:
        """The integers on which `silo` works."""
        return Lattice(
            granularity=self.granularity,
            clamp=self.silos[silo].clamp,
            ring_bits=self.ring_bits,
            dim=self.dim,
            rotation=self.rotation,
        )

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
            steps=self.steps,
            lr=self.lr,
            lattice=self.lattice(silo),
            l2=self.l2,
            l1=self.l1,
            rounding_failure=self.rounding_failure,
            draw_error=self.draw_error or 0.0,
            shares=self.cohort,
        )

    @property
    def sigma(self) -> float:
        """One contributor's noise sd in lattice units."""
        return self.share_multiplier * self.l2

    @property
    def draw_error(self) -> float | None:
        """Total variation between one noise draw and its exact law; None where no bound is known."""
        return MECHANISMS[self.mechanism].inexact(self.sigma)

    @property
    def inflation(self) -> float:
        """Relative growth of the sensitivity by rounding."""
        return self.l2 * self.granularity / self.sensitivity(max(part.clamp for part in self.silos.values())) - 1

    @property
    def coordinates(self) -> int:
        """Integers in a message: dim, padded where a rotation comes first."""
        return coordinates_of(self.dim, rotation=self.rotation)

    def sensitivity(self, clamp: float) -> float:
        """l2 sensitivity of one step's vector before rounding, with `clamp` the largest of all silos."""
        return within(RULES[self.rule].sensitivity(self.clipping_norm).l2, clamp=clamp, coordinates=self.coordinates)

    def event(self, silo: str, replies: int, observer: str | None = None, guarantee: Guarantee | None = None) -> Event:
        """What `replies` rounds of `silo` released towards `observer` (default: the job's) by `guarantee` (same)."""
        contributors = seen_contributors(observer or self.against, self.honest)
        rule, mechanism = RULES[self.rule], MECHANISMS[self.mechanism]
        return Repeated(replies, rule.event(self.terms(silo), mechanism, contributors, guarantee or self.guarantee))

    @property
    def dearest(self) -> str:
        """A silo whose rows pay most: one with the largest sampling rate."""
        return max(self.silos, key=lambda name: self.silos[name].sampling_rate)

    def price(
        self, silo: str, replies: int, observer: str | None = None, guarantee: Guarantee | None = None
    ) -> tuple[float, accounting.Method]:
        """Upper bound on epsilon of `event` at the plan's delta, and what proves it."""
        event = self.event(silo, replies, observer, guarantee)
        bound, method = accounting.epsilon_and_method(event, self.delta, self.accountant)
        return bound.upper, method

    @property
    def roundings(self) -> int:
        """Roundings that a row meets at most."""
        return self.steps * max(part.replies for part in self.silos.values())

    @property
    def outgrown(self) -> float:
        """Probability that some sampled batch of a silo outgrows its slots: part of delta."""
        return self.roundings * OUTGROWN

    @property
    def overflow(self) -> float:
        """Probability that some coordinate of some round's sum leaves the ring: a wrong model, never a breach."""
        return min(1.0, self.rounds * self.coordinates * OUTSIDE)

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
