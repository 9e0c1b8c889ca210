"""The contract of a local rule, free of torch: planning, accounting and silos read it without loading a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from cosilo.lattice import Lattice

if TYPE_CHECKING:
    import numpy as np

    from cosilo.entropy import Stream
    from cosilo.mechanisms import Mechanism
    from cosilo.privacy import Event, Sensitivity

    Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
    Integers = np.ndarray[tuple[int], np.dtype[np.int64]]

__all__ = ["Guarantee", "LocalWork", "Noisy", "Release", "Rule", "StepDesk", "Terms"]

Guarantee: TypeAlias = Literal["unconditional", "joint-steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The public numbers under which one silo works; nothing here depends on its rows.

    Attributes:
        clipping_norm: C, largest l2 norm of one row's gradient after clipping.
        sampling_rate: probability with which a row enters a step's batch; 1 means all rows.
        capacity: M, rows the silo may hold at most.
        share_multiplier: the silo's own noise sd / l2 sensitivity, of every step.
        dim: trainable parameters.
        micro_batch: rows whose gradients are held in memory at a time.
        steps: local steps a round, each with a noisy vector of its own.
        lr: how far a local step moves the silo's own model along its noisy mean gradient.
        lattice: granularity, clamp and ring of this silo's integers.
        l2: l2 sensitivity of one step's integer vector, in lattice units.
        l1: its l1 sensitivity.
        rounding_failure: probability that one rounding exceeds l2 and l1, for one row and step.
        draw_error: total variation between one noise draw and its exact law.
        shares: silos whose draws are in a round's sum, at most.
    """

    clipping_norm: float
    sampling_rate: float
    capacity: int
    share_multiplier: float
    dim: int
    micro_batch: int
    steps: int
    lr: float
    lattice: Lattice
    l2: float
    l1: float
    rounding_failure: float
    draw_error: float
    shares: int

    @property
    def sigma(self) -> float:
        """The silo's own noise sd, in lattice units."""
        return self.share_multiplier * self.l2


class Noisy(NamedTuple):
    """A vector as it may leave the silo: clamped, rounded, with this silo's noise share.

    Attributes:
        integers: lattice units, shape (lattice.coordinates,), int64.
        vector: what they stand for, shape (dim,), float64.
    """

    integers: Integers
    vector: Vector


class StepDesk(Protocol):
    """What a rule gets from the round for each of its steps; every stream is handed out once."""

    def batch(self, step: int) -> Stream:
        """Randomness of the step's batch."""
        ...

    def noisy(self, step: int, vector: Vector) -> Noisy:
        """The step's vector, shape (dim,), rounded and noised."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """What a rule computed.

    Attributes:
        integers: sum of the noisy integers of all steps, shape (lattice.coordinates,), int64.
        non_finite: rows whose gradient was not finite and counted as zero; stays in the silo's own log.
    """

    integers: Integers
    non_finite: int


class LocalWork(Protocol):
    """A rule bound to one silo's model and rows."""

    def release(self, theta: Vector, desk: StepDesk) -> Release:
        """The round's integers at the released model `theta`; `desk.noisy` is called once for each of `terms.steps`."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """A registry entry.

    Attributes:
        name: as written in `[local] rule`.
        assumptions: what each guarantee that the rule offers rests on, one sentence for the statement.
        sensitivity: clipping norm -> l2 sensitivity of one step's vector before rounding.
        largest: (capacity, sampling_rate, clipping norm) -> bound on the norm, hence on every coordinate, of a
            step's vector, reached by no batch but with the probability that one outgrows its slots.
        event: (Terms, Mechanism, honest contributors, guarantee) -> what one round costs a row of that silo.
        divisor: Terms -> public number that a silo's message is divided by (added up over the silos of a sum).
        compute_module: holds `prepare(module, x, y, terms) -> LocalWork`; imported when a silo starts to work.
    """

    name: str
    assumptions: dict[Guarantee, str]
    sensitivity: Callable[[float], Sensitivity]
    largest: Callable[[int, float, float], float]
    event: Callable[[Terms, Mechanism, int, Guarantee], Event]
    divisor: Callable[[Terms], float]
    compute_module: str

    def prepare(self, module: Any, x: Any, y: Any, terms: Terms) -> LocalWork:  # noqa: ANN401 - torch stays out of here
        """Bind the rule to a torch module and one silo's rows (x: (n, ...), y: (n,))."""
        work: LocalWork = import_module(self.compute_module).prepare(module, x, y, terms)
        return work
