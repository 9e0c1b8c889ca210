"""Checks that a promise holds: counterexamples to claims that do not."""

from cosilo.audit.counterexamples import ErasedNoise, RevealedSign

__all__ = ["ErasedNoise", "RevealedSign"]
