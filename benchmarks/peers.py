"""`python -m benchmarks peers`: epsilon of 200 parameter sets beside every public accountant that is installed.

Their statements about add-or-remove-one, as they make them:

| peer              | statement                                                                |
|-------------------|--------------------------------------------------------------------------|
| prv-accountant    | lower <= epsilon <= upper, an estimate within `_ERROR` (Gopi et al. 2021) |
| Opacus prv        | an upper bound by the same algorithm                                     |
| Opacus rdp        | an upper bound by Renyi divergences at its default orders                |
| autodp rdp        | the same at any order, improved bounds on; unsampled: the closed form    |

Ours must never lie below a proved lower bound, nor above another's upper bound. `--write` keeps everything as JSON:
tests/accounting/test_peers.py reads that file, so that it needs no peer.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Row, show, versions
from cosilo.accounting import epsilon
from cosilo.privacy import Event, Gaussian, PoissonSampled, Repeated

__all__ = ["arguments"]

_ERROR = 0.01  # of epsilon: asked of prv-accountant, and Opacus's default
_OURS = 1e-3  # of epsilon, relative: asked of our grid (design 30)
_ROUNDING = 1e-6  # of epsilon, relative
_NEAR_ORDERS = 0.05  # of epsilon, relative: autodp searches between our orders, which lie up to 6 % apart
_DELTAS = (1e-5, 1e-8)
_EPOCHS = (0, 1, 10, 100)  # 0: one use
_NOISES = {0.001: (0.6, 0.8, 1, 2, 5), 0.01: (0.6, 0.8, 1, 2, 5), 0.05: (0.8, 1, 1.5, 3, 10), 0.2: (1, 1.5, 2, 4, 10)}
_MUS = (0.1, 0.3, 1.0, 2.0, 4.0)  # gdp_mu of the unsampled sets
_UNSAMPLED_USES = (1, 5, 50, 1000)
_PACKAGES = ("cosilo", "opacus", "prv-accountant", "autodp", "dp-accounting", "numpy", "scipy")


@dataclass(frozen=True, slots=True)
class Case:
    """`uses` of a Gaussian of noise_multiplier z on batches of `rate`."""

    z: float
    rate: float
    uses: int
    delta: float

    @property
    def event(self) -> Event:
        """The same as an event."""
        return Repeated(self.uses, PoissonSampled(self.rate, Gaussian(self.z)))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options and what to run."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, help="keep every number in this file")
    parser.set_defaults(run=_run)


def _cases() -> list[Case]:
    sampled = [
        Case(z, rate, round(epochs / rate) or 1, delta)
        for rate, noises in _NOISES.items()
        for z in noises
        for epochs in _EPOCHS
        for delta in _DELTAS
    ]
    whole = [
        Case(round(uses**0.5 / mu, 6), 1.0, uses, delta) for mu in _MUS for uses in _UNSAMPLED_USES for delta in _DELTAS
    ]
    return sampled + whole


def _prv_accountant(case: Case) -> dict[str, float]:
    from prv_accountant import PRVAccountant
    from prv_accountant import privacy_random_variables as laws

    law = (
        laws.GaussianMechanism(noise_multiplier=case.z)
        if case.rate == 1
        else laws.PoissonSubsampledGaussianMechanism(sampling_probability=case.rate, noise_multiplier=case.z)
    )
    accountant = PRVAccountant(
        [law], eps_error=_ERROR, delta_error=case.delta / 1000, max_self_compositions=[case.uses]
    )
    lower, estimate, upper = accountant.compute_epsilon(case.delta, [case.uses])
    return {"prv lower": lower, "prv estimate": estimate, "prv upper": upper}


def _opacus(case: Case) -> dict[str, float]:
    from opacus.accountants import PRVAccountant, RDPAccountant

    found = {}
    for name, make in (("opacus prv", PRVAccountant), ("opacus rdp", RDPAccountant)):
        accountant = make()
        accountant.history = [(case.z, case.rate, case.uses)]
        found[name] = accountant.get_epsilon(case.delta)
    return found


def _autodp(case: Case) -> dict[str, float]:
    from autodp.mechanism_zoo import ExactGaussianMechanism, NoisySGD_Mechanism

    if case.rate == 1:
        return {"autodp": ExactGaussianMechanism(sigma=case.z / case.uses**0.5).get_approxDP(case.delta)}
    return {"autodp": NoisySGD_Mechanism(case.rate, case.z, case.uses).get_approxDP(case.delta)}


_ALL: tuple[tuple[str, Callable[[Case], dict[str, float]]], ...] = (
    ("prv_accountant", _prv_accountant),
    ("opacus", _opacus),
    ("autodp", _autodp),
)
_PEERS = tuple((name, peer) for name, peer in _ALL if importlib.util.find_spec(name) is not None)


def _evaluate(case: Case) -> dict[str, Any]:
    """Every number of one set; a peer that fails leaves its error."""
    bound = epsilon(case.event, case.delta)
    found: dict[str, Any] = {**asdict(case), "lower": bound.lower, "upper": bound.upper}
    found["rdp"] = epsilon(case.event, case.delta, "rdp").upper
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, peer in _PEERS:
            try:
                found |= {key: round(float(value), 9) for key, value in peer(case).items()}
            except Exception as error:  # noqa: BLE001 - whatever another library raises is its answer
                found[f"{name} failed"] = f"{type(error).__name__}: {error}"[:120]
    return found


def _summary(rows: list[dict[str, Any]]) -> list[Row]:
    """Worst of ours / theirs over the sets that have both."""
    checks = [
        ("ours / prv-accountant's lower, least", "upper", "prv lower", min, 1.0),
        ("ours / prv-accountant's upper, most", "upper", "prv upper", max, 1 + _ROUNDING),
        ("our lower / prv-accountant's upper, most", "lower", "prv upper", max, 1 + _ROUNDING),
        ("ours / Opacus prv, most", "upper", "opacus prv", max, 1 + _ROUNDING),
        ("ours / Opacus rdp, most", "upper", "opacus rdp", max, 1 + _ROUNDING),
        ("ours / autodp, most", "upper", "autodp", max, 1 + _ROUNDING),
        ("our rdp / Opacus rdp, most", "rdp", "opacus rdp", max, 1 + _ROUNDING),
        ("our rdp / autodp (sampled), most", "rdp", "autodp", max, 1 + _NEAR_ORDERS),
    ]
    out = []
    for what, mine, theirs, worst, bar in checks:
        usable = [r for r in rows if r.get(theirs, 0) > 0 and r[mine] is not None]
        usable = [r for r in usable if r["rate"] < 1] if "sampled" in what else usable
        if not usable:
            continue
        row = worst(usable, key=lambda r: r[mine] / r[theirs])
        ratio = row[mine] / row[theirs]
        out.append(_row(f"{what} ({len(usable)})", row[mine], (row[theirs], theirs), ratio, bar, least=worst is min))
    return out + _error(rows)


def _row(what: str, ours: float, theirs: tuple[float, str], ratio: float, bar: float, *, least: bool) -> Row:
    return Row(
        what=what,
        unit="epsilon",
        ours=ours,
        peer=theirs[0],
        peer_name=theirs[1],
        ratio=ratio,
        bar=bar,
        ok=ratio >= bar if least else ratio <= bar,
    )


def _error(rows: list[dict[str, Any]]) -> list[Row]:
    """Difference from the estimate in units of both stated errors together."""
    usable = [r for r in rows if "prv estimate" in r]
    if not usable:
        return []

    def share(r: dict[str, Any]) -> float:
        return float(abs(r["upper"] - r["prv estimate"]) / (_ERROR + _OURS * r["upper"]))

    worst = max(usable, key=share)
    theirs = worst["prv estimate"], "prv estimate"
    return [_row("|ours - estimate| / stated errors, most", worst["upper"], theirs, share(worst), 1.0, least=False)]


def _write(path: Path, rows: list[dict[str, Any]], summary: list[Row]) -> None:
    """One set a line, so that a change shows."""
    head = json.dumps({"command": "python -m benchmarks peers --write", "versions": versions(_PACKAGES)})
    worst = ",\n".join(json.dumps(asdict(row)) for row in summary)
    lines = ",\n".join(json.dumps(row) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head[:-1]}, "error": {_ERROR},\n"worst": [\n{worst}\n],\n"sets": [\n{lines}\n]}}\n')


def _run(asked: argparse.Namespace) -> int:
    for name in sorted({name for name, _ in _ALL} - {name for name, _ in _PEERS}):
        print(f"{name} is not installed", file=sys.stderr)
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        rows = pool.map(_evaluate, _cases(), chunksize=1)
    summary = _summary(rows)
    for row in rows:
        for key in [key for key in row if key.endswith("failed")]:
            print(f"z {row['z']}, rate {row['rate']}, uses {row['uses']}, delta {row['delta']}: {key}: {row[key]}")
    if asked.write is not None:
        _write(asked.write, rows, summary)
    return show("peers", summary, _PACKAGES, as_json=asked.json)
