"""Noise families: one file each, one registry."""

from cosilo.mechanisms.base import Mechanism
from cosilo.mechanisms.gaussian import GAUSSIAN

__all__ = ["MECHANISMS", "Mechanism"]

MECHANISMS: dict[str, Mechanism] = {GAUSSIAN.name: GAUSSIAN}
