"""`noisy-steps`, torch-free: S local DP-SGD steps a round; the message is the exact integer total of all steps.

Statement (design 10, section 2), per round, add or remove one row, z = share_multiplier, H honest contributors:

- "unconditional": S - 1 uses with z and one with z sqrt(H). Proof: give the observer, beside the sum of messages,
  every integer that the other silos produced before their last step's noise, and all of this silo's steps but the
  last one's. Step s < S of the row's silo is then one release hidden by its own noise; the last one is hidden by the
  last noise of all H silos. Each is evaluated at a function of what was given before, so they compose adaptively, and
  the sum of messages is a function of all that. It holds for every loss.
- "joint-steps" (P1, Theorem 4.6): S uses with z sqrt(H). Condition: every gradient is evaluated at a point that is a
  function of released sums or public randomness. A silo's second gradient depends on its own unreleased noisy
  state, so ordinary local SGD with S > 1 does not meet it; design 10 has a convex counterexample.

Source: Heikkila 2024 (arXiv 2407.19286), Algorithm 2 and Theorem 4.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.local import clipped_sum
from cosilo.local.rule import Guarantee, Rule, Terms
from cosilo.privacy import Composed, Repeated

if TYPE_CHECKING:
    from cosilo.mechanisms import Mechanism
    from cosilo.privacy import Event

__all__ = ["NOISY_STEPS"]

_PURE = "the model's forward is a pure function of one row and the parameters; silos hold disjoint rows."


def _event(terms: Terms, mechanism: Mechanism, honest: int, guarantee: Guarantee) -> Event:
    last = clipped_sum.use(terms, mechanism, honest)
    if guarantee == "joint-steps":
        return Repeated(terms.steps, last)
    return Composed((Repeated(terms.steps - 1, clipped_sum.use(terms, mechanism, 1)), last))


def _divisor(terms: Terms) -> float:
    """Makes the summed messages the mean of the silos' own moves, weighted by their public batches."""
    return clipped_sum.batch_rows(terms) / terms.lr


NOISY_STEPS = Rule(
    name="noisy-steps",
    assumptions={
        "unconditional": (
            "All local steps but the last are counted with the silo's own noise only, the last with the noise of all "
            f"honest silos; this assumes nothing about model or loss but that {_PURE}"
        ),
        "joint-steps": (
            "NOT PROVED for more than one local step: all steps are counted with the noise of all honest silos, which "
            "is right only where every gradient is evaluated at a function of released sums or public randomness; a "
            "local step follows the silo's own unreleased steps (counterexamples exist, epsilon_unconditional is the "
            f"number that holds); {_PURE}"
        ),
    },
    sensitivity=clipped_sum.sensitivity,
    largest=clipped_sum.largest,
    event=_event,
    divisor=_divisor,
    compute_module="cosilo.local.noisy_steps.compute",
)
