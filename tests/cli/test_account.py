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
        ("epsilon --noise-multiplier 1 --uses -1", "number of uses must lie between 0 and"),
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


@pytest.mark.parametrize(
    ("steps", "share", "paper", "by_pld"),
    [
        (1, 0.6903, (5.00, 2.78, 1.22, 0.64), (3.666, 1.777, 0.634, 0.311)),
        (10, 0.9020, (5.00, 2.61, 1.19, 0.72), (3.534, 1.753, 0.788, 0.476)),
        (50, 1.1794, (5.00, 2.86, 1.55, 1.03), (3.790, 2.149, 1.143, 0.744)),
    ],
)
def test_table_1_by_command(steps: int, share: float, paper: tuple[float, ...], by_pld: tuple[float, ...]) -> None:
    """P1, Table 1, and the same noise as Gaussian by PLD."""
    for parties, theirs, ours in zip((1, 2, 5, 10), paper, by_pld, strict=True):
        line = f"epsilon --share-multiplier {share} --contributors {parties} --sampling-rate 0.1 --uses {steps}"
        assert call(f"{line} --mechanism skellam --conversion mironov")["epsilon"]["upper"] == pytest.approx(
            theirs, abs=0.01
        )
        assert call(f"{line} --mechanism gaussian")["epsilon"]["upper"] == pytest.approx(ours, abs=1e-3)


def test_noisy_steps_never_show_one_number_alone() -> None:
    line = "--mechanism discrete-gaussian --rule noisy-steps --local-steps 11 --contributors 10 --rounds 1"
    result = call(f"noise {line} --guarantee joint-steps --epsilon 1")
    assert set(result) == {
        "noise_multiplier", "share_multiplier", "epsilon", "epsilon_unconditional", "epsilon_joint_steps"
    }  # fmt: skip
    assert result["epsilon_joint_steps"] == pytest.approx(1.0, abs=1e-6)
    assert result["epsilon_unconditional"] == pytest.approx(3.4468, abs=1e-3)
    share = result["share_multiplier"]
    back = call(f"epsilon {line} --share-multiplier {share!r}")
    assert back["epsilon"]["upper"] == back["epsilon_unconditional"] == pytest.approx(3.4468, abs=1e-3)
    text = say(f"epsilon {line} --share-multiplier {share!r} --guarantee joint-steps")
    assert "NOT PROVED" in text
    assert "Unconditional: epsilon 3.447" in text
    assert "false for ordinary local SGD" in text
    naive = call(f"epsilon {line} --share-multiplier {share!r} --guarantee naive")
    once = call(f"epsilon --noise-multiplier {share * math.sqrt(10) / 11!r}")
    assert naive["epsilon"]["upper"] == pytest.approx(once["epsilon"]["upper"], rel=1e-6)
    most = call(f"rounds {line.replace(' --rounds 1', '')} --share-multiplier 40 --epsilon 2")
    assert most["epsilon_unconditional"] <= 2 < most["uses"]
    assert most["epsilon_joint_steps"] < most["epsilon_unconditional"]


def test_one_step_rounds_are_uses() -> None:
    rounds = call("epsilon --rule one-step --rounds 20 --noise-multiplier 16.7 --mechanism discrete-gaussian")
    uses = call("epsilon --uses 20 --noise-multiplier 16.7 --mechanism gaussian")
    assert rounds["epsilon"]["upper"] == pytest.approx(uses["epsilon"]["upper"], rel=1e-6)


def test_noises_of_a_single_silo_and_coins() -> None:
    for mechanism in ("laplace", "discrete-laplace"):
        result = call(f"noise --mechanism {mechanism} --epsilon 0.5 --contributors 9")
        assert result["share_multiplier"] == result["noise_multiplier"] == pytest.approx(2 * math.sqrt(2), rel=1e-6)
    coins = call("epsilon --mechanism poisson-binomial --trials 4 --theta 0.1 --contributors 30 --dim 2")
    assert 0 < coins["epsilon"]["upper"] < 8 * math.log(1.5)
    assert "contributor's values" in coins["assumption"]
    fine, coarse = (
        call(f"epsilon --mechanism skellam --noise-multiplier 3 --dim 1000 --sensitivity-l2 {l2}") for l2 in (1e6, 10)
    )
    assert fine["epsilon"]["upper"] < coarse["epsilon"]["upper"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("epsilon --noise-multiplier 1 --rule one-step --uses 3", "counts rounds, not uses"),
        ("epsilon --noise-multiplier 1 --rounds 3", "Rounds belong to a rule"),
        ("epsilon --noise-multiplier 1 --local-steps 3", "belong to noisy-steps"),
        ("epsilon --noise-multiplier 1 --guarantee naive", "belong to noisy-steps"),
        ("epsilon --noise-multiplier 1 --rule two-step", "no rule"),
        ("epsilon --noise-multiplier 1 --rule noisy-steps --guarantee hope", "no guarantee"),
        ("epsilon --noise-multiplier 1 --rule noisy-steps --local-steps 0", "at least 1"),
        ("epsilon --noise-multiplier 1 --dim 0", "--dim must be at least 1"),
        ("epsilon --noise-multiplier 1 --sensitivity-l2 nan", "--sensitivity-l2 must be finite"),
        ("epsilon --noise-multiplier 1 --mechanism poisson-binomial", "coins instead of noise"),
        ("epsilon --mechanism poisson-binomial --rule noisy-steps", "adds no noise at a step"),
        ("noise --epsilon 1 --mechanism poisson-binomial", "coins instead of noise"),
        ("epsilon --noise-multiplier 1 --conversion mironov --accountant pld", "belongs to rdp"),
    ],
)
def test_new_refusals_are_sentences(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        CliRunner().invoke(app, line.split(), catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--mechanism", "discrete-gaussian", "--share-multiplier", "1e-4", "--contributors", "10"), "3 <= sigma"),
        (("--mechanism", "skellam", "--share-multiplier", "100", "--contributors", "10"), "sigma <= 131072"),
    ],
)
def test_noise_that_no_contributor_can_draw_is_refused_with_the_range(arguments: tuple[str, ...], what: str):
    with pytest.raises(ConfigError, match=what):
        CliRunner().invoke(app, ["epsilon", *arguments], catch_exceptions=False)
