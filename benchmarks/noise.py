"""Draws per second of integer noise, one thread, the keystream included, beside numpy and OpenDP.

Ours and its peer take turns (paired), so that a slow spell of the machine hits both; the median of the pairs counts.
numpy's generators are not meant for privacy and are here as the speed of ordinary simulation; OpenDP samples exactly.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.report import Row, show
from cosilo.entropy import Stream
from cosilo.mechanisms import MECHANISMS

__all__ = ["arguments", "run"]

_DRAWS = 1 << 24
_OPENDP_DRAWS = 1 << 16
_PAIRS = 7
_BAR = 1e8
_CASES = (
    ("discrete-gaussian", 10.0),
    ("discrete-gaussian", 1e3),
    ("discrete-gaussian", 1e5),
    ("skellam", 10.0),
    ("skellam", 1e3),
    ("skellam", 4096.0),
    ("skellam", 1e5),
)
_PROGRAM = """
import time
start = time.perf_counter()
from cosilo.entropy import Stream
from cosilo.mechanisms import MECHANISMS
imported = time.perf_counter()
MECHANISMS["discrete-gaussian"].sample(Stream(bytes(32)), 10, 10.0)
MECHANISMS["discrete-gaussian"].sample(Stream(bytes(32)), 10, 1e5)
print(time.perf_counter() - imported)
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another sampler of (nearly) the same law: `draw()` makes `count` draws."""

    name: str
    count: int
    draw: Callable[[], Any]


def _seconds(draw: Callable[[], Any]) -> float:
    start = time.perf_counter()
    draw()
    return time.perf_counter() - start


def _peers(mechanism: str, sd: float) -> list[Peer]:
    generator = np.random.default_rng()
    if mechanism == "skellam":
        rate = sd * sd / 2

        def difference() -> Any:  # noqa: ANN401
            return generator.poisson(rate, _DRAWS) - generator.poisson(rate, _DRAWS)

        return [Peer("numpy poisson - poisson", _DRAWS, difference)]

    def rounded() -> Any:  # noqa: ANN401
        return np.rint(generator.normal(0.0, sd, _DRAWS)).astype(np.int64)

    peers = [Peer("numpy rint(normal)", _DRAWS, rounded)]
    try:
        import opendp.prelude as dp
    except ImportError:
        return peers
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    measurement = dp.m.make_gaussian(*space, scale=sd)
    return [*peers, Peer("OpenDP make_gaussian (integers)", _OPENDP_DRAWS, partial(measurement, [0] * _OPENDP_DRAWS))]


def _compare(mechanism: str, sd: float) -> list[Row]:
    stream = Stream(os.urandom(32))
    sample = partial(MECHANISMS[mechanism].sample, stream, _DRAWS, sd)
    sample()
    bar = 2 * _BAR if sd <= 10 and mechanism == "discrete-gaussian" else _BAR  # noqa: PLR2004
    rows = []
    for peer in _peers(mechanism, sd):
        pairs = [(_DRAWS / _seconds(sample), peer.count / _seconds(peer.draw)) for _ in range(_PAIRS)]
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        rows.append(
            Row(
                what=f"{mechanism}, sd {sd:g}",
                unit="draws/s",
                ours=ours,
                peer=theirs,
                peer_name=peer.name,
                ratio=ratio,
                bar=bar,
                ok=ours >= bar,
            )
        )
    return rows


def _start() -> list[Row]:
    """Seconds to the first draws in a fresh process whose compiled kernels are on disk, numba's import included."""
    command = [sys.executable, "-c", _PROGRAM]
    runs = [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
        for _ in range(4)
    ][1:]
    plain = {"peer": None, "peer_name": None, "ratio": None, "bar": None, "ok": None}
    return [Row(what="first draws of a second process", unit="seconds", ours=statistics.median(runs), **plain)]


def run(asked: argparse.Namespace) -> int:
    """Print the figures; 1 where a bar is missed."""
    cases = [(asked.mechanism, asked.sd)] if asked.sd else [c for c in _CASES if asked.mechanism in {None, c[0]}]
    rows = [row for mechanism, sd in cases for row in _compare(mechanism or "discrete-gaussian", sd)]
    packages = ("cosilo", "numpy", "numba", "cryptography", "opendp")
    return show("noise", rows + ([] if asked.sd else _start()), packages, as_json=asked.json)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `python -m benchmarks noise`."""
    parser.add_argument("--mechanism", choices=("discrete-gaussian", "skellam"))
    parser.add_argument("--sd", type=float, help="of one draw; all the standard ones if left out")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)
