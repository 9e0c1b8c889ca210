"""`python -m benchmarks calibration`: seconds of the accountant beside dp-accounting and Opacus in the same process.

Ours and a peer take turns; the median of the pairs counts. Every call of ours starts cold: what its modules remember
of earlier calls is forgotten first. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import random
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.report import Row, show
from cosilo.accounting import calibrate_noise, epsilon, fractional, pld, rdp, renyi, slack
from cosilo.privacy import Event, Gaussian, PoissonSampled, Repeated

__all__ = ["arguments"]

_DELTA = 1e-5
_Z, _RATE, _STEPS = 1.0, 0.01, 1000
_CANDIDATES = 500
_SHOWN_TO_PEERS = 20  # candidates; their seconds are scaled up
_FINEST = 1e-5  # grid step of the reference
_COARSE = 1e-3  # grid step that shows what too coarse a one costs
_PAIRS = 7
_SLOW_PAIRS = 3  # of a peer that takes more than a second
_GRID, _RDP, _CALIBRATE, _SEARCH = 0.060, 0.005, 0.5, 3.0  # design 30, item 5: seconds at most
_NEAR, _GOLDEN = 1e-3, 0.734  # of the finest grid; design 30: z = 5, q = 1e-3, 1e6 uses
_NEAR_GOLDEN = 0.01
_Timed = tuple[str, Callable[[], Any]]
_Peer = tuple[str | None, Callable[[], Any] | None]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options and what to run."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    logging.getLogger("absl").setLevel(logging.ERROR)  # dp-accounting warns of orders that it leaves out
    rows = [*_one_epsilon(), *_noise(), *_search(), *_coarse_grids()]
    return show("calibration", rows, ("cosilo", "dp-accounting", "opacus", "numpy", "scipy"), as_json=asked.json)


def _sampled(z: float, rate: float, uses: int) -> Event:
    return Repeated(uses, PoissonSampled(rate, Gaussian(z)))


def _forget() -> None:
    for module in (fractional, pld, rdp, renyi, slack):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _cold(call: Callable[[], object]) -> float:
    _forget()
    return _seconds(call)


def _medians(pairs: list[tuple[float, float | None]]) -> tuple[float, float | None, float | None]:
    mine = statistics.median(ours for ours, _ in pairs)
    both = [(ours, theirs) for ours, theirs in pairs if theirs is not None]
    if not both:
        return mine, None, None
    return mine, statistics.median(theirs for _, theirs in both), statistics.median(a / b for a, b in both)


def _timed(what: str, ours: Callable[[], Any], bar: float, peers: Sequence[_Peer], scale: float = 1.0) -> list[Row]:
    """Seconds, less is better: one row for each peer, one alone where there is none."""
    ours()
    rows = []
    pairs: list[tuple[float, float | None]]
    for name, peer in peers or [(None, None)]:
        if peer is None:
            pairs = [(_cold(ours), None) for _ in range(_PAIRS)]
        else:
            pairs = [
                (_cold(ours), scale * _seconds(peer)) for _ in range(_SLOW_PAIRS if _seconds(peer) > 1 else _PAIRS)
            ]
        mine, theirs, ratio = _medians(pairs)
        rows.append(
            Row(
                what=what,
                unit="seconds",
                ours=mine,
                peer=theirs,
                peer_name=name,
                ratio=ratio,
                bar=bar,
                ok=mine <= bar,
            )
        )
    return rows


def _dp_accounting(kind: str) -> Callable[[float, float, int], float]:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    def one(z: float, rate: float, uses: int) -> float:
        accountant = RdpAccountant() if kind == "rdp" else PLDAccountant()
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(z)), uses)
        return float(accountant.get_epsilon(_DELTA))

    return one


def _opacus(kind: str) -> Callable[[float, float, int], float]:
    from opacus.accountants import PRVAccountant, RDPAccountant

    def one(z: float, rate: float, uses: int) -> float:
        accountant = PRVAccountant() if kind == "prv" else RDPAccountant()
        accountant.history = [(z, rate, uses)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(accountant.get_epsilon(_DELTA))

    return one


def _has_opacus() -> bool:
    return importlib.util.find_spec("opacus") is not None


def _peers(curve: str) -> list[tuple[str, Callable[[float, float, int], float]]]:
    """Libraries that do the same: `curve` is pld or rdp."""
    found = [(f"dp-accounting {curve}", _dp_accounting(curve))]
    if _has_opacus():
        kind = "prv" if curve == "pld" else "rdp"
        found.append((f"Opacus {kind}", _opacus(kind)))
    return found


def _one_epsilon() -> list[Row]:
    def peers(curve: str) -> list[_Timed]:
        return [(name, lambda one=one: one(_Z, _RATE, _STEPS)) for name, one in _peers(curve)]  # type: ignore[misc]

    event = _sampled(_Z, _RATE, _STEPS)
    what = f"epsilon of {_STEPS} sampled steps"
    return [
        *_timed(f"{what}, auto, cold", lambda: epsilon(event, _DELTA), _GRID, peers("pld")),
        *_timed(f"{what}, rdp, cold", lambda: epsilon(event, _DELTA, "rdp"), _RDP, peers("rdp")),
    ]


def _calibrated() -> float:
    return calibrate_noise(lambda z: _sampled(z, _RATE, _STEPS), epsilon=1, delta=_DELTA)


def _noise_peers() -> list[_Timed]:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent, mechanism_calibration
    from dp_accounting.pld import PLDAccountant

    def dp_accounting() -> Any:  # noqa: ANN401
        return mechanism_calibration.calibrate_dp_mechanism(
            PLDAccountant,
            lambda z: SelfComposedDpEvent(PoissonSampledDpEvent(_RATE, GaussianDpEvent(z)), _STEPS),
            1.0,
            _DELTA,
            bracket_interval=mechanism_calibration.ExplicitBracketInterval(0.5, 10.0),
            tol=1e-3,
        )

    found: list[_Timed] = [("dp-accounting pld, tol 1e-3", dp_accounting)]
    if _has_opacus():
        from opacus.accountants.utils import get_noise_multiplier

        options = {"target_epsilon": 1.0, "target_delta": _DELTA, "sample_rate": _RATE, "steps": _STEPS}
        found.append(("Opacus prv, tolerance 0.01", lambda: get_noise_multiplier(accountant="prv", **options)))
    return found


def _finest() -> float:
    """The noise at which dp_accounting's own grid of step 1e-5 reaches epsilon = 1."""
    from dp_accounting.pld import privacy_loss_distribution
    from scipy.optimize import brentq

    def excess(z: float) -> float:
        one = privacy_loss_distribution.from_gaussian_mechanism(
            z, sampling_prob=_RATE, value_discretization_interval=_FINEST, use_connect_dots=True
        )
        return float(one.self_compose(_STEPS).get_epsilon_for_delta(_DELTA)) - 1

    return float(brentq(excess, 1.40, 1.43, xtol=1e-5))


def _noise() -> list[Row]:
    peers = _noise_peers()
    what = "noise for (1, 1e-5), q=.01, T=1000"
    rows = _timed(f"{what}, cold", _calibrated, _CALIBRATE, peers)
    best = _finest()
    near = abs(_calibrated() / best - 1)
    for name, peer in peers:
        theirs = abs(float(peer()) / best - 1)
        row = Row(
            what="  |noise / finest grid's - 1|",
            unit="share",
            ours=near,
            peer=theirs,
            peer_name=name,
            ratio=near / theirs,
            bar=_NEAR,
            ok=near <= _NEAR,
        )
        rows.append(row)
    return rows


def _search() -> list[Row]:
    """Epsilon of (rounds, cohort, noise) plans that share nothing: sampled by rdp, whole cohorts by closed forms."""
    random_ = random.Random(7)
    draws = [
        (random_.uniform(0.6, 8), 10 ** random_.uniform(-3, -0.3), random_.randint(1, 5000)) for _ in range(_CANDIDATES)
    ]
    plans = [_sampled(*draw) for draw in draws]
    some = draws[:_SHOWN_TO_PEERS]
    peers: list[_Timed] = [
        (f"{name}, {len(some)} scaled up", lambda one=one: [one(*draw) for draw in some])  # type: ignore[misc]
        for name, one in _peers("rdp")
    ]
    whole = [Repeated(uses, Gaussian(z)) for z, _, uses in draws]
    what = f"{_CANDIDATES} candidate plans"
    return [
        *_timed(
            f"{what}, sampled, rdp, cold",
            lambda: [epsilon(p, _DELTA, "rdp") for p in plans],
            _SEARCH,
            peers,
            len(draws) / len(some),
        ),
        *_timed(f"{what}, whole cohorts, cold", lambda: [epsilon(p, _DELTA) for p in whole], _SEARCH, []),
    ]


def _coarse_grid() -> float:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=_COARSE)
    accountant.compose(PoissonSampledDpEvent(1e-3, GaussianDpEvent(5.0)), 10**6)
    return float(accountant.get_epsilon(_DELTA))


def _coarse_grids() -> list[Row]:
    """What grids of a fixed step make of much noise and many uses."""
    ours = epsilon(_sampled(5.0, 1e-3, 10**6), _DELTA).upper
    found = [(f"{name}, default grid", one(5.0, 1e-3, 10**6)) for name, one in _peers("pld")]
    return [
        Row(
            what="epsilon, z=5, q=1e-3, 1e6 uses",
            unit="epsilon",
            ours=ours,
            peer=theirs,
            peer_name=name,
            ratio=ours / theirs,
            bar=_GOLDEN,
            ok=abs(ours / _GOLDEN - 1) <= _NEAR_GOLDEN,
        )
        for name, theirs in [*found, (f"dp-accounting pld, step {_COARSE:g}", _coarse_grid())]
    ]
