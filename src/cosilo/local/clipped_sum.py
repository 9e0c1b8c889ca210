"""What one-step and noisy-steps share: a step releases the sum of a Poisson batch's clipped gradients.

Statement: added or removed, a row changes the *computed* sum by at most C in l2 norm (`clip_to`), and enters the batch
by its own coin; the step's integers then cost what the mechanism says for `Terms.l2`, `Terms.l1` (`use`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.local.slots import OUTGROWN, slot_count
from cosilo.privacy import Composed, Distance, Failure, PoissonSampled, Sensitivity

if TYPE_CHECKING:
    from cosilo.local.rule import Terms
    from cosilo.mechanisms import Mechanism
    from cosilo.privacy import Event

__all__ = ["batch_rows", "clip_to", "largest", "micro_batch", "sensitivity", "slots", "use"]

_UNIT_ROUNDOFF = 2.0**-53


def sensitivity(clipping_norm: float) -> Sensitivity:
    """Of a step's sum before rounding."""
    return Sensitivity(l2=clipping_norm)


def largest(capacity: int, sampling_rate: float, clipping_norm: float) -> float:
    """Norm that a batch's sum does not exceed unless it outgrows its slots; then it is clamped."""
    return slot_count(capacity=capacity, sampling_rate=sampling_rate, micro_batch=1) * clipping_norm


def use(terms: Terms, mechanism: Mechanism, contributors: int) -> Event:
    """One step's noisy sum, hidden by the shares of `contributors` silos.

    A rounding that exceeds its sensitivity and a batch that outgrows its slots are failures of the step; the distance
    of all shares from their exact laws is paid whole, whatever the row's coin says.
    """
    release = mechanism.event(
        l1=terms.l1, l2=terms.l2, sigma=terms.sigma, contributors=contributors, dim=terms.lattice.coordinates
    )
    sampled = release if terms.sampling_rate == 1 else PoissonSampled(terms.sampling_rate, release)
    failure = terms.rounding_failure + OUTGROWN  # at every rate, so that a smaller rate never costs more
    draws = terms.lattice.coordinates * terms.shares
    return Composed((sampled, Failure(probability=failure), Distance(total_variation=draws * terms.draw_error)))


def batch_rows(terms: Terms) -> float:
    """Expected batch at full capacity: public, never the realised batch."""
    return terms.sampling_rate * terms.capacity


def micro_batch(terms: Terms) -> int:
    """Rows computed together: never more than a batch may hold."""
    fewest = slot_count(capacity=terms.capacity, sampling_rate=terms.sampling_rate, micro_batch=1)
    return min(terms.micro_batch, fewest)


def slots(terms: Terms) -> int:
    """Public number of slots in a step."""
    return slot_count(capacity=terms.capacity, sampling_rate=terms.sampling_rate, micro_batch=micro_batch(terms))


def clip_to(terms: Terms) -> float:
    """The norm to clip to so that the *computed* sums of neighbours differ by at most C.

    Each row's computed gradient is the same in both neighbours (`slots`), so only norms and sums err (u = 2^-53):
    a computed norm of dim squares by at most a factor 1 + dim u, the sum of n slots of norm c, m at a time, by at
    most n u (m + n/m) c in either neighbour. So c (1 + margin) <= C with margin = (dim + 8) u + 2 n u (m + n/m);
    for 60,000 rows and 26,000 parameters it is 6e-8.
    Source: Higham 2002, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2.
    """
    n, m = slots(terms), micro_batch(terms)
    margin = (terms.dim + 8) * _UNIT_ROUNDOFF + 2 * n * _UNIT_ROUNDOFF * (m + n / m)
    return terms.clipping_norm / (1 + margin)
