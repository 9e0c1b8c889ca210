"""Residues on the wire: exactly `bits` bits each, a little-endian bit stream.

Residue i occupies bits i*bits to (i+1)*bits - 1 of the stream; bit j of the stream is bit j % 8 of byte j // 8.
The stream is ceil(n bits / 8) bytes long and its last bits, up to seven, are zero: one vector has one encoding.
"""

from __future__ import annotations

import numpy as np

from cosilo.errors import ConfigError, ProtocolError
from cosilo.lattice.ring import Residues, mask

__all__ = ["pack", "packed_bytes", "unpack"]


def packed_bytes(n: int, bits: int) -> int:
    """Bytes of n residues of `bits` bits: ceil(n bits / 8)."""
    mask(bits)
    return (n * bits + 7) // 8


def pack(residues: Residues, bits: int) -> bytes:
    """The bit stream of residues, shape (n,), each below 2^bits (8 to 64).

    Raises:
        ConfigError: a residue does not fit `bits`; nothing is cut off silently.
    """
    from cosilo.lattice.kernels import pack_words

    size = packed_bytes(residues.size, bits)
    words = np.empty((size + 7) // 8, dtype=np.uint64)
    if not pack_words(np.ascontiguousarray(residues, dtype=np.uint64), bits, words):
        raise ConfigError(f"A residue does not fit {bits} bits.", "Reduce modulo 2^bits with ring.wrap first.")
    return words.astype("<u8", copy=False).view(np.uint8)[:size].tobytes()


def unpack(data: bytes, n: int, bits: int) -> Residues:
    """The n residues of a bit stream, shape (n,), dtype uint64: inverse of `pack`.

    Raises:
        ProtocolError: the length is not that of n residues, or a padding bit is set. The sender is not trusted;
            whatever passes is the packing of exactly one residue vector.
    """
    from cosilo.lattice.kernels import unpack_words

    size = packed_bytes(n, bits)
    if len(data) != size:
        raise ProtocolError(
            f"A vector of {n} residues of {bits} bits is {size} bytes, got {len(data)}.", "The message was dropped."
        )
    padding = 8 * size - n * bits
    if padding and data[-1] >> (8 - padding):
        raise ProtocolError("The padding of a packed vector is not zero.", "The message was dropped.")
    words = np.empty((size + 7) // 8 + 1, dtype="<u8")  # one word more: the kernel reads ahead
    words[-2:] = 0
    words.view(np.uint8)[:size] = np.frombuffer(data, dtype=np.uint8)
    residues = np.empty(n, dtype=np.uint64)
    unpack_words(words.astype(np.uint64, copy=False), bits, residues)
    return residues
