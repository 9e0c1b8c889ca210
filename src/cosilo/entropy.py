"""Random streams: AES-256-CTR keyed from the operating system, one stream per use.

Noise, batches and rounding must be unpredictable and never repeat. An `Entropy` holds one 32-byte root key;
`Entropy.stream(context)` derives a key with HKDF-SHA256 from the root and the *whole* context
(run, silo, round, attempt, step, purpose), so no two uses share a key, and refuses to hand out the same
stream twice. A key is used for one stream with a zero nonce.

Assumption: AES-256 in counter mode and HKDF-SHA256 are pseudorandom, and the operating system's generator is
sound; every guarantee that rests on this noise is computational in that sense.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cosilo.errors import ConfigError, EntropyReuseError

__all__ = ["Context", "Entropy", "Purpose", "Stream"]

Words: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint64]]

Purpose = Literal["noise", "batch", "rounding"]

_CHUNK_BYTES = 1 << 18  # the zero plaintext is reused; 256 KiB stays in a core's cache
_ZEROS = bytes(_CHUNK_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a stream is for. Every field enters the key; two different contexts never share a stream."""

    run: bytes
    silo: str
    round: int
    attempt: int
    purpose: Purpose
    step: int = 0

    def encoded(self) -> bytes:
        """Injective encoding: fixed-width numbers, length-prefixed texts."""
        parts = [self.run, self.silo.encode(), self.purpose.encode()]
        numbers = b"".join(n.to_bytes(8, "big") for n in (self.round, self.attempt, self.step))
        return b"cosilo/1/stream" + numbers + b"".join(len(p).to_bytes(4, "big") + p for p in parts)


class Stream:
    """Keystream of AES-256-CTR under one key, read once from the start to wherever the reader stops."""

    def __init__(self, key: bytes) -> None:
        self._keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> Words:
        """`count` uniform 64-bit words, shape (count,), dtype uint64 (little-endian keystream)."""
        out = np.empty(count, dtype=np.uint64)
        self.fill(out)
        return out

    def fill(self, out: Words) -> None:
        """The next `out.size` words, written into `out` (contiguous uint64) without an allocation.

        Raises:
            ConfigError: `out` is not a contiguous vector of uint64.
        """
        if out.dtype != np.uint64 or not out.flags.c_contiguous:
            raise ConfigError(f"A stream fills contiguous uint64, got {out.dtype}.", "Pass np.empty(n, np.uint64).")
        if not out.size:
            return
        view = out.data.cast("B")
        for start in range(0, len(view), _CHUNK_BYTES):
            piece = view[start : start + _CHUNK_BYTES]
            self._keystream.update_into(_ZEROS if len(piece) == _CHUNK_BYTES else _ZEROS[: len(piece)], piece)
        if sys.byteorder == "big":  # the keystream is little-endian words on every machine
            out.byteswap(inplace=True)

    def coins(self, count: int, probability: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """`count` independent coins, shape (count,): True with probability floor(p 2^64) / 2^64 <= p.

        The rounding is downwards, the private side: less sampling leaks less.
        """
        if not 0 <= probability <= 1:
            raise ConfigError(f"A probability must lie in [0, 1], got {probability}.", "Check the sampling rate.")
        if probability == 1:
            return np.ones(count, dtype=np.bool_)
        numerator, denominator = probability.as_integer_ratio()
        threshold = (numerator << 64) // denominator
        return np.asarray(self.words(count) < np.uint64(threshold))


@dataclass(slots=True)
class _Attempt:
    """The latest attempt of a run and which of its streams are given out."""

    place: tuple[int, int]
    used: set[tuple[Purpose, int]] = field(default_factory=set)


@dataclass(slots=True)
class Entropy:
    """One owner's root of randomness; each silo has its own.

    Attributes:
        kind: "system" (keyed from the operating system) or "seeded" (reproducible *simulation*: whoever knows
            the seed can subtract the noise, so a run that used it is not a private release and must say so).
    """

    kind: Literal["system", "seeded"]
    _root: bytes = field(repr=False)
    _latest: dict[tuple[bytes, str], _Attempt] = field(default_factory=dict, repr=False)

    @classmethod
    def system(cls) -> Entropy:
        """A fresh root from the operating system."""
        return cls("system", secrets.token_bytes(32))

    @classmethod
    def seeded(cls, seed: int, owner: str) -> Entropy:
        """A reproducible root for tests and simulation only."""
        return cls("seeded", hashlib.sha256(f"cosilo/1/seeded/{seed}/{owner}".encode()).digest())

    def stream(self, context: Context) -> Stream:
        """The stream of `context`, once. Rounds and attempts of a run only go forward.

        Raises:
            EntropyReuseError: it was handed out before, or a later round or attempt of the run has begun.
        """
        key, place = (context.run, context.silo), (context.round, context.attempt)
        latest = self._latest.setdefault(key, _Attempt(place))
        if place > latest.place:
            latest = self._latest[key] = _Attempt(place)  # what came before can be forgotten: it is refused by place
        use = (context.purpose, context.step)
        if place < latest.place or use in latest.used:
            raise EntropyReuseError(
                f"The {context.purpose} stream of silo {context.silo!r}, round {context.round}, attempt "
                f"{context.attempt} was asked for twice, or after a later one.",
                "A retry takes a new attempt number; nothing was released.",
            )
        latest.used.add(use)
        return Stream(HKDF(SHA256(), length=32, salt=None, info=context.encoded()).derive(self._root))
