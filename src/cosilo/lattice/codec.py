"""Real vectors to integers and back, and what the rounding does to sensitivity.

encode: rotate (optional), clamp, divide by the granularity, round with a random dither. Everything after the
division is exact (kernels.round_dithered): a quotient y becomes floor(y + r) with r uniform on the multiples of
2^-64 in [0, 1), so P(up) is the fraction of y cut to 64 bits.
"""

from __future__ import annotations

import math

import numpy as np

from cosilo.entropy import Stream
from cosilo.errors import ConfigError, DataError
from cosilo.lattice.lattice import Lattice
from cosilo.lattice.ring import Integers
from cosilo.lattice.rotation import rotate, rotate_back

__all__ = ["decode", "encode", "integer_sensitivity"]

Reals = np.ndarray[tuple[int], np.dtype[np.float64]]

_CHUNK = 1 << 15  # dither words of one chunk stay in a core's cache
_UP = 1 + 2.0**-40  # more than the sum of all relative rounding errors of the formulas below


def encode(vector: Reals, lattice: Lattice, stream: Stream, seed: bytes = b"") -> Integers:
    """The lattice integers of one real vector, shape (dim,) to (coordinates,), int64, |n| <= lattice.clamp_units.

    Args:
        vector: float64, finite.
        lattice: the public numbers.
        stream: a fresh "rounding" stream; one 64-bit word per coordinate. Secret, never reused.
        seed: the round's public seed; needed with rotation only.

    Raises:
        DataError: the shape differs from lattice.dim or a value is not finite (nothing was encoded).
    """
    from cosilo.lattice.kernels import round_dithered

    if vector.shape != (lattice.dim,):
        raise DataError(f"A vector of shape {vector.shape} met a lattice of {lattice.dim}.", "Check the model's size.")
    values = np.ascontiguousarray(vector, dtype=np.float64)
    if lattice.rotation:
        with np.errstate(all="ignore"):  # what overflows becomes inf or nan and is refused below
            values = rotate(values, lattice.coordinates, seed)
    integers = np.empty(lattice.coordinates, dtype=np.int64)
    words = np.empty(min(_CHUNK, values.size), dtype=np.uint64)
    granularity, clamp = float(lattice.granularity), float(lattice.clamp)
    for start in range(0, values.size, _CHUNK):
        part = values[start : start + _CHUNK]
        dither = words[: part.size]
        stream.fill(dither)
        if not round_dithered(part, granularity, clamp, dither, integers[start : start + _CHUNK]):
            raise DataError("A vector to encode holds inf or nan.", "Nothing was sent; check the data and the model.")
    return integers


def decode(integers: Integers, lattice: Lattice, seed: bytes = b"") -> Reals:
    """The real vector of lattice integers (of one silo or of a sum), shape (coordinates,) to (dim,), float64.

    Post-processing: it sees only what was released, so float rounding here costs no privacy.
    """
    if integers.shape != (lattice.coordinates,):
        raise DataError(
            f"Integers of shape {integers.shape} met a lattice of {lattice.coordinates}.", "Check the model's size."
        )
    values = np.asarray(integers * float(lattice.granularity))
    return rotate_back(values, lattice.dim, seed) if lattice.rotation else values


def integer_sensitivity(*, l2: float, lattice: Lattice, beta: float, norm: float) -> tuple[float, float]:
    """Bounds (l2, l1), lattice units, on how far the integers of one fixed neighbouring pair differ.

    For real vectors x, x' with ||x - x'||_2 <= l2, encoded with the same dither r, the bounds hold with
    probability at least 1 - beta over r (beta = 0: always). Given r the two releases differ by at most that
    much, and r has one law under both, so a guarantee (epsilon, delta) computed from these bounds holds for
    the release as (epsilon, delta + beta); beta is paid once per rounding.

    Proof. y_j is the float64 quotient cut down to a multiple of 2^-64, so that the integer is floor(y_j + r_j)
    exactly, D = y - y', k = ||D||_2. u_j = (y'_j + r_j) mod 1 is uniform on the grid, and n_j =
    floor(y_j + r_j) - floor(y'_j + r_j) = floor(u_j + D_j): with m_j = floor(D_j), f_j = D_j - m_j, it is m_j + 1
    with probability exactly f_j, else m_j, independently over j.
    (1) |n_j| < |D_j| + 1, so ||n||_2 <= k + sqrt(d), always.
    (2) n_j^2 is m_j^2 or m_j^2 + 2 m_j + 1, so independent terms with ranges |2 m_j + 1|, and
    E n_j^2 = D_j^2 + f_j (1 - f_j) <= D_j^2 + 1/4. Hoeffding: ||n||^2 <= k^2 + d/4 + t with
    t = sqrt(ln(1/beta)/2) ||2m + 1||_2, except with probability beta; and ||2m + 1||_2 = 2 ||m + 1/2||_2
    <= 2k + sqrt(d) since |m_j + 1/2 - D_j| <= 1/2. So t <= sqrt(2 ln(1/beta)) (k + sqrt(d)/2).
    (3) Integers have |n_j| <= n_j^2, so ||n||_1 <= min(||n||_2^2, sqrt(d) ||n||_2).

    k exceeds l2 / granularity by at most the float error: per coordinate two quotients of magnitude
    <= clamp_units, relative 2^-53 each, and two cuts of 2^-64; with rotation both vectors' error in
    `rotation.rotate`. The clamp is a projection and adds nothing.

    Args:
        l2: bound on ||x - x'||_2, real units.
        lattice: the public numbers; d = lattice.coordinates.
        beta: failure probability in [0, 1).
        norm: public bound on ||x||_2 and ||x'||_2, real units; counted with rotation only.

    Source: conditional rounding in Kairouz, Liu and Steinke 2021 bounds one vector's norm; the statement here is
    for a difference under shared dither and is proved above.
    """
    if not (0 <= l2 < math.inf and 0 <= norm < math.inf and 0 <= beta < 1):
        raise ConfigError(
            f"Sensitivity needs finite l2 and norm and beta in [0, 1), got {l2}, {norm}, {beta}.", "Check the rule."
        )
    d = lattice.coordinates
    root = math.sqrt(d)
    k = l2 / lattice.granularity + root * (lattice.clamp_units * 2.0**-52 + 2.0**-63)
    if lattice.rotation:
        k += 2 * 1.1 * (math.log2(d) + 2) * 2.0**-53 * (norm / lattice.granularity)
    k = min(k, 2 * lattice.clamp_units * root)  # both vectors lie in the clamp
    bound = (k + root) ** 2
    if beta > 0:
        bound = min(bound, k * k + d / 4 + math.sqrt(-2 * math.log(beta)) * (k + root / 2))
    wide = math.sqrt(bound) * _UP
    return wide, wide * min(root, wide) * _UP
