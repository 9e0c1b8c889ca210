"""Granularity, clamp and ring of a run: chosen so that rounding costs little and no sum can leave the ring.

A lattice unit is `granularity` = clipping norm / k. The finer it is (larger k), the less rounding adds to the integer
sensitivity and the more bits a sum needs. Left to itself, the smallest of 16, 32 and 64 bits is taken in which
rounding adds less than `ACCEPTED` to the sensitivity, with the finest granularity that fits, but none finer than
gains anything (`_ENOUGH`).

No overflow: every silo's sum is clamped to its public A and every step adds one, so the total of a cohort lies within
steps * (sum of its largest clamps, in lattice units) plus the noise of cohort * steps draws, which stays below the
mechanism's own tail bound but with probability 2^-60 a coordinate and round. A sum that left the ring all the
same would be a wrong model, not a breach: reduction modulo 2^ring_bits is applied to what is already private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cosilo.errors import JobError
from cosilo.job.schema import Aggregation
from cosilo.lattice import Lattice, fits, integer_sensitivity, smallest_ring
from cosilo.mechanisms import Mechanism

__all__ = ["ACCEPTED", "OUTSIDE", "Ring", "Sums", "choose_ring", "within"]

ACCEPTED = 1e-3  # relative growth of the sensitivity by rounding (design 20)
_ENOUGH = 1e-4  # finer gains nothing that anybody could measure
OUTSIDE = 2.0**-60  # probability that the noise of one coordinate leaves the planned range in one round
_RINGS = (16, 32, 64)
_COARSEST, _FINEST = 2.0**-10, 2.0**48  # clipping norm in lattice units: what is considered
_LARGEST_UNITS = 2.0**50  # a clamp in lattice units stays an exact float64 with room for its fraction
_CLOSE = 1e-4  # of log k
_UP = 1 + 2.0**-50  # more than the rounding of a sum and a quotient


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What is summed in a round, in public numbers.

    Attributes:
        l2: l2 sensitivity of one step's vector, before rounding (`within` its clamp).
        clamps: silo -> largest coordinate of its vectors, real units.
        norm: bound on the norm of every silo's vector, before it is clamped.
        reach: of the largest clamps of a cohort, the sum.
        dim: trainable parameters.
        steps: vectors a silo adds up in a round.
        cohort: silos in a sum, at most.
    """

    l2: float
    clamps: Mapping[str, float]
    norm: float
    dim: int
    steps: int
    cohort: int
    reach: float = field(init=False)

    def __post_init__(self) -> None:
        largest = sorted(self.clamps.values(), reverse=True)[: self.cohort]
        object.__setattr__(self, "reach", math.fsum(largest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The choice.

    Attributes:
        granularity: real value of one lattice unit.
        ring_bits: residues are integers modulo 2^ring_bits.
        clamps: silo -> largest coordinate of its vectors, real units.
        l2: l2 sensitivity of one step's integers, in lattice units.
        l1: their l1 sensitivity.
        total: bound on a coordinate of a round's sum, in lattice units.
    """

    granularity: float
    ring_bits: int
    clamps: Mapping[str, float]
    l2: float
    l1: float
    total: int


def choose_ring(
    wanted: Aggregation, mechanism: Mechanism, sums: Sums, *, share_multiplier: float, failure: float
) -> Ring:
    """The job's own choices where it made them, checked, and the automatic ones elsewhere.

    Args:
        wanted: the job's [aggregation].
        mechanism: the noise that is added.
        sums: what is summed.
        share_multiplier: one contributor's noise sd / l2 sensitivity of a step's integers, > 0.
        failure: probability that one rounding may exceed the sensitivity of the result.

    Raises:
        JobError: the ring is too small for these sums, with the numbers and the smallest that works.
    """

    def at(units: float) -> Ring:
        return _at(wanted, mechanism, sums, units, share_multiplier, failure)

    rings = _RINGS if wanted.ring_bits == "auto" else (wanted.ring_bits,)
    if wanted.granularity is not None:
        return _smallest(at(sums.l2 / wanted.granularity), rings, own=True)
    finest = _finest(mechanism, sums, lambda units: share_multiplier * at(units).l2)
    enough = min(finest, _enough(mechanism, at, sums, share_multiplier, finest))
    for bits in rings:
        units = _fitting(at, bits, enough)
        if units is None:
            continue
        found = replace(at(units), ring_bits=bits)
        if bits == rings[-1] or inflation(found, sums.l2) <= ACCEPTED or units == finest:
            return found
    return _smallest(at(_COARSEST), rings, own=False)


def within(l2: float, *, clamp: float, coordinates: int) -> float:
    """l2 sensitivity of a vector that is clamped after it was bounded by `l2`: both neighbours lie in the clamp."""
    return min(l2, 2 * clamp * math.sqrt(coordinates))


def inflation(ring: Ring, l2: float) -> float:
    """Relative growth of the sensitivity by rounding."""
    return ring.l2 * ring.granularity / l2 - 1


def _at(
    wanted: Aggregation, mechanism: Mechanism, sums: Sums, units: float, share_multiplier: float, failure: float
) -> Ring:
    """The largest ring with the granularity sensitivity / `units`."""
    # The margin for floating point grows with the clamp: the largest silo's covers all.
    widest = Lattice(
        granularity=wanted.granularity or sums.l2 / units,
        clamp=max(sums.clamps.values()),
        ring_bits=_RINGS[-1],
        dim=sums.dim,
        rotation=wanted.rotation,
    )
    l2, l1 = integer_sensitivity(l2=sums.l2, lattice=widest, beta=failure, norm=sums.norm)
    # ceil(a) + ceil(b) <= ceil(a + b) + 1: one rounding up for all, and a unit for each.
    reach = math.ceil(sums.reach / widest.granularity * _UP) + sums.cohort
    noise = mechanism.tail(share_multiplier * l2, sums.cohort * sums.steps, OUTSIDE)
    return Ring(
        granularity=widest.granularity,
        ring_bits=_RINGS[-1],
        clamps=sums.clamps,
        l2=l2,
        l1=l1,
        total=sums.steps * reach + math.ceil(noise),
    )


def _smallest(ring: Ring, rings: tuple[int, ...], *, own: bool) -> Ring:
    """The smallest of `rings` that holds the sums of `ring`."""
    for bits in rings:
        if fits(bits, ring.total):
            return replace(ring, ring_bits=bits)
    larger = f"aggregation.ring_bits = {smallest_ring(ring.total)}" if fits(_RINGS[-1], ring.total) else ""
    coarser = "a larger aggregation.granularity" if own else ""
    smaller = f"an aggregation.clamp below {max(ring.clamps.values()):.4g}"
    raise JobError(
        f"A ring of {rings[-1]} bits is too small: at granularity {ring.granularity:.4g} a sum can reach "
        f"{ring.total:,} lattice units, and {rings[-1]} bits hold less than {1 << (rings[-1] - 1):,}.",
        f"Write {', '.join(way for way in (larger, coarser) if way)}{' or ' if larger or coarser else ''}{smaller}.",
    )


def _finest(mechanism: Mechanism, sums: Sums, sigma: Callable[[float], float]) -> float:
    """Largest clipping norm in lattice units that clamp and sampler allow."""
    most = max(_COARSEST, min(_FINEST, _LARGEST_UNITS / (max(sums.clamps.values()) / sums.l2)))
    if sigma(most) <= mechanism.largest_sigma:
        return most
    return _crossing(lambda units: sigma(units) > mechanism.largest_sigma, _COARSEST, most)[0]


def _enough(
    mechanism: Mechanism, at: Callable[[float], Ring], sums: Sums, share_multiplier: float, finest: float
) -> float:
    """Smallest clipping norm in lattice units from which a finer lattice gains nothing."""
    aim = (mechanism.finest_sigma or 0.0) / share_multiplier
    if inflation(at(finest), sums.l2) > _ENOUGH:
        return finest
    return max(aim, _crossing(lambda units: inflation(at(units), sums.l2) <= _ENOUGH, _COARSEST, finest)[1])


def _fitting(at: Callable[[float], Ring], bits: int, most: float) -> float | None:
    """Largest clipping norm in lattice units <= `most` whose sums fit into the ring; None where none does."""
    if fits(bits, at(most).total):
        return most
    if not fits(bits, at(_COARSEST).total):
        return None
    return _crossing(lambda units: not fits(bits, at(units).total), _COARSEST, most)[0]


def _crossing(reached: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Neighbouring points below and above the place where `reached` turns true."""
    while math.log(high / low) > _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return low, high
