"""Epsilon beside public accountants: their numbers come from benchmarks/results/peers.json, which names the versions.

`python -m benchmarks peers --write benchmarks/results/peers.json` makes that file anew and checks all of its sets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cosilo.accounting import epsilon
from cosilo.privacy import Gaussian, PoissonSampled, Repeated

KEPT = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "peers.json").read_text())
FEW = [one for one in KEPT["sets"][::15] if "prv upper" in one]


def test_the_file_is_whole() -> None:
    assert len(KEPT["sets"]) == 200
    assert {"opacus", "prv-accountant", "autodp"} <= {name for name, at in KEPT["versions"].items() if at[0].isdigit()}
    assert all(row["ok"] for row in KEPT["worst"])
    assert len(FEW) >= 12


@pytest.mark.parametrize("one", FEW, ids=lambda one: f"z{one['z']:g} q{one['rate']:g} T{one['uses']} d{one['delta']:g}")
def test_agrees_with_every_peer(one: dict[str, Any]) -> None:
    event, delta = Repeated(one["uses"], PoissonSampled(one["rate"], Gaussian(one["z"]))), one["delta"]
    bound, by_rdp = epsilon(event, delta), epsilon(event, delta, "rdp").upper
    assert bound.upper == pytest.approx(one["upper"], rel=1e-6)
    assert one["prv lower"] <= bound.upper <= one["prv upper"]
    assert bound.lower is None or bound.lower <= one["prv upper"]
    assert abs(bound.upper - one["prv estimate"]) <= KEPT["error"] + 1e-3 * bound.upper
    for peer in ("opacus prv", "opacus rdp", "autodp"):
        assert bound.upper <= one[peer] * (1 + 1e-6)
    assert bound.upper <= by_rdp * (1 + 1e-6)
    assert by_rdp <= one["opacus rdp"] * (1 + 1e-6)
