"""`cosilo account` gives the numbers of design 30 and the laws of P1 (arXiv 2407.19286)."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from typer.testing import CliRunner

from cosilo.accounting import epsilon
from cosilo.cli.account import app
from cosilo.errors import ConfigError
from cosilo.privacy import DiscreteGaussian, Gaussian, PoissonSampled, Repeated


def call(line: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*line.split(), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


@pytest.mark.parametrize(("steps", "noise"), [(1, 0.5846), (10, 0.7644), (50, 1.0153)])
def test_noise_by_loss_distribution_for_table_1(steps: int, noise: float) -> None:
    """Design 30: PLD reaches epsilon = 5 at q = 0.1 with about 15 % less noise than P1's Table 1."""
    found = call(f"noise --epsilon 5 --delta 1e-5 --sampling-rate 0.1 --uses {steps}")["noise_multiplier"]
    assert found == pytest.approx(noise, rel=2e-3)
    assert found < 0.87 * {1: 0.6903, 10: 0.9020, 50: 1.1794}[steps]


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete-gaussian", "skellam"])
@pytest.mark.parametrize("options", ["--uses 20 --epsilon 1", "--uses 10 --sampling-rate 0.1 --epsilon 5"])
def test_needed_share_falls_with_the_root_of_the_contributors(mechanism: str, options: str) -> None:
    """P1, Theorems 4.7 and 4.8: N contributors need 1/sqrt(N) of the noise each, for one promise."""
    line = f"noise --mechanism {mechanism} {options} --dim 100"
    alone = call(line)["share_multiplier"]
    for contributors in (4, 16, 100):
        together = call(f"{line} --contributors {contributors}")
        assert together["share_multiplier"] * math.sqrt(contributors) == pytest.approx(alone, rel=2e-4)
        assert together["noise_multiplier"] == pytest.approx(alone, rel=2e-4)


def test_colluders_take_their_noise_away() -> None:
    line = "noise --mechanism discrete-gaussian --uses 20 --epsilon 1"
    alone = call(line)["share_multiplier"]
    assert call(f"{line} --contributors 20 --colluding 4")["share_multiplier"] == pytest.approx(alone / 4, rel=1e-4)


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_flights_with_discrete_noise_costs_what_the_gaussian_costs(rate: float) -> None:
    """15 airlines, 140 parameters, 20 uses: within 1 % of the continuous epsilon at the same sd, slack included."""
    for sigma in (2_000.0, 26_000.0):
        noise = DiscreteGaussian(l2=6000, sigma=sigma, contributors=15, dim=140)
        discrete = epsilon(Repeated(20, PoissonSampled(rate, noise)), 1e-5).upper
        gaussian = Gaussian(sigma * math.sqrt(15) / 6000)
        continuous = epsilon(Repeated(20, PoissonSampled(rate, gaussian)), 1e-5).upper
        assert continuous <= discrete <= 1.01 * continuous


def test_noise_that_is_no_gaussian_is_refused_by_pld_and_costed_by_auto() -> None:
    """The distance from the modelled Gaussian is more than delta: a sentence, not infinity."""
    line = "epsilon --mechanism skellam --noise-multiplier 1 --sensitivity-l2 100 --dim 1000"
    with pytest.raises(ConfigError, match="Use more noise, or --accountant auto"):
        CliRunner().invoke(app, [*line.split(), "--accountant", "pld"], catch_exceptions=False)
    assert call(line)["epsilon"]["upper"] < 6
