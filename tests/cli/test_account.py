"""`cosilo account`: numbers, JSON, sentences and refusals."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cosilo.cli.account import app
from cosilo.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SAMPLED = "--noise-multiplier 1 --sampling-rate 0.01 --uses 1000 --delta 1e-5"


def call(line: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*line.split(), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def say(line: str) -> str:
    result = CliRunner().invoke(app, line.split(), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_epsilon_of_sampled_uses() -> None:
    result = call(f"epsilon --mechanism gaussian {SAMPLED}")
    assert set(result) == {"epsilon", "accountant", "assumption"}
    assert 1.827 <= result["epsilon"]["upper"] <= 1.832
    assert result["epsilon"]["lower"] <= result["epsilon"]["upper"]
    assert result["accountant"] == "pld"
    assert "adding or removing one row" in result["assumption"]


def test_noise_for_twenty_uses() -> None:
    result = call("noise --mechanism gaussian --epsilon 1 --delta 1e-5 --uses 20")
    assert set(result) == {"noise_multiplier", "share_multiplier", "epsilon"}
    assert result["noise_multiplier"] == pytest.approx(math.sqrt(20) / 0.26805, rel=1e-3)
    assert result["share_multiplier"] == result["noise_multiplier"]
    assert 0.999 < result["epsilon"]["upper"] <= 1


def test_shares_of_honest_contributors() -> None:
    result = call("noise --epsilon 1 --uses 20 --contributors 17 --colluding 1")
    assert result["share_multiplier"] == pytest.approx(result["noise_multiplier"] / 4)
    back = call(f"epsilon --share-multiplier {result['share_multiplier']!r} --contributors 17 --colluding 1 --uses 20")
    assert back["epsilon"]["upper"] == pytest.approx(1.0, rel=1e-9)
    assert back["accountant"] == "closed-form"


def test_rounds_are_the_inverse_of_epsilon() -> None:
    result = call("rounds --epsilon 4 --noise-multiplier 10")
    assert set(result) == {"uses", "epsilon"}
    assert result["uses"] == 85  # floor((10 * 0.92493)^2)
    assert result["epsilon"]["upper"] <= 4
    assert call("rounds --epsilon 4 --noise-multiplier 0.1")["uses"] == 0


def test_accountants_can_be_forced() -> None:
    assert call(f"epsilon {SAMPLED} --accountant rdp")["epsilon"]["lower"] is None
    assert call("epsilon --noise-multiplier 2 --accountant pld")["accountant"] == "pld"


def test_sentences_for_people() -> None:
    text = say(f"epsilon {SAMPLED}")
    assert "(1.829, 1e-05)-differentially private" in text
    assert "adding or removing one row" in text
    assert "needs noise multiplier 3.731" in say("noise --epsilon 1")  # 3.7306 rounded up, never down
    assert "At most 85 releases" in say("rounds --epsilon 4 --noise-multiplier 10")


@pytest.mark.parametrize(
    "options", ["--noise-multiplier 5 --uses 40", "--noise-multiplier 2 --sampling-rate 0.1 --uses 3"]
)
def test_plot(tmp_path: Path, options: str) -> None:
    target = tmp_path / "epsilon.pdf"
    call(f"epsilon {options} --plot {target}")
    assert target.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("epsilon", "The noise is missing"),
        ("epsilon --noise-multiplier 1 --share-multiplier 1", "given twice"),
        ("epsilon --noise-multiplier 1 --contributors 3", "all honest contributors together already"),
        ("epsilon --noise-multiplier 0", "must be finite and > 0"),
        ("epsilon --noise-multiplier nan", "must be finite and > 0"),
        ("epsilon --share-multiplier -1", "must be finite and > 0"),
        ("epsilon --share-multiplier 1 --contributors 2 --colluding 2", "At least one contributor must be honest"),
        ("epsilon --noise-multiplier 1 --mechanism gauss", "no mechanism 'gauss'"),
        ("epsilon --noise-multiplier 1 --delta 1", "delta must satisfy"),
        ("epsilon --noise-multiplier 1 --delta nan", "delta must satisfy"),
        ("epsilon --noise-multiplier 1 --uses -1", "number of uses must be >= 0"),
        ("epsilon --noise-multiplier 1 --sampling-rate 1.5", "sampling_rate must lie"),
        ("epsilon --noise-multiplier 1 --sampling-rate nan", "sampling_rate must lie"),
        ("noise --epsilon 0", "epsilon must be finite and > 0"),
        ("noise --epsilon nan", "epsilon must be finite and > 0"),
        ("noise --epsilon 1 --contributors 0", "At least one contributor must be honest"),
        ("rounds --epsilon -1 --noise-multiplier 1", "epsilon must be finite and > 0"),
    ],
)
def test_refusals_are_sentences(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as raised:
        CliRunner().invoke(app, line.split(), catch_exceptions=False)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    "line", ["noise", "epsilon --noise-multiplier x", "epsilon --accountant moments", "epsilon --no-such"]
)
def test_usage_errors_exit_2(line: str) -> None:
    assert CliRunner().invoke(app, line.split()).exit_code == 2


def test_a_plot_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        CliRunner().invoke(
            app, ["epsilon", "--noise-multiplier", "1", "--plot", str(tmp_path / "x.xyz")], catch_exceptions=False
        )
