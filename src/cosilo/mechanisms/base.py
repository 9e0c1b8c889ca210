"""What every noise family answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from cosilo.entropy import Stream
    from cosilo.privacy import Event

    Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

__all__ = ["Mechanism"]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A noise family.

    Attributes:
        name: as written in `[privacy] mechanism`.
        sample: (stream, dim, sd) -> noise of shape (dim,), float64; one contributor's share in the units of `sd`.
        add_share: (vector, l2 sensitivity of vector, share_multiplier, stream) -> vector plus one contributor's share,
            shape (dim,), float64, as it may leave the silo.
        check: (clipping norm, share_multiplier, most rows of a silo, silos in the sum) -> raises ConfigError where
            `add_share` or the sum could not be exact; public numbers only, called when a plan is made.
        total: (share_multiplier, contributors) -> noise_multiplier of the sum of their independent shares.
        event: noise_multiplier -> what one release of a vector of l2 sensitivity 1 costs.
        limits: one sentence for the statement: what the sampler does not promise.
    """

    name: str
    sample: Callable[[Stream, int, float], Vector]
    add_share: Callable[[Vector, float, float, Stream], Vector]
    check: Callable[[float, float, int, int], None]
    total: Callable[[float, int], float]
    event: Callable[[float], Event]
    limits: str
