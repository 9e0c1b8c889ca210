"""`one-step`, torch-free: each silo sends the sum of its rows' clipped gradients at the released model.

Statement (design 10, section 1): one round is one use of the mechanism with noise_multiplier
z = share_multiplier * sqrt(honest contributors) on a vector of l2 sensitivity C, Poisson-sampled when
sampling_rate < 1. Every gradient is evaluated at a released model, so rounds compose adaptively; this holds for
every torch module. Relation: add or remove one row.
Source: Abadi et al. 2016 (clipping and Poisson batches); the sum of independent noise shares is the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.local.rule import Rule, Terms
from cosilo.privacy import PoissonSampled, Sensitivity

if TYPE_CHECKING:
    from cosilo.mechanisms import Mechanism
    from cosilo.privacy import Event

__all__ = ["ONE_STEP", "clip_to"]

_UNIT_ROUNDOFF = 2.0**-53
# Relative change of one row's float64 gradient when other rows share its micro-batch: a reordered sum, amplified
# by the condition of the network. 2^-40 leaves a factor 8,192 above the roundoff; measured in tests/local.
_ROW_JITTER = 2.0**-40


def _sensitivity(terms: Terms) -> Sensitivity:
    return Sensitivity(l2=terms.clipping_norm)


def _event(terms: Terms, mechanism: Mechanism, honest: int) -> Event:
    use = mechanism.event(mechanism.total(terms.share_multiplier, honest))
    return use if terms.sampling_rate == 1 else PoissonSampled(terms.sampling_rate, use)


def _divisor(terms: Terms) -> float:
    """Expected batch at full capacity: public, never the realised batch."""
    return terms.sampling_rate * terms.capacity


def clip_to(terms: Terms) -> float:
    """The norm to clip to so that the *computed* sums of neighbours differ by at most C.

    Summing n rows of norm c in float64, m at a time, errs by at most n u (m + n/m) c (u = 2^-53) in either of
    the two neighbours, and each of the n other rows may come out different by _ROW_JITTER c. So c (1 + margin) <= C
    with margin = 2 n u (m + n/m) + n * _ROW_JITTER; for 60,000 rows it is 1e-7.
    Source: Higham 2002, Accuracy and Stability of Numerical Algorithms, section 4.2.
    """
    n, m = terms.capacity, terms.micro_batch
    margin = 2 * n * _UNIT_ROUNDOFF * (m + n / m) + n * _ROW_JITTER
    return terms.clipping_norm / (1 + margin)


ONE_STEP = Rule(
    name="one-step",
    assumption=(
        "Every gradient is evaluated at a released model, so the rounds compose for every model and loss; "
        "silos hold disjoint rows."
    ),
    sensitivity=_sensitivity,
    event=_event,
    divisor=_divisor,
    compute_module="cosilo.local.one_step.compute",
)
