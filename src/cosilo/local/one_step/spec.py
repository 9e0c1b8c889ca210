"""`one-step`, torch-free: each silo sends the sum of its rows' clipped gradients at the released model.

Statement (design 10, section 1): one round is one use of the mechanism with noise_multiplier
z = share_multiplier * sqrt(honest contributors) on a vector of l2 sensitivity C, Poisson-sampled when
sampling_rate < 1. Every gradient is evaluated at a released model, so rounds compose adaptively; this holds for
every torch module whose forward is a pure function of one row and the parameters. Relation: add or remove one row.
Source: Abadi et al. 2016 (clipping and Poisson batches); the sum of independent noise shares is the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.local import clipped_sum
from cosilo.local.rule import Guarantee, Rule, Terms

if TYPE_CHECKING:
    from cosilo.mechanisms import Mechanism
    from cosilo.privacy import Event

__all__ = ["ONE_STEP"]


def _event(terms: Terms, mechanism: Mechanism, honest: int, guarantee: Guarantee) -> Event:
    del guarantee  # a single step at a released model: nothing to assume
    return clipped_sum.use(terms, mechanism, honest)


ONE_STEP = Rule(
    name="one-step",
    assumptions={
        "unconditional": (
            "Every gradient is evaluated at a released model, so the rounds compose for every model and loss; the "
            "model's forward is a pure function of one row and the parameters; silos hold disjoint rows."
        )
    },
    sensitivity=clipped_sum.sensitivity,
    largest=clipped_sum.largest,
    event=_event,
    divisor=clipped_sum.batch_rows,
    compute_module="cosilo.local.one_step.compute",
)
