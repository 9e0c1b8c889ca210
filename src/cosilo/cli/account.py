"""`cosilo account epsilon | noise | rounds`: privacy of given numbers, without any data."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosilo.cli.console import DebugFlag, JsonFlag, QuietFlag, VerboseFlag, note, print_json, stdout
from cosilo.cli.drawing import draw
from cosilo.cli.releases import BINOMIAL, JOINT_STEPS_NEED, Prover, Releases
from cosilo.errors import ConfigError
from cosilo.privacy import up

if TYPE_CHECKING:
    from cosilo.privacy import Bound

__all__ = ["app"]

app = typer.Typer(help="Privacy of given numbers, without any data.", no_args_is_help=True)

_PLOT_POINTS = 200  # of a closed form, microseconds each
_SAMPLED_PLOT_POINTS = 12  # a tenth of a second each


class AccountantName(StrEnum):
    """What proves the bound."""

    auto = "auto"
    rdp = "rdp"
    pld = "pld"


class ConversionName(StrEnum):
    """How Renyi divergences become epsilon."""

    tight = "tight"
    mironov = "mironov"


MechanismOption = Annotated[
    str,
    typer.Option(
        "--mechanism",
        help="gaussian, discrete-gaussian, skellam, laplace, discrete-laplace or poisson-binomial.",
    ),
]
NoiseOption = Annotated[
    float | None, typer.Option("--noise-multiplier", help="Total honest noise sd / l2 sensitivity (z).")
]
ShareOption = Annotated[
    float | None, typer.Option("--share-multiplier", help="One contributor's noise sd / l2 sensitivity.")
]
ContributorsOption = Annotated[
    int | None, typer.Option("--contributors", help="Silos whose noise is in the sum. [default: 1]")
]
ColludingOption = Annotated[
    int, typer.Option("--colluding", help="Of the contributors, those whose noise the observer knows.")
]
RateOption = Annotated[
    float, typer.Option("--sampling-rate", help="Probability that a row enters one use's batch; 1: always.")
]
UsesOption = Annotated[int | None, typer.Option("--uses", help="Number of releases. [default: 1]")]
EpsilonOption = Annotated[float, typer.Option("--epsilon", help="The promise.")]
DeltaOption = Annotated[float, typer.Option("--delta", help="The promise; use less than 1 / rows.")]
AccountantOption = Annotated[AccountantName, typer.Option("--accountant", help="What proves the bound.")]
ConversionOption = Annotated[
    ConversionName, typer.Option("--conversion", help="Of Renyi divergences; mironov: as in older papers, implies rdp.")
]
L2Option = Annotated[
    float, typer.Option("--sensitivity-l2", help="l2 sensitivity in lattice units; matters to discrete noise.")
]
DimOption = Annotated[
    int, typer.Option("--dim", help="Released coordinates; l1 sensitivity is at most l2 min(sqrt(dim), l2).")
]
RuleOption = Annotated[
    str | None, typer.Option("--rule", help="one-step or noisy-steps: count rounds instead of uses.")
]
RoundsOption = Annotated[int | None, typer.Option("--rounds", help="Rounds, with --rule. [default: 1]")]
StepsOption = Annotated[int | None, typer.Option("--local-steps", help="Of noisy-steps, each round. [default: 1]")]
GuaranteeOption = Annotated[
    str | None,
    typer.Option("--guarantee", help="Of noisy-steps: unconditional, joint-steps or naive. [default: unconditional]"),
]
TrialsOption = Annotated[int, typer.Option("--trials", help="Of poisson-binomial: coins a coordinate.")]
ThetaOption = Annotated[
    float, typer.Option("--theta", help="Of poisson-binomial: largest distance of a coin from 1/2.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw epsilon over the number of uses into this file (.pdf, .png, .svg).")
]


@app.command("epsilon")
def epsilon_command(
    *,
    mechanism: MechanismOption = "gaussian",
    noise_multiplier: NoiseOption = None,
    share_multiplier: ShareOption = None,
    contributors: ContributorsOption = None,
    colluding: ColludingOption = 0,
    sampling_rate: RateOption = 1.0,
    uses: UsesOption = None,
    rule: RuleOption = None,
    rounds: RoundsOption = None,
    local_steps: StepsOption = None,
    guarantee: GuaranteeOption = None,
    sensitivity_l2: L2Option = 10000.0,
    dim: DimOption = 1,
    trials: TrialsOption = 64,
    theta: ThetaOption = 0.25,
    delta: DeltaOption = 1e-5,
    accountant: AccountantOption = AccountantName.auto,
    conversion: ConversionOption = ConversionName.tight,
    plot: PlotOption = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Epsilon of a number of releases with a given noise."""
    options = locals()  # Typer reads the signature; what the release is, `Releases` picks from it
    asked, prove = Releases.of(options), Prover(delta, accountant.value, conversion.value)
    share, count = _share(asked, noise_multiplier, share_multiplier), _count(asked, uses, rounds)
    asked.check_sampler(share)
    event = asked.event(share, count)
    bound, method = prove.epsilon(event)
    _check_finite(bound)
    note(f"event: {event}", quiet=quiet or not verbose)
    if plot is not None:
        _plot(plot, asked, share, count, prove)
        note(f"drawn: {plot}", quiet=quiet)
    _print_epsilon(asked, share, count, prove, (bound, method), json=json)


def _print_epsilon(
    asked: Releases, share: float, count: int, prove: Prover, found: tuple[Bound, str], *, json: bool
) -> None:
    bound, method = found
    both = _both(asked, share, count, prove)
    if json:
        keys = {"epsilon": _pair(bound), "accountant": method, "assumption": asked.assumption}
        print_json(keys | _keys(both))
        return
    with_noise = "" if asked.mechanism == BINOMIAL else f" with noise multiplier {asked.total(share):.6g}"
    _say(
        f"{_releases(asked, count)}{with_noise}{_batches(asked.sampling_rate)} "
        f"{'is' if count == 1 else 'are'} ({up(bound.upper)}, {prove.delta:g})-differentially private.",
        f"{_bracket(bound)} Proved by: {method}.",
        asked.assumption,
        *_sentences(both),
    )


@app.command("noise")
def noise_command(
    *,
    epsilon: EpsilonOption,
    mechanism: MechanismOption = "gaussian",
    contributors: ContributorsOption = None,
    colluding: ColludingOption = 0,
    sampling_rate: RateOption = 1.0,
    uses: UsesOption = None,
    rule: RuleOption = None,
    rounds: RoundsOption = None,
    local_steps: StepsOption = None,
    guarantee: GuaranteeOption = None,
    sensitivity_l2: L2Option = 10000.0,
    dim: DimOption = 1,
    delta: DeltaOption = 1e-5,
    accountant: AccountantOption = AccountantName.auto,
    conversion: ConversionOption = ConversionName.tight,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Smallest noise with which a number of releases meets a promise."""
    options = locals() | {"trials": 1, "theta": 0.25}  # no use of theirs: poisson-binomial is refused
    asked, prove = Releases.of(options), Prover(delta, accountant.value, conversion.value)
    if mechanism == BINOMIAL:
        raise ConfigError("poisson-binomial has coins instead of noise.", "Try --trials and --theta with epsilon.")
    count = _count(asked, uses, rounds)
    share = prove.noise(lambda share: asked.event(share, count), epsilon)
    asked.check_sampler(share)
    event = asked.event(share, count)
    bound, _ = prove.epsilon(event)
    note("Nothing is released, so no noise is needed.", quiet=quiet or share > 0)
    note(f"event: {event}", quiet=quiet or not verbose)
    _print_noise(asked, share, count, prove, (bound, epsilon), json=json)


def _print_noise(
    asked: Releases, share: float, count: int, prove: Prover, found: tuple[Bound, float], *, json: bool
) -> None:
    bound, epsilon = found
    both, z = _both(asked, share, count, prove), asked.total(share)
    if json:
        keys = {"noise_multiplier": z, "share_multiplier": share, "epsilon": _pair(bound)}
        print_json(keys | _keys(both))
        return
    honest = asked.honest
    _say(
        f"{_releases(asked, count)}{_batches(asked.sampling_rate)} {'needs' if count == 1 else 'need'} noise "
        f"multiplier {up(z)} for ({epsilon:g}, {prove.delta:g})-differential privacy: share multiplier {up(share)} "
        f"from each of {honest} honest contributor{'s' if honest > 1 else ''}.",
        f"That reaches epsilon {up(bound.upper)}.",
        asked.assumption,
        *_sentences(both),
    )


@app.command("rounds")
def rounds_command(
    *,
    epsilon: EpsilonOption,
    mechanism: MechanismOption = "gaussian",
    noise_multiplier: NoiseOption = None,
    share_multiplier: ShareOption = None,
    contributors: ContributorsOption = None,
    colluding: ColludingOption = 0,
    sampling_rate: RateOption = 1.0,
    rule: RuleOption = None,
    local_steps: StepsOption = None,
    guarantee: GuaranteeOption = None,
    sensitivity_l2: L2Option = 10000.0,
    dim: DimOption = 1,
    trials: TrialsOption = 64,
    theta: ThetaOption = 0.25,
    delta: DeltaOption = 1e-5,
    accountant: AccountantOption = AccountantName.auto,
    conversion: ConversionOption = ConversionName.tight,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Largest number of releases (rounds, with --rule) with a given noise that meets a promise."""
    options = locals()
    asked, prove = Releases.of(options), Prover(delta, accountant.value, conversion.value)
    share = _share(asked, noise_multiplier, share_multiplier)
    asked.check_sampler(share)
    count = prove.uses(lambda n: asked.event(share, n), epsilon)
    note(f"event: {asked.event(share, count)}", quiet=quiet or not verbose)
    _print_rounds(asked, share, count, prove, (prove.epsilon(asked.event(share, count))[0], epsilon), json=json)


def _print_rounds(
    asked: Releases, share: float, count: int, prove: Prover, found: tuple[Bound, float], *, json: bool
) -> None:
    from cosilo.accounting import MOST_USES

    bound, epsilon = found
    both = _both(asked, share, count, prove)
    if json:
        keys = {"uses": count, "epsilon": _pair(bound)}
        print_json(keys | _keys(both))
        return
    most = {0: "Not even one, at most", MOST_USES: "At least"}.get(count, "At most")  # more are not considered
    with_noise = "" if asked.mechanism == BINOMIAL else f" with noise multiplier {asked.total(share):.6g}"
    _say(
        f"{most} {_releases(asked, count)}{with_noise}{_batches(asked.sampling_rate)} "
        f"{'meets' if count == 1 else 'meet'} ({epsilon:g}, {prove.delta:g})-differential privacy.",
        f"They reach epsilon {up(bound.upper)}.",
        asked.assumption,
        *_sentences(both),
    )


def _count(asked: Releases, uses: int | None, rounds: int | None) -> int:
    """Rounds where there is a rule, uses where there is none."""
    if uses is not None and asked.rule is not None:
        raise ConfigError("A rule counts rounds, not uses.", "Give --rounds instead of --uses.")
    if rounds is not None and asked.rule is None:
        raise ConfigError("Rounds belong to a rule.", "Give --uses, or --rule one-step or noisy-steps.")
    given = uses if asked.rule is None else rounds
    return 1 if given is None else given


def _share(asked: Releases, noise: float | None, share: float | None) -> float:
    """One contributor's noise sd / l2 sensitivity from whichever of the two options was given."""
    if asked.mechanism == BINOMIAL:
        if noise is not None or share is not None:
            raise ConfigError("poisson-binomial has coins instead of noise.", "Give --trials and --theta.")
        return 0.0
    if (noise is None) == (share is None):
        raise ConfigError(
            "The noise is given twice." if noise is not None else "The noise is missing.",
            "Give either --noise-multiplier, or --share-multiplier with --contributors.",
        )
    if noise is not None and (asked.contributors is not None or asked.colluding != 0):
        raise ConfigError(
            "--noise-multiplier is the noise of all honest contributors together already.",
            "Leave --contributors and --colluding out, or give --share-multiplier.",
        )
    option, value = ("--noise-multiplier", noise) if noise is not None else ("--share-multiplier", share)
    if value is None or not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{option} must be finite and > 0, got {value}.", "Without noise there is no epsilon.")
    return value


def _both(asked: Releases, share: float, count: int, prove: Prover) -> dict[str, Bound]:
    """For noisy-steps: what holds for every loss, and what the joint-steps claim would be; never one alone."""
    if not asked.local:
        return {}
    return {name: prove.epsilon(asked.event(share, count, name))[0] for name in ("unconditional", "joint-steps")}


def _keys(both: dict[str, Bound]) -> dict[str, float | None]:
    """JSON has no infinity: null says that nothing finite is proved."""
    found = {f"epsilon_{name.replace('-', '_')}": b.upper for name, b in both.items()}
    return {key: value if math.isfinite(value) else None for key, value in found.items()}


def _sentences(both: dict[str, Bound]) -> list[str]:
    if not both:
        return []
    return [
        f"Unconditional: epsilon {up(both['unconditional'].upper)}; it assumes nothing about model or loss.",
        f"Joint steps: epsilon {up(both['joint-steps'].upper)}, only if {JOINT_STEPS_NEED}.",
    ]


def _check_finite(bound: Bound) -> None:
    if math.isinf(bound.upper):
        raise ConfigError("No finite epsilon can be proved at this delta.", "Use more noise, or --accountant auto.")


def _pair(bound: Bound) -> dict[str, Any]:
    return {"lower": bound.lower, "upper": bound.upper}


def _releases(asked: Releases, count: int) -> str:
    if asked.rule is None:
        return f"{count} release{'' if count == 1 else 's'}"
    steps = f" of {asked.steps} local step{'' if asked.steps == 1 else 's'}" if asked.local else ""
    return f"{count} {asked.rule} round{'' if count == 1 else 's'}{steps}"


def _batches(sampling_rate: float) -> str:
    return "" if sampling_rate == 1 else f" on batches sampled at rate {sampling_rate:g}"


def _bracket(bound: Bound) -> str:
    if bound.lower is None:
        return "How much smaller the true epsilon is, is not known."
    if bound.lower == bound.upper:
        return "That is exact."
    return f"The true epsilon lies between {bound.lower:.4g} and {up(bound.upper)}."


def _say(*sentences: str) -> None:
    console = stdout()
    for sentence in sentences:
        console.print(sentence, markup=False, soft_wrap=True)


def _plot(path: Path, asked: Releases, share: float, count: int, prove: Prover) -> None:
    """Epsilon over the number of uses: upper bound as a line, the bracket below it shaded."""
    closed = asked.sampling_rate == 1 and prove.accountant == "auto" and prove.conversion == "tight"
    points = min(max(count, 1), _PLOT_POINTS if closed else _SAMPLED_PLOT_POINTS)
    counts = sorted({max(1, round(count * (k + 1) / points)) for k in range(points)})
    bounds = [prove.epsilon(asked.event(share, n))[0] for n in counts]
    lines = [b.upper for b in bounds], [b.upper if b.lower is None else b.lower for b in bounds]
    noise = "" if asked.mechanism == BINOMIAL else f"noise multiplier {asked.total(share):.4g}, "
    markers = len(counts) <= _SAMPLED_PLOT_POINTS
    draw(
        path,
        counts,
        lines,
        markers=markers,
        unit="uses" if asked.rule is None else f"rounds of {asked.rule}",
        title=f"{noise}sampling rate {asked.sampling_rate:g}, delta {prove.delta:g}",
    )
