"""The public seed of a round's rotation: the same at all silos and at the coordinator, another one every attempt."""

from __future__ import annotations

__all__ = ["rotation_seed"]


def rotation_seed(run: bytes, number: int, attempt: int) -> bytes:
    """Public: it hides nothing, it only spreads a vector over its coordinates."""
    return b"cosilo/1/rotation" + run + number.to_bytes(8, "big") + attempt.to_bytes(8, "big")
