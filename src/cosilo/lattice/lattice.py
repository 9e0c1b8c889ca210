"""The lattice: which real numbers the integers stand for, and how far they reach. Public numbers of the job."""

from __future__ import annotations

from dataclasses import dataclass

from cosilo.errors import ConfigError
from cosilo.lattice.ring import require_fit

__all__ = ["Lattice", "coordinates_of"]

# Beyond 2^51 units a float64 quotient has fewer than two fractional bits: rounding would no longer be unbiased.
LARGEST_UNITS = 1 << 51
# Far from overflow and from subnormals, so that the error bounds of codec.py are relative ones.
FINEST, COARSEST = 2.0**-400, 2.0**400


def coordinates_of(dim: int, *, rotation: bool) -> int:
    """Length of the integer vector of a real one: dim, or with rotation the next power of two."""
    return 1 << (dim - 1).bit_length() if rotation else dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """How one silo's real vector becomes integers.

    Attributes:
        granularity: real value of one lattice unit, 2^-400 to 2^400.
        clamp: A > 0, real units: every coordinate (after the rotation, if any) is projected to [-A, A].
        ring_bits: 8 to 64; the silos' integers are added modulo 2^ring_bits.
        dim: length of the real vector, at least 1.
        rotation: whether a public random rotation comes first, which spreads a large coordinate over all.

    Raises:
        ConfigError: for a number outside these ranges, more than 2^51 units of clamp, or a clamp that this ring
            cannot hold even for one silo. That the *sum* fits is `ring.require_fit`, with silos and noise counted.
    """

    granularity: float
    clamp: float
    ring_bits: int
    dim: int
    rotation: bool = False

    def __post_init__(self) -> None:
        if not FINEST <= self.granularity <= COARSEST:
            raise ConfigError(
                f"The granularity must lie in [{FINEST:.3g}, {COARSEST:.3g}], got {self.granularity}.",
                "Leave out aggregation.granularity.",
            )
        if not 0 < self.clamp < float("inf"):
            raise ConfigError(
                f"The clamp must be positive and finite, got {self.clamp}.", "Leave out aggregation.clamp."
            )
        if self.dim < 1:
            raise ConfigError(f"A vector has at least one coordinate, got {self.dim}.", "Check the model.")
        if self.clamp_units > LARGEST_UNITS:
            raise ConfigError(
                f"A clamp of {self.clamp:g} is more than 2^51 times the granularity {self.granularity:g}, "
                "beyond what float64 resolves.",
                f"Write a smaller aggregation.clamp, or an aggregation.granularity of at least "
                f"{self.clamp / LARGEST_UNITS:.3g}.",
            )
        require_fit(self.ring_bits, self.clamp_units)

    @property
    def coordinates(self) -> int:
        """Length of the integer vector: dim, or with rotation the next power of two."""
        return coordinates_of(self.dim, rotation=self.rotation)

    @property
    def clamp_units(self) -> int:
        """ceil(clamp / granularity), exact: no rounded coordinate is larger in magnitude.

        The quotient that `encode` rounds is a float64, at most the nearest float64 of clamp / granularity; as
        rounding to nearest is monotone and integers up to 2^51 are float64s, it does not pass this one.
        """
        above, below = self.clamp.as_integer_ratio()
        unit_above, unit_below = self.granularity.as_integer_ratio()
        return -((-above * unit_below) // (below * unit_above))
