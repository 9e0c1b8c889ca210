"""Tables hold exactly the masses they promise; doubtful draws are decided by the exact rule."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from cosilo.entropy import Context, Entropy, Stream
from cosilo.errors import ConfigError
from cosilo.mechanisms import discrete_gaussian, discrete_laplace, draws, kernels, skellam
from cosilo.mechanisms.tables import BITS, AliasTable, Histogram, exp_minus

LAWS = {"discrete-gaussian": discrete_gaussian, "skellam": skellam, "discrete-laplace": discrete_laplace}


class Crafted(Stream):
    """A stream that says what it is told, then zeros."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def fill(self, out: NDArray[np.uint64]) -> None:
        taken, self.left = self.left[: out.size], self.left[out.size :]
        out[:] = 0
        out[: len(taken)] = taken


@cache
def bessel(sigma: float) -> list[mpmath.mpf]:
    """I_k(v) / I_0(v) by the continued fraction of neighbours' ratios, from far outside, in 150 digits."""
    with mpmath.workdps(150):
        variance, ratio, ratios = mpmath.mpf(sigma) ** 2, mpmath.mpf(0), []
        for k in range(int(25 * sigma) + 400, 0, -1):
            ratio = 1 / (2 * k / variance + ratio)
            ratios.append(ratio)
        out = [mpmath.mpf(1)]
        for ratio in reversed(ratios):
            out.append(out[-1] * ratio)
        return out


def test_the_oracle_itself():
    with mpmath.workdps(100):
        for x in (0, 1, 50, 120):
            truth = mpmath.besseli(x, 100) / mpmath.besseli(0, 100)
            assert abs(bessel(10.0)[x] / truth - 1) < mpmath.mpf(10) ** -90


def exact(name: str, sigma: float, x: int) -> mpmath.mpf:
    """f(x) / f(0) by mpmath."""
    s = mpmath.mpf(sigma)
    if name == "discrete-gaussian":
        return mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * s * s))
    if name == "skellam":
        return bessel(sigma)[x]
    return mpmath.exp(-mpmath.mpf(discrete_laplace.decay(sigma)) * x)


def cell_masses(table: AliasTable | Histogram, compared: int) -> list[int]:
    """What the draws of a table have for masses, in units of 2^-128 of the least compared bit."""
    size = 1 << table.bits
    masses, capacity = [0] * size, 1 << (compared + 128)
    for cell, entry in enumerate(table.packed.tolist()):
        threshold = (entry >> table.bits) << 128 | int(table.first[cell]) << 64 | int(table.second[cell])
        masses[cell] += threshold
        masses[entry & (size - 1)] += capacity - threshold
    return masses


@pytest.mark.parametrize(
    ("numerator", "denominator"), [(0, 1), (1, 1), (7, 3), (1, 10**12), (355, 4), (10**6, 9), (10**30, 1)]
)
def test_exp_minus(numerator: int, denominator: int):
    with mpmath.workdps(150):
        truth = mpmath.exp(-mpmath.mpf(numerator) / denominator) * mpmath.mpf(2) ** BITS
        assert abs(exp_minus(numerator, denominator) - truth) <= 2


@pytest.mark.parametrize("sigma", [0.5, 3.0, 10.3, 700.0])
@pytest.mark.parametrize("name", LAWS)
def test_alias_masses_are_the_law_to_2_to_the_minus_128(name: str, sigma: float):
    law, table = LAWS[name]._table(sigma)
    assert isinstance(table, AliasTable)
    masses = cell_masses(table, 32 - table.bits)
    assert sum(masses) == 2**160
    assert not any(masses[2 * law.reach + 1 :])
    assert masses[: 2 * law.reach + 1] == masses[2 * law.reach :: -1]
    with mpmath.workdps(80):
        heights = [exact(name, sigma, x) for x in range(law.reach + 1)] if law.reach < 1000 else []
        if heights:
            total = heights[0] + 2 * mpmath.fsum(heights[1:])
            ideal = [h / total * mpmath.mpf(2) ** 160 for h in heights]
            distance = sum(abs(masses[law.reach + x] - m) * (1 if x == 0 else 2) for x, m in enumerate(ideal)) / 2
            assert distance < 2 * law.reach + 1, "in units of 2^-160, the tail aside"
        for x in (1, law.reach // 3, law.reach):
            ratio = mpmath.mpf(masses[law.reach + x]) / masses[law.reach]
            # The rounded-down remainders all went to 0: at most 2 reach + 1 units against the largest mass.
            assert abs(ratio - exact(name, sigma, x)) < mpmath.mpf(2 * law.reach + 2) / masses[law.reach]


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("sigma", [0.5, 10.0, 500.0])
def test_the_tail_left_out_is_below_2_to_the_minus_128(name: str, sigma: float):
    law, _ = LAWS[name]._table(sigma)
    with mpmath.workdps(60):
        total = 1 + 2 * mpmath.fsum(exact(name, sigma, x) for x in range(1, int(5 * sigma) + 5))
        stride = 1 + int(sigma / 10)  # f falls: stride f(first) bounds the sum of a stretch
        beyond = stride * mpmath.fsum(exact(name, sigma, law.reach + x) for x in range(1, int(8 * sigma) + 50, stride))
        assert 2 * beyond / total < mpmath.mpf(2) ** -128


@pytest.mark.parametrize(("name", "sigma"), [("skellam", 0.5), ("skellam", 40.0), ("skellam", 5000.0)])
def test_bessel_ratios_are_bracketed_by_two_starts(name: str, sigma: float):
    """r = 0 and r = 1 at the start bracket the true ratio all the way down: the exact map is monotone."""
    law, _ = LAWS[name]._table(sigma)
    top, bottom = (sigma**2).as_integer_ratio()
    start = int(np.ceil(skellam._tail(sigma, 1, skellam._START))) + 2
    pair = [(0, 1 << 400), (1 << 400, 1 << 400)]
    for k in range(start, law.reach, -1):
        pair = [(here, above + here * 2 * k * bottom // top) for above, here in pair]
    (a, b), (c, d) = pair
    assert abs(Fraction(a, b) / Fraction(c, d) - 1) < Fraction(1, 2**300)


@pytest.mark.parametrize(("name", "sigma"), [
    ("discrete-gaussian", 5e3), ("discrete-gaussian", 12345.678), ("discrete-gaussian", 2.0**36),
    ("skellam", 6e3), ("discrete-laplace", 2e3), ("discrete-laplace", 2.0**36),
])  # fmt: skip
def test_histogram_regions_bound_the_law_and_fill_the_total(name: str, sigma: float):
    law, table = LAWS[name]._table(sigma)
    assert isinstance(table, Histogram)
    half, step = table.buckets // 2, 1 << table.lowbits
    assert half * step > law.reach
    masses = cell_masses(table, 64 - table.bits - table.lowbits)
    low, wedge, refused = masses[: 2 * half], masses[2 * half : 4 * half], masses[4 * half]
    assert tuple(low[half:]) == tuple(low[half - 1 :: -1]) == table.lower
    assert tuple(wedge[half:]) == tuple(wedge[half - 1 :: -1])
    assert tuple(a + b for a, b in zip(table.lower, wedge[half:], strict=True)) == table.upper
    assert refused < sum(masses) >> 60
    assert sum(wedge) < 0.05 * sum(masses)
    with mpmath.workdps(110):
        for j in (0, 1, half // 7, half - 1):
            near, far = exact(name, sigma, j * step), exact(name, sigma, (j + 1) * step)
            assert table.lower[j] <= far * table.scale <= near * table.scale <= table.upper[j]
            assert (
                abs(mpmath.mpf(law.at(j * step + 1)) / 2**BITS - exact(name, sigma, j * step + 1))
                < mpmath.mpf(2) ** -299
            )


def test_ties_of_an_alias_draw_are_decided_by_the_threshold_s_other_bits():
    _, table = discrete_gaussian._table(3.0)
    assert isinstance(table, AliasTable)
    cells = [c for c, e in enumerate(table.packed.tolist()) if e & ((1 << table.bits) - 1) != c]
    for cell in cells[:10]:
        entry, first, second = int(table.packed[cell]), int(table.first[cell]), int(table.second[cell])
        compared = entry >> table.bits
        own, other = cell - table.offset, (entry & ((1 << table.bits) - 1)) - table.offset
        for shift, fresh, expected in (
            (-1, (), own),
            (1, (), other),
            (0, (0, 0), own),
            (0, (first, second - 1), own),
            (0, (first, second), other),
            (0, (first, second + 1), other),
            (0, (first - 1, 2**64 - 1), own),
            (0, (first + 1, 0), other),
            (0, (2**64 - 1, 2**64 - 1), other),
        ):
            if not 0 <= compared + shift < 1 << (32 - table.bits) or not all(0 <= w < 2**64 for w in fresh):
                continue
            word = cell << (32 - table.bits) | compared + shift
            assert draws.draw_alias(table, Crafted(word, *fresh), 1).tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "sigma"),
    [
        ("discrete-gaussian", 1e5),
        ("discrete-gaussian", 2.0**36),
        ("discrete-laplace", 1e5),
        ("discrete-laplace", 2.0**36),
        ("skellam", 6e3),
    ],
)
def test_wedges_are_decided_as_the_law_says(name: str, sigma: float):
    """The float gap of a wedge's trial is the exact one within 1e-14, far below the margin; integers take its sign."""
    law, table = LAWS[name]._table(sigma)
    assert isinstance(table, Histogram)
    cells, decay = draws.kernel_arguments(law, table, 0.0)
    step, half = 1 << table.lowbits, table.buckets // 2
    rng = np.random.default_rng(3)
    with mpmath.workdps(100):
        for uniform in rng.integers(0, 2**64, 100, dtype=np.uint64).tolist():
            bucket, inside = int(rng.integers(half)), int(rng.integers(step))
            for value in (bucket * step + inside, -1 - bucket * step - inside):
                low, high = table.lower[bucket], table.upper[bucket]
                level = low + mpmath.mpf(uniform) / 2**64 * (high - low)
                gap = (exact(name, sigma, abs(value)) * table.scale - level) / high
                assert abs(kernels._gap(np.int64(value), np.uint64(uniform), cells, decay) - gap) < 1e-14
                if name != "skellam":  # whose integer path repeats the whole recurrence: one case below
                    assert draws._accepts(law, table, value, uniform, Crafted()) == (gap > 0)


@pytest.mark.parametrize(("name", "sigma"), [("discrete-gaussian", 1e5), ("discrete-laplace", 2.0**36)])
def test_crafted_words_of_a_histogram(name: str, sigma: float):
    """Wedges: low uniforms accept, high ones draw again; ties: the threshold's other 128 bits decide."""
    law, table = LAWS[name]._table(sigma)
    assert isinstance(table, Histogram)
    reach, mask = (table.buckets // 2) << table.lowbits, (1 << table.bits) - 1
    aliases = [entry & mask for entry in table.packed.tolist()]
    certain = next(c for c in range(table.buckets) if aliases[c] == c)
    sure_word, sure = certain << (64 - table.bits) | 1, (certain << table.lowbits) + 1 - reach

    def drawn(*words: int) -> int:
        return int(draws.draw_histogram(law, table, Crafted(*words), 1)[0])

    assert drawn(sure_word) == sure
    wedges = [c for c in range(table.buckets, 2 * table.buckets) if int(table.packed[c]) >> table.bits > 1]
    for cell in wedges[:: len(wedges) // 20]:
        word, value = cell << (64 - table.bits) | 1, ((cell - table.buckets) << table.lowbits) + 1 - reach
        assert drawn(word, 0) == value
        assert drawn(word, 2**64 - 1, sure_word) == sure
        assert drawn(word, 2**64 - 1, word, 2**64 - 1, word, 2**64 - 1, sure_word) == sure
    ties = [c for c, alias in enumerate(aliases[: table.buckets]) if alias != c and alias < table.buckets]
    for cell in ties[:10]:
        word = cell << (64 - table.bits) | (int(table.packed[cell]) >> table.bits) << table.lowbits | 1
        own, other = (((c << table.lowbits) + 1 - reach) for c in (cell, aliases[cell]))
        first, second = int(table.first[cell]), int(table.second[cell])
        assert drawn(word, first, second) == other
        assert drawn(word, 2**64 - 1, 2**64 - 1) == other
        if second:
            assert drawn(word, first, second - 1) == own
        if first:
            assert drawn(word, first - 1, 2**64 - 1) == own


def test_running_out_of_fresh_words_loses_no_position():
    """Refusals by the dozen: the driver tops the fresh words up and goes on where it stopped."""
    law, table = discrete_gaussian._table(1e5)
    assert isinstance(table, Histogram)
    cell = next(c for c in range(table.buckets, 2 * table.buckets) if int(table.packed[c]) >> table.bits > 1)
    refused = [cell << (64 - table.bits) | 1, 2**64 - 1]
    mask = (1 << table.bits) - 1
    certain = next(c for c, entry in enumerate(table.packed.tolist()) if entry & mask == c < table.buckets)
    sure = certain << (64 - table.bits) | 1 << table.lowbits | 1  # a compared part of 0 would tie
    words = [refused[0], sure, refused[0], *[refused[1], refused[0]] * 60, refused[1], sure, refused[1], sure]
    expected = (certain << table.lowbits) + 1 - ((table.buckets // 2) << table.lowbits)
    assert draws.draw_histogram(law, table, Crafted(*words), 3).tolist() == [expected] * 3


def test_the_law_does_not_depend_on_who_decides():
    """Margin 2 sends every wedge to the integers."""
    for margin in (0.0, 2.0):
        law, table = discrete_gaussian._table(1e5)
        assert isinstance(table, Histogram)
        stream = Entropy.seeded(5, "a").stream(Context(run=b"", silo="a", round=1, attempt=1, purpose="noise"))
        sample = draws.draw_histogram(law, table, stream, 200_000, margin) / 1e5
        assert abs(sample.mean()) < 6.2 / np.sqrt(200_000)
        assert abs(sample.var() - 1) < 6.2 * np.sqrt(2 / 200_000)


def test_skellam_wedge_by_integers():
    law, table = skellam._table(5000.0)
    assert isinstance(table, Histogram)
    bucket, value = 1000, 1000 << table.lowbits | 7
    share = (float(table.values[value]) * table.scale - table.lower[bucket]) / (
        table.upper[bucket] - table.lower[bucket]
    )
    assert 0 < share < 1
    assert draws._accepts(law, table, value, int((share - 1e-6) * 2**64), Crafted())
    assert not draws._accepts(law, table, value, int((share + 1e-6) * 2**64), Crafted())


@pytest.mark.parametrize("dim", [1, 2, 3, 511, 65_537])
def test_any_length_and_the_same_seed_repeats(dim: int):
    for name, sigma in (("discrete-gaussian", 10.0), ("discrete-gaussian", 1e5), ("discrete-laplace", 700.0)):
        law, table = LAWS[name]._table(sigma)
        one, other = (
            draws.draw_alias(table, stream, dim)
            if isinstance(table, AliasTable)
            else draws.draw_histogram(law, table, stream, dim)
            for stream in (Stream(bytes(32)), Stream(bytes(32)))
        )
        assert one.shape == (dim,)
        assert one.dtype == np.int64
        assert np.array_equal(one, other)


def test_an_empty_vector_is_refused():
    with pytest.raises(ConfigError, match="dim >= 1"):
        draws.new_vector(0)
