"""Residues: signed meaning, addition without wrapping inside the proved bound, refusals with the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosilo.errors import ConfigError
from cosilo.lattice import add, fits, require_fit, smallest_ring, unwrap, wrap

WIDTHS = range(8, 65)


@pytest.mark.parametrize("bits", WIDTHS)
def test_wrap_and_unwrap_are_inverse_to_the_edges(bits: int):
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    edges = np.array([low, low + 1, -1, 0, 1, high - 1, high], dtype=np.int64)
    residues = wrap(edges, bits)
    assert [int(r) for r in residues] == [int(e) % (1 << bits) for e in edges]
    assert np.array_equal(unwrap(residues, bits), edges)


@given(st.integers(8, 64), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_adding_residues_is_adding_integers_modulo_the_ring(bits: int, numbers: list[int]):
    total = add([wrap(np.array([n], dtype=np.int64), bits) for n in numbers], bits)
    assert int(total[0]) == sum(numbers) % (1 << bits)
    signed = int(unwrap(total, bits)[0])
    assert (signed - sum(numbers)) % (1 << bits) == 0
    assert -(1 << (bits - 1)) <= signed < 1 << (bits - 1)


def test_add_leaves_its_inputs_alone_and_needs_one_shape():
    one, two = wrap(np.array([-1, 2]), 8), wrap(np.array([-3, 4]), 8)
    assert unwrap(add([one, two], 8), 8).tolist() == [-4, 6]
    assert unwrap(one, 8).tolist() == [-1, 2]
    with pytest.raises(ConfigError, match="do not add"):
        add([one, two[:1]], 8)
    with pytest.raises(ConfigError, match="no vector"):
        add([], 8)


@pytest.mark.parametrize("bits", WIDTHS)
def test_the_largest_total_that_fits(bits: int):
    most = (1 << (bits - 1)) - 1
    assert fits(bits, most)
    assert not fits(bits, most + 1)
    assert smallest_ring(most) == bits
    require_fit(bits, most)


def test_a_bound_between_integers_rounds_up():
    assert fits(8, 126.5)
    assert not fits(8, 127.000001)
    assert smallest_ring(127.000001) == 9


def test_refusals_hold_the_numbers_and_the_smallest_ring_that_works():
    with pytest.raises(
        ConfigError, match=r"reach 40000 lattice units.*16 ring bits hold at most 32767.*aggregation.ring_bits = 17"
    ):
        require_fit(16, 40_000)
    with pytest.raises(ConfigError, match=r"2\^64 lattice units.*at least 2\^2 times coarser"):
        smallest_ring(2**64)


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), -1.0])
def test_a_bound_that_is_none_is_refused(bound: float):
    with pytest.raises(ConfigError, match="finite and at least 0"):
        fits(16, bound)


@pytest.mark.parametrize("bits", [7, 65, 0, -1])
def test_rings_outside_8_to_64_bits_are_refused(bits: int):
    for call in (lambda: wrap(np.zeros(1, np.int64), bits), lambda: unwrap(np.zeros(1, np.uint64), bits)):
        with pytest.raises(ConfigError, match="8 to 64 bits"):
            call()
