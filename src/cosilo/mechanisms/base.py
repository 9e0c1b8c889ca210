"""What every noise family answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from cosilo.errors import ConfigError

if TYPE_CHECKING:
    from cosilo.entropy import Stream
    from cosilo.privacy import Event

__all__ = ["Integers", "Mechanism", "check_range", "root_sum"]

Integers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A family of additive integer noise; sigma is always the sd of one contributor in lattice units.

    Attributes:
        name: as written in `[privacy] mechanism`.
        sample: (stream, dim, sigma) -> one contributor's noise, shape (dim,), int64.
        event: (l1=, l2=, sigma=, contributors=, dim=) -> what releasing an integer vector of these sensitivities
            plus the contributors' noise costs.
        total: (share_multiplier, contributors) -> noise_multiplier of the sum, as far as the guarantee counts it.
        tail: (sigma, draws, probability) -> B with P(|sum of so many independent draws| > B) <= probability.
        check: (sigma, contributors) -> raises ConfigError outside the validated range, which it names.
        inexact: sigma -> proved total variation between one draw and the law; None where no bound is known.
        largest_sigma: upper end of the validated range.
        finest_sigma: what an automatic granularity aims at whatever the sensitivity; None: the rounding decides.
        sum_dominating: whether the sum of N contributors is dominated by one contributor alone (Heikkila, arXiv
            2407.19286, Definition 4.2, as we use it: for any two neighbours and every epsilon the hockey-stick
            divergence of the sum is at most that of one contributor's release). "yes" holds for all additive noise,
            since adding the others' independent shares is post-processing; "proper": strictly smaller wherever one
            contributor's is positive, so joint noise pays off; "no": depends on the others' values.
        limits: sentence for the statement: what the sampler does not promise; None when there is nothing to say.
    """

    name: str
    sample: Callable[[Stream, int, float], Integers]
    event: Callable[..., Event]
    total: Callable[[float, int], float]
    tail: Callable[[float, int, float], float]
    check: Callable[[float, int], None]
    inexact: Callable[[float], float | None]
    largest_sigma: float
    finest_sigma: float | None
    sum_dominating: Literal["proper", "yes", "no"]
    limits: str | None


def check_range(name: str, sigma: float, contributors: int, smallest: float, largest: float) -> None:
    """Raise ConfigError unless contributors >= 1 and smallest <= sigma <= largest; the message names the range."""
    if contributors < 1:
        raise ConfigError(
            f"A sum needs at least one honest contributor, got {contributors}.", "Raise federation.cohort."
        )
    if not smallest <= sigma <= largest:
        who = "one contributor" if contributors == 1 else f"each of {contributors} contributors"
        raise ConfigError(
            f"{name} noise is validated for {smallest:g} <= sigma <= {largest:g} lattice units for {who}, got "
            f"{sigma:g}.",
            f"Choose a {'coarser' if sigma > largest else 'finer'} aggregation.granularity, or other noise.",
        )


def root_sum(share_multiplier: float, contributors: int) -> float:
    """Noise multiplier of the sum of independent shares whose variances add: share sqrt(contributors).

    Raises:
        ConfigError: contributors < 1.
    """
    if contributors < 1:
        raise ConfigError(
            f"A sum needs at least one honest contributor, got {contributors}.", "Raise federation.cohort."
        )
    return float(share_multiplier * contributors**0.5)
