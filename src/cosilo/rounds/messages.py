"""The two messages of a plain round, in one fixed-width encoding each; no pickle.

Layout (big-endian header, little-endian float64 payload):
    magic "cosilo/1" | type u8 | run 32 | round u32 | attempt u32 | model digest 32 | sender length u16 | dim u64 |
    sender utf-8 | payload 8 * dim
A message has exactly the length its header says; lengths are checked before anything is allocated.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from cosilo.errors import ProtocolError

__all__ = ["Task", "Update", "Vector", "model_digest"]

Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]

_HEADER = struct.Struct(">8sB32sII32sHQ")
_MAGIC = b"cosilo/1"
_MAX_DIM = 1 << 31  # 16 GiB of float64: more is a broken header
_TASK, _UPDATE = 1, 2
_RESEND = "The transport truncated or corrupted it: send again."


def model_digest(theta: Vector) -> bytes:
    """SHA-256 of a model vector; an update names the model it was computed at."""
    return hashlib.sha256(np.ascontiguousarray(theta, dtype="<f8").data).digest()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Task:
    """Coordinator to silo: work at this released model."""

    run: bytes
    round: int
    attempt: int
    vector: Vector

    @property
    def digest(self) -> bytes:
        """SHA-256 of the model: updates name the model they were computed at."""
        return model_digest(self.vector)

    def encode(self) -> bytes:
        """The message's bytes."""
        return _pack(_TASK, self, self.digest, sender="")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ProtocolError on anything malformed, a wrong digest or a non-finite model."""
        parsed = _parse(data, _TASK)
        if model_digest(parsed.vector) != parsed.digest:
            raise ProtocolError("A task's model does not match its digest.", "The transport corrupted it: send again.")
        return cls(run=parsed.run, round=parsed.round, attempt=parsed.attempt, vector=parsed.vector)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Update:
    """Silo to coordinator: the noisy vector, computed at the model whose digest is `model`."""

    run: bytes
    round: int
    attempt: int
    silo: str
    model: bytes
    vector: Vector

    def encode(self) -> bytes:
        """The message's bytes."""
        return _pack(_UPDATE, self, self.model, sender=self.silo)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ProtocolError on anything malformed or non-finite."""
        parsed = _parse(data, _UPDATE)
        return cls(
            run=parsed.run, round=parsed.round, attempt=parsed.attempt,
            silo=parsed.sender, model=parsed.digest, vector=parsed.vector,
        )  # fmt: skip


class _Parsed(NamedTuple):
    run: bytes
    round: int
    attempt: int
    digest: bytes
    sender: str
    vector: Vector


def _pack(kind: int, message: Task | Update, digest: bytes, *, sender: str) -> bytes:
    name = sender.encode()
    vector = np.ascontiguousarray(message.vector, dtype="<f8")
    header = _HEADER.pack(_MAGIC, kind, message.run, message.round, message.attempt, digest, len(name), vector.size)
    return b"".join([header, name, vector.tobytes()])


def _parse(data: bytes, kind: int) -> _Parsed:
    if len(data) < _HEADER.size:
        raise ProtocolError(f"A message of {len(data)} bytes is shorter than its header.", _RESEND)
    magic, found, run, number, attempt, digest, name_length, dim = _HEADER.unpack_from(data)
    if magic != _MAGIC or found != kind:
        raise ProtocolError("A message is not of the expected type or version.", "Run the same cosilo at all silos.")
    if dim > _MAX_DIM or len(data) != _HEADER.size + name_length + 8 * dim:
        raise ProtocolError(f"A message of {len(data)} bytes does not have the length it declares.", _RESEND)
    start = _HEADER.size + name_length
    try:
        sender = data[_HEADER.size : start].decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("A message's sender is not UTF-8.", _RESEND) from error
    vector = np.frombuffer(data, dtype="<f8", offset=start).astype(np.float64)
    if not np.isfinite(vector).all():
        raise ProtocolError("A message carries a non-finite number.", "Lower the learning rate; nothing was added.")
    return _Parsed(run, number, attempt, digest, sender, vector)
