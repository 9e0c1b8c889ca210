"""Noise families: one file each, one registry of the additive ones (poisson-binomial is a library beside them)."""

from cosilo.mechanisms.base import Mechanism
from cosilo.mechanisms.discrete_gaussian import DISCRETE_GAUSSIAN
from cosilo.mechanisms.discrete_laplace import DISCRETE_LAPLACE
from cosilo.mechanisms.gaussian import GAUSSIAN
from cosilo.mechanisms.laplace import LAPLACE
from cosilo.mechanisms.skellam import SKELLAM

__all__ = ["MECHANISMS", "Mechanism"]

MECHANISMS: dict[str, Mechanism] = {
    family.name: family for family in (DISCRETE_GAUSSIAN, SKELLAM, GAUSSIAN, LAPLACE, DISCRETE_LAPLACE)
}
