"""`one-step`, torch-free: each silo sends the sum of its rows' clipped gradients at the released model.

Statement (design 10, section 1): one round is one use of the mechanism with noise_multiplier
z = share_multiplier * sqrt(honest contributors) on a vector of l2 sensitivity C, Poisson-sampled when
sampling_rate < 1. Every gradient is evaluated at a released model, so rounds compose adaptively; this holds for
every torch module whose forward is a pure function of one row and the parameters. Relation: add or remove one row.
Source: Abadi et al. 2016 (clipping and Poisson batches); the sum of independent noise shares is the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.local.rule import Rule, Terms
from cosilo.local.slots import slot_count
from cosilo.privacy import PoissonSampled, Sensitivity

if TYPE_CHECKING:
    from cosilo.mechanisms import Mechanism
    from cosilo.privacy import Event

__all__ = ["ONE_STEP", "clip_to", "micro_batch", "slots"]

_UNIT_ROUNDOFF = 2.0**-53


def _sensitivity(terms: Terms) -> Sensitivity:
    return Sensitivity(l2=terms.clipping_norm)


def _event(terms: Terms, mechanism: Mechanism, honest: int) -> Event:
    use = mechanism.event(mechanism.total(terms.share_multiplier, honest))
    return use if terms.sampling_rate == 1 else PoissonSampled(terms.sampling_rate, use)


def _divisor(terms: Terms) -> float:
    """Expected batch at full capacity: public, never the realised batch."""
    return terms.sampling_rate * terms.capacity


def micro_batch(terms: Terms) -> int:
    """Rows computed together: never more than a batch may hold."""
    fewest = slot_count(capacity=terms.capacity, sampling_rate=terms.sampling_rate, micro_batch=1)
    return min(terms.micro_batch, fewest)


def slots(terms: Terms) -> int:
    """Public number of slots in a round."""
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


ONE_STEP = Rule(
    name="one-step",
    assumption=(
        "Every gradient is evaluated at a released model, so the rounds compose for every model and loss; the model's "
        "forward is a pure function of one row and the parameters; silos hold disjoint rows."
    ),
    sensitivity=_sensitivity,
    event=_event,
    divisor=_divisor,
    compute_module="cosilo.local.one_step.compute",
)
