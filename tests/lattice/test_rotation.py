"""Rotation: the Hadamard matrix with public signs, orthonormal within its stated float error."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard

from cosilo.errors import ConfigError
from cosilo.lattice.rotation import rotate, rotate_back, signs


def test_it_is_the_hadamard_matrix_times_signs():
    columns = np.stack([rotate(row, 16, b"round 1") for row in np.eye(16)], axis=1)
    assert np.array_equal(columns, hadamard(16) * signs(b"round 1", 16) / 4)


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 64, 100, 1000, 1024])
def test_its_error_is_within_the_stated_bound(dim: int):
    coordinates = 1 << (dim - 1).bit_length()
    x = np.random.default_rng(dim).normal(size=dim) * 10.0 ** np.random.default_rng(1).integers(-8, 8, dim)
    wide = np.zeros(coordinates, dtype=np.longdouble)
    wide[:dim] = x * signs(b"s", dim)
    exact = hadamard(coordinates).astype(np.longdouble) @ wide / np.sqrt(np.longdouble(coordinates))
    bound = 1.1 * (np.log2(coordinates) + 2) * 2.0**-53 * np.linalg.norm(x)
    rotated = rotate(x, coordinates, b"s")
    assert np.linalg.norm((rotated - exact).astype(np.float64)) <= bound
    assert np.linalg.norm(rotate_back(rotated, dim, b"s") - x) <= 2 * bound


def test_one_large_coordinate_is_spread_over_all():
    x = np.zeros(1000)
    x[3] = 32.0
    assert np.array_equal(np.abs(rotate(x, 1024, b"s")), np.ones(1024))


def test_signs_are_fixed_by_the_seed_alone():
    assert np.array_equal(signs(b"a", 100), signs(b"a", 1000)[:100])
    assert not np.array_equal(signs(b"a", 100), signs(b"b", 100))
    assert set(signs(b"a", 100).tolist()) == {-1.0, 1.0}
    # A sum of 2^20 fair signs has sd 2^10; beyond 6.2 sd with probability 6e-10. Fixed seed: passes once or never.
    assert abs(signs(b"cosilo", 1 << 20).sum()) < 6.2 * 2**10


def test_a_rotation_without_a_seed_is_refused():
    with pytest.raises(ConfigError, match="public seed"):
        signs(b"", 4)
