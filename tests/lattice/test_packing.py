"""Packing: every width against Python's own big integers, one encoding per vector, malformed streams refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosilo.errors import ConfigError, ProtocolError
from cosilo.lattice import pack, packed_bytes, unpack


def residues(n: int, bits: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    words = np.random.default_rng(n * 64 + bits).integers(0, 2**64, n, dtype=np.uint64)
    return words >> np.uint64(64 - bits)


def as_one_number(values: np.ndarray[tuple[int], np.dtype[np.uint64]], bits: int) -> int:
    return sum(int(value) << (i * bits) for i, value in enumerate(values))


@pytest.mark.parametrize("bits", range(8, 65))
def test_every_width_is_the_little_endian_number_of_its_residues(bits: int):
    for n in (0, 1, 2, 7, 8, 63, 64, 65, 200):
        for values in (residues(n, bits), np.full(n, 2**bits - 1, dtype=np.uint64), np.zeros(n, np.uint64)):
            data = pack(values, bits)
            assert len(data) == packed_bytes(n, bits) == -(-n * bits // 8)
            assert int.from_bytes(data, "little") == as_one_number(values, bits)
            assert np.array_equal(unpack(data, n, bits), values)


def test_a_packing_worked_out_by_hand():
    # 0x123, 0xabc in 12 bits: bytes 23, c1, ab
    assert pack(np.array([0x123, 0xABC], dtype=np.uint64), 12).hex() == "23c1ab"


@settings(deadline=None)  # the first call compiles
@given(st.integers(8, 64), st.binary(max_size=200))
def test_what_unpacks_packs_to_the_same_bytes(bits: int, data: bytes):
    n = len(data) * 8 // bits
    data = data[: packed_bytes(n, bits)]
    padding = 8 * len(data) - n * bits
    if padding:
        data = data[:-1] + bytes([data[-1] & (0xFF >> padding)])
    assert pack(unpack(data, n, bits), bits) == data


@pytest.mark.parametrize("change", [-1, 1, 8])
def test_a_wrong_length_is_refused(change: int):
    data = pack(residues(10, 20), 20)
    with pytest.raises(ProtocolError, match=r"10 residues of 20 bits is 25 bytes, got"):
        unpack((data + bytes(8))[: 25 + change], 10, 20)


def test_every_padding_bit_is_checked():
    for n, bits in ((1, 9), (3, 13), (5, 33), (7, 63)):
        data = pack(residues(n, bits), bits)
        for bit in range(n * bits % 8, 8):
            with pytest.raises(ProtocolError, match="padding"):
                unpack(data[:-1] + bytes([data[-1] | 1 << bit]), n, bits)


@pytest.mark.parametrize("bits", range(8, 64))
def test_a_residue_outside_the_ring_is_not_cut_off(bits: int):
    with pytest.raises(ConfigError, match="does not fit"):
        pack(np.array([0, 1 << bits], dtype=np.uint64), bits)
    with pytest.raises(ConfigError, match="does not fit"):
        pack(np.array([2**64 - 1, 0], dtype=np.uint64), bits)
