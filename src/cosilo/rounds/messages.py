"""The two messages of a plain round, in one fixed-width encoding each; no pickle.

Layout (big-endian header, little-endian payload):
    magic "cosilo/2" | type u8 | run 32 | round u32 | attempt u32 | model digest 32 | sender length u16 | dim u64 |
    bits u8 | sender utf-8 | payload
A task's payload is the model, `dim` float64 numbers (bits = 64). An update's is `dim` residues modulo 2^bits, packed
without gaps. A message has exactly the length its header says; lengths are checked before anything is allocated.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from cosilo.errors import ProtocolError
from cosilo.lattice import pack, packed_bytes, unpack

__all__ = ["Residues", "Task", "Update", "Vector", "model_digest"]

Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Residues: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint64]]

_HEADER = struct.Struct(">8sB32sII32sHQB")
_MAGIC = b"cosilo/2"
_MAX_DIM = 1 << 31  # 16 GiB: more is a broken header
_TASK, _UPDATE = 1, 2
_FLOAT_BITS = 64
_WIDTHS = range(8, 65)
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
        payload = np.ascontiguousarray(self.vector, dtype="<f8").tobytes()
        return _pack(_TASK, self, self.digest, "", self.vector.size, _FLOAT_BITS, payload)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ProtocolError on anything malformed, a wrong digest or a non-finite model."""
        parsed = _parse(data, _TASK)
        if parsed.bits != _FLOAT_BITS:
            raise ProtocolError(f"A task of {parsed.bits}-bit numbers is malformed.", _RESEND)
        vector = np.frombuffer(parsed.payload, dtype="<f8").astype(np.float64)
        if model_digest(vector) != parsed.digest:
            raise ProtocolError("A task's model does not match its digest.", "The transport corrupted it: send again.")
        if not np.isfinite(vector).all():
            raise ProtocolError("A task carries a non-finite number.", "Lower the learning rate; nothing was added.")
        return cls(run=parsed.run, round=parsed.round, attempt=parsed.attempt, vector=vector)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Update:
    """Silo to coordinator: noisy residues modulo 2^ring_bits, computed at the model whose digest is `model`."""

    run: bytes
    round: int
    attempt: int
    silo: str
    model: bytes
    ring_bits: int
    residues: Residues

    def encode(self) -> bytes:
        """The message's bytes."""
        payload = pack(self.residues, self.ring_bits)
        return _pack(_UPDATE, self, self.model, self.silo, self.residues.size, self.ring_bits, payload)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ProtocolError on anything malformed."""
        parsed = _parse(data, _UPDATE)
        return cls(
            run=parsed.run, round=parsed.round, attempt=parsed.attempt, silo=parsed.sender, model=parsed.digest,
            ring_bits=parsed.bits, residues=unpack(parsed.payload, parsed.dim, parsed.bits),
        )  # fmt: skip


class _Parsed(NamedTuple):
    run: bytes
    round: int
    attempt: int
    digest: bytes
    sender: str
    dim: int
    bits: int
    payload: bytes


def _pack(kind: int, message: Task | Update, digest: bytes, sender: str, dim: int, bits: int, payload: bytes) -> bytes:  # noqa: PLR0913, PLR0917 - a header's fields
    name = sender.encode()
    header = _HEADER.pack(_MAGIC, kind, message.run, message.round, message.attempt, digest, len(name), dim, bits)
    return b"".join([header, name, payload])


def _parse(data: bytes, kind: int) -> _Parsed:
    if len(data) < _HEADER.size:
        raise ProtocolError(f"A message of {len(data)} bytes is shorter than its header.", _RESEND)
    magic, found, run, number, attempt, digest, name_length, dim, bits = _HEADER.unpack_from(data)
    if magic != _MAGIC or found != kind:
        raise ProtocolError("A message is not of the expected type or version.", "Run the same cosilo at all silos.")
    start = _HEADER.size + name_length
    if dim > _MAX_DIM or bits not in _WIDTHS or len(data) != start + packed_bytes(dim, bits):
        raise ProtocolError(f"A message of {len(data)} bytes does not have the length it declares.", _RESEND)
    try:
        sender = data[_HEADER.size : start].decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("A message's sender is not UTF-8.", _RESEND) from error
    return _Parsed(run, number, attempt, digest, sender, dim, bits, data[start:])
