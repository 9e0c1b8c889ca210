"""Extreme inputs (design 30) in a process of their own: a right answer or a sentence, in 10 seconds and 1 GiB."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from cosilo.accounting import epsilon_of_mu

SECONDS, KIBIBYTES = 10.0, 1 << 20
UNIT = 100.0  # l2 sensitivity in lattice units
PROGRAM = """
import itertools, json, resource, sys, time
from cosilo.accounting import calibrate_noise, delta, epsilon
from cosilo.errors import ConfigError
from cosilo.privacy import DiscreteGaussian, Gaussian, Laplace, PoissonSampled, Repeated, Skellam

UNIT = 100.0
make = {
    "gaussian": Gaussian,
    "discrete-gaussian": lambda z: DiscreteGaussian(l2=UNIT, sigma=z * UNIT, contributors=1, dim=1000),
    "skellam": lambda z: Skellam(l1=UNIT * 1000**0.5, l2=UNIT, sigma=z * UNIT, contributors=1, dim=1000),
    "laplace": Laplace,
}[sys.argv[1]]


def answer(call):
    began = time.process_time()
    try:
        found = call()
        said = [found.lower, found.upper] if hasattr(found, "upper") else found
    except ConfigError as error:
        said = [error.what, error.fix]
    return said, time.process_time() - began


for rate, uses, z, target in itertools.product(
    (0.0, 1e-9, 0.01, 1.0), (1, 10_000_000), (1e-2, 1.0, 1e2, 1e4), (1e-5, 1e-30)
):
    def event(z, rate=rate, uses=uses):
        return Repeated(uses, PoissonSampled(rate, make(z)))

    calls = {"epsilon": lambda: epsilon(event(z), target)}
    if z == 1.0:
        calls["rdp"] = lambda: epsilon(event(z), target, "rdp")
        calls["pld"] = lambda: epsilon(event(z), target, "pld")
        calls["delta"] = lambda: delta(event(z), 1.0)
    if z == 1e2 and rate in (0.0, 1e-9, 1.0):
        calls["noise"] = lambda: calibrate_noise(event, epsilon=1.0, delta=target)
    for name, call in calls.items():
        said, seconds = answer(call)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps([name, rate, uses, z, target, said, seconds, peak]))
"""


def answers(mechanism: str) -> list[list[Any]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mechanism], capture_output=True, text=True, check=True, timeout=120
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def unsampled(mechanism: str, uses: int, z: float, target: float) -> float:
    """What the same uses cost without sampling, where that has a formula; infinite elsewhere."""
    if mechanism == "laplace":
        return uses / z
    scale = z if mechanism == "gaussian" else math.sqrt(z * z - 1 / 12 / UNIT**2)
    return epsilon_of_mu(mu=math.sqrt(uses) / scale, delta=target)


def check_epsilon(mechanism: str, accountant: str, case: tuple[float, int, float, float], said: list[Any]) -> None:
    rate, uses, z, target = case
    lower, upper = said
    if isinstance(upper, str):  # a refusal: what happened, what to do
        assert lower.endswith(".")
        assert upper.endswith(".")
        return
    assert not math.isnan(upper)
    assert upper >= (lower or 0.0) >= 0
    if rate == 0:
        assert upper == 0
        return
    if accountant == "pld" and mechanism != "gaussian" and math.isinf(upper):
        return  # the distance of the modelled noise is more than delta: nothing proved, as documented
    assert math.isfinite(upper)
    cost = unsampled(mechanism, uses, z, target)
    # Skellam and tiny noise are charged by the Renyi curve of what is released
    loose = 1.3 if mechanism == "gaussian" else 4.0  # RDP at delta = 1e-30
    assert upper <= loose * cost + 0.5 or (mechanism != "gaussian" and z * UNIT < 3)
    if rate == 1 and mechanism == "gaussian" and accountant != "rdp":
        assert upper == pytest.approx(cost, rel=1e-9 if accountant == "epsilon" else 1e-5)
    if uses * rate <= target:  # a row is in no batch at all with probability 1 - delta
        assert upper == 0


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete-gaussian", "skellam", "laplace"])
def test_extremes(mechanism: str) -> None:
    found = answers(mechanism)
    assert len(found) == 4 * 2 * 2 * (4 + 3) + 3 * 2 * 2
    for name, rate, uses, z, target, said, seconds, peak in found:
        assert seconds < SECONDS, (name, rate, uses, z, target)
        assert peak < KIBIBYTES, (name, rate, uses, z, target)
        if name in ("epsilon", "rdp", "pld"):
            check_epsilon(mechanism, name, (rate, uses, z, target), said)
        elif name == "delta":
            assert 0 <= said[1] <= min(1.0, uses * rate * (1 + 1e-9))
        else:
            assert isinstance(said, list) or (math.isfinite(said) and said >= 0)
