"""Rounding: exact, unbiased, inside the clamp; sensitivity bounds that adversarial pairs do not beat."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from cosilo.entropy import Stream
from cosilo.errors import ConfigError, CosiloError, DataError
from cosilo.lattice import Lattice, add, decode, encode, integer_sensitivity, smallest_ring, unwrap, wrap
from cosilo.lattice.kernels import round_dithered

Reals = np.ndarray[tuple[int], np.dtype[np.float64]]
Integers = np.ndarray[tuple[int], np.dtype[np.int64]]
ALARM = 1e-9  # false-alarm rate of every statistical test here


def lattice(dim: int, *, granularity: float = 1.0, clamp: float = 1000.0, rotation: bool = False) -> Lattice:
    return Lattice(granularity=granularity, clamp=clamp, ring_bits=64, dim=dim, rotation=rotation)


def fresh(key: int = 0) -> Stream:
    return Stream(key.to_bytes(32, "big"))


# --- exactness


@settings(deadline=None)  # the first call compiles
@given(st.floats(-(2.0**51), 2.0**51), st.integers(0, 2**64 - 1))
@example(-1e-300, 2**64 - 1)
@example(-1e-300, 2**64 - 2)
@example(-5e-324, 2**64 - 1)
@example(5e-324, 0)
@example(-0.0, 2**64 - 1)
@example(1 - 2.0**-53, 2**64 - 2**11)
@example(1 - 2.0**-53, 2**64 - 2**11 - 1)
@example(-(1 - 2.0**-53), 2**11 - 1)
@example(-(1 - 2.0**-53), 2**11)
@example(2.0**51, 0)
@example(-(2.0**51), 2**64 - 1)
def test_rounding_is_the_floor_of_the_exact_sum(y: float, word: int):
    check_exact(y, word)


@settings(deadline=None)  # the first call compiles
@given(st.floats(-1.0, 1.0) | st.floats(-(2.0**51), 2.0**51), st.integers(-2, 2))
@example(-(2.0**-60), 0)
@example(-(2.0**-60), -1)
@example(-0.3, 0)
@example(-0.3, -1)
def test_rounding_is_exact_at_the_word_where_it_turns(y: float, offset: int):
    turn = math.floor(Fraction(y) * 2**64) % 2**64
    check_exact(y, (turn + offset) % 2**64)


def check_exact(y: float, word: int):
    grid = 1 << 64
    cut = Fraction(math.floor(Fraction(y) * grid), grid)
    expected = math.floor(cut + 1 - Fraction(word + 1, grid))
    out = np.empty(1, dtype=np.int64)
    assert round_dithered(np.array([y]), 1.0, 2.0**51, np.array([word], dtype=np.uint64), out)
    assert int(out[0]) == expected


@pytest.mark.parametrize("y", [0.0, 0.001, 0.25, 0.5, 0.75, 0.999, -0.001, -0.3, -0.5, -0.999, 41.7, -41.7])
def test_rounding_is_unbiased(y: float):
    # Exact binomial test; at 4e5 draws a probability off by 0.005 is at least 6.3 sd away. Rounding down or to nearest
    # without dither fails at every y here but 0.
    n = 400_000
    integers = encode(np.full(n, y), lattice(n), Stream(np.random.default_rng().bytes(32)))
    low = math.floor(y)
    ups = int((integers == low + 1).sum())
    assert ups + int((integers == low).sum()) == n
    probability = float(Fraction(y) - low)
    assert stats.binomtest(ups, n, probability).pvalue > ALARM
    if probability:
        assert stats.binomtest(0, n, probability).pvalue < ALARM  # power: rounding down always
        nearest = 0 if probability < 0.5 else n
        assert stats.binomtest(nearest, n, probability).pvalue < ALARM  # power: rounding to nearest


def test_the_same_stream_rounds_the_same_and_coordinates_are_rounded_apart():
    x = np.full(70_000, 0.5)
    one, again, other = (encode(x, lattice(70_000), fresh(key)) for key in (1, 1, 2))
    assert np.array_equal(one, again)
    agreements = int((one == other).sum())  # independent halves agree half the time
    assert stats.binomtest(agreements, 70_000, 0.5).pvalue > ALARM
    neighbours = int((one[1:] == one[:-1]).sum())
    assert stats.binomtest(neighbours, 69_999, 0.5).pvalue > ALARM


@pytest.mark.parametrize("rotation", [False, True])
def test_decoding_is_within_one_unit_and_keeps_the_shape(rotation: bool):  # noqa: FBT001
    x = np.random.default_rng(0).normal(size=1000)
    fine = lattice(1000, granularity=2.0**-30, clamp=100.0, rotation=rotation)
    integers = encode(x, fine, fresh(), b"round 1")
    assert integers.shape == (fine.coordinates,) == (1024 if rotation else 1000,)
    error = decode(integers, fine, b"round 1") - x
    assert np.linalg.norm(error) <= math.sqrt(fine.coordinates) * 2.0**-30
    assert np.abs(error).max() < 2.0**-26 if rotation else np.abs(error).max() < 2.0**-30


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("rotation", [False, True])
@pytest.mark.parametrize("position", [0, 39_999])
def test_a_value_that_is_not_finite_is_refused(bad: float, rotation: bool, position: int):  # noqa: FBT001
    x = np.zeros(40_000)
    x[position] = bad
    with pytest.raises(CosiloError, match="inf or nan"):
        encode(x, lattice(40_000, rotation=rotation), fresh(), b"s")


def test_a_vector_whose_rotation_overflows_is_refused():
    with pytest.raises(DataError, match="inf or nan"):
        encode(np.full(4, 1.7e308), lattice(4, rotation=True), fresh(), b"s")


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="lattice of 3"):
        encode(np.zeros(4), lattice(3), fresh())
    with pytest.raises(DataError, match="lattice of 4"):
        decode(np.zeros(3, dtype=np.int64), lattice(3, rotation=True), b"s")


# --- the clamp and the ring


@settings(deadline=None)  # the first call compiles
@given(st.floats(1e-9, 1e9), st.floats(1e-3, 1e3))
@example(1.0, 0.1)
@example(3.0, 1.0)
@example(0.1, 0.3)
@example(math.nextafter(3.0, 4.0), 1.0)
def test_no_rounded_coordinate_passes_the_clamp(clamp: float, granularity: float):
    corner = Lattice(granularity=granularity, clamp=clamp, ring_bits=64, dim=6)
    units = corner.clamp_units
    assert units - 1 < Fraction(clamp) / Fraction(granularity) <= units
    x = np.array([clamp, -clamp, math.nextafter(clamp, 0), math.nextafter(clamp, 1e300), 1e300, -1e300])
    for word in (0, 2**63, 2**64 - 1):
        out = np.empty(6, dtype=np.int64)
        assert round_dithered(x, granularity, clamp, np.full(6, word, dtype=np.uint64), out)
        assert int(np.abs(out).max()) <= units


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("silos", [1, 2, 3, 100, 1000])
def test_no_sum_at_the_corners_wraps_in_the_smallest_ring(sign: float, silos: int):
    noise_bound = 12_345
    clamp, granularity = 0.7, 1e-3
    units = Lattice(granularity=granularity, clamp=clamp, ring_bits=64, dim=1).clamp_units
    bits = smallest_ring(silos * units + noise_bound)
    corner = Lattice(granularity=granularity, clamp=clamp, ring_bits=bits, dim=3)
    x = sign * np.array([clamp, math.nextafter(clamp, 9), 1e300])
    sent = [encode(x, corner, fresh(silo)) for silo in range(silos)]
    sent[0] = sent[0] + np.int64(sign * noise_bound)
    true = np.sum(sent, axis=0)
    assert int(np.abs(true).min()) >= silos * (units - 1) + noise_bound
    assert np.array_equal(unwrap(add([wrap(s, bits) for s in sent], bits), bits), true)


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=20))
def test_the_clamp_is_a_projection_that_brings_no_two_vectors_apart(pairs: list[tuple[int, int]]):
    x = np.array(pairs, dtype=np.float64)
    grid = lattice(len(pairs), clamp=20.0)
    one, other = encode(x[:, 0].copy(), grid, fresh(1)), encode(x[:, 1].copy(), grid, fresh(2))
    assert np.array_equal(one, np.clip(x[:, 0], -20, 20))  # integers are not moved, whatever the dither
    assert np.linalg.norm(one - other) <= np.linalg.norm(x[:, 0] - x[:, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"granularity": 0.0}, "granularity must lie"),
        ({"granularity": math.nan}, "granularity must lie"),
        ({"granularity": 1e300}, "granularity must lie"),
        ({"clamp": 0.0}, "positive and finite"),
        ({"clamp": math.inf}, "positive and finite"),
        ({"clamp": math.nan}, "positive and finite"),
        ({"dim": 0}, "at least one coordinate"),
        ({"clamp": 2.0**51 + 1}, r"more than 2\^51 times.*granularity of at least"),
        ({"ring_bits": 7}, "8 to 64 bits"),
        ({"ring_bits": 8, "clamp": 128.0}, "reach 128 lattice units.*aggregation.ring_bits = 9"),
    ],
)
def test_numbers_that_make_no_lattice_are_refused(change: dict[str, float], message: str):
    numbers: dict[str, float] = {"granularity": 1.0, "clamp": 100.0, "ring_bits": 64, "dim": 3}
    with pytest.raises(ConfigError, match=message):
        Lattice(**(numbers | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(("dim", "padded"), [(1, 1), (2, 2), (3, 4), (1024, 1024), (1025, 2048)])
def test_coordinates_are_padded_with_rotation_only(dim: int, padded: int):
    assert lattice(dim).coordinates == dim
    assert lattice(dim, rotation=True).coordinates == padded


# --- integer sensitivity


def directions(d: int, rng: np.random.Generator) -> dict[str, Reals]:
    """Shapes of a real difference; each is scaled to the wanted norm, so halves are met where k is 0.5 sqrt(d)."""
    one, ones = np.zeros(d), np.ones(d)
    one[0] = 1.0
    uneven = np.where(np.arange(d) % 2 == 0, 1.5, 0.5)
    spike = np.full(d, 0.5)
    spike[0] = 10.5
    return {
        "random": rng.normal(size=d),
        "one": one,
        "all": ones,
        "minus": -ones,
        "alternating": ones * (-1.0) ** np.arange(d),
        "uneven": uneven,
        "spike": spike,
    }


def pair_norms(
    shape: Reals, k: float, pairs: int, rng: np.random.Generator, reach: float = 42.0
) -> tuple[Integers, Integers]:
    """||n||_2^2 and ||n||_1 of `pairs` encoded pairs k apart in direction `shape`."""
    granularity, d = 0.1, shape.size
    flat = lattice(pairs * d, granularity=granularity, clamp=40.0)  # 40 is met where reach is more
    base = rng.uniform(-reach, reach, size=(pairs, d))
    moved = base + shape * (k * granularity / np.linalg.norm(shape))
    key = int(rng.integers(2**62))
    n = encode(moved.ravel(), flat, fresh(key)) - encode(base.ravel(), flat, fresh(key))
    n = n.reshape(pairs, d)
    return np.asarray((n * n).sum(axis=1)), np.asarray(np.abs(n).sum(axis=1))


@pytest.mark.parametrize("beta", [1e-2, 0.2])
@pytest.mark.parametrize(("d", "pairs"), [(1, 20_000), (4, 20_000), (64, 3_000)])
def test_adversarial_pairs_stay_within_the_bounds(d: int, pairs: int, beta: float):
    # 7 shapes x 6 norms x 2 betas: 3.6 million pairs in all.
    rng = np.random.default_rng(d)
    for shape in directions(d, rng).values():
        for k in (0.01, 0.5, 0.5 * math.sqrt(d), 1.5 * math.sqrt(d), 10.5 * math.sqrt(d), 77.7):
            bounds = lattice(d, granularity=0.1, clamp=40.0)
            real = k * 0.1 * (1 + 1e-9)
            squares, sums = pair_norms(shape, k, pairs, rng)
            always2, always1 = integer_sensitivity(l2=real, lattice=bounds, beta=0.0, norm=1e9)
            assert math.sqrt(squares.max()) <= always2
            assert sums.max() <= always1
            l2, l1 = integer_sensitivity(l2=real, lattice=bounds, beta=beta, norm=1e9)
            failures = int(((squares > l2**2) | (sums > l1)).sum())
            assert stats.binomtest(failures, pairs, beta, alternative="greater").pvalue > ALARM


def test_half_of_the_deviation_term_would_be_beaten():
    # Power of the test above: halves in every coordinate make ||n||^2 normal with sd (2m+1)/2 sqrt(d).
    d, beta = 64, 1e-2
    k = 10.5 * math.sqrt(d)
    squares, _ = pair_norms(np.ones(d), k, 20_000, np.random.default_rng(3), reach=30.0)
    whole, _ = integer_sensitivity(l2=k * 0.1, lattice=lattice(d, granularity=0.1, clamp=40.0), beta=beta, norm=0.0)
    mean = k * k + d / 4
    half = mean + (whole**2 - mean) / 2
    failures = int((squares > half).sum())
    assert stats.binomtest(failures, squares.size, beta, alternative="greater").pvalue < ALARM


def test_the_bounds_are_the_formula_rounded_up():
    d, k, beta = 10_000, 5000.0, 1e-12
    got, _ = integer_sensitivity(l2=k, lattice=lattice(d, clamp=1e5), beta=beta, norm=0.0)
    formula = math.sqrt(k * k + d / 4 + math.sqrt(2 * math.log(1 / beta)) * (k + math.sqrt(d) / 2))
    assert formula < got < formula * (1 + 1e-10)
    coarse, l1 = integer_sensitivity(l2=0.01, lattice=lattice(4), beta=1e-12, norm=0.0)
    assert 2.01 < coarse < 2.01 * (1 + 1e-10)  # here the bound that never fails is the smaller one
    assert 4.02 < l1 < 4.02 * (1 + 1e-10)


def test_float_division_and_rotation_are_counted():
    plain, turned = lattice(1024, clamp=2.0**50), lattice(1024, clamp=2.0**50, rotation=True)
    exact = 100.0 + 32.0
    with_division, _ = integer_sensitivity(l2=100.0, lattice=plain, beta=0.0, norm=0.0)
    assert with_division >= exact + 32 * 2.0**50 * 2.0**-52
    with_rotation, _ = integer_sensitivity(l2=100.0, lattice=turned, beta=0.0, norm=2.0**53)
    assert with_rotation >= with_division + 2 * 1.1 * 12 * (1 - 1e-9)


def test_a_difference_is_never_wider_than_the_clamp():
    l2, l1 = integer_sensitivity(l2=1e308, lattice=lattice(4, clamp=10.0), beta=0.0, norm=1e308)
    assert l2 <= (2 * 10 * 2 + 2) * (1 + 1e-10)
    assert math.isfinite(l1)


@pytest.mark.parametrize("change", [{"l2": -1.0}, {"l2": math.nan}, {"beta": 1.0}, {"beta": -0.1}, {"norm": math.inf}])
def test_numbers_that_make_no_bound_are_refused(change: dict[str, float]):
    numbers = {"l2": 1.0, "beta": 1e-9, "norm": 1.0} | change
    with pytest.raises(ConfigError, match="finite l2 and norm"):
        integer_sensitivity(lattice=lattice(4), **numbers)
