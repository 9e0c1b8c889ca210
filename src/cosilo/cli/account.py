"""`cosilo account epsilon | noise | rounds`: privacy of given numbers, without any data."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosilo.cli.console import DebugFlag, JsonFlag, QuietFlag, VerboseFlag, note, print_json, stdout
from cosilo.errors import ConfigError
from cosilo.privacy import up

if TYPE_CHECKING:
    from cosilo.privacy import Bound, Event

__all__ = ["app"]

app = typer.Typer(help="Privacy of given numbers, without any data.", no_args_is_help=True)

_PLOT_POINTS = 200  # of a closed form, microseconds each
_SAMPLED_PLOT_POINTS = 12  # a tenth of a second each


class AccountantName(StrEnum):
    """What proves the bound."""

    auto = "auto"
    rdp = "rdp"
    pld = "pld"


MechanismOption = Annotated[str, typer.Option("--mechanism", help="What is released: gaussian.")]
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
UsesOption = Annotated[int, typer.Option("--uses", help="Number of releases.")]
EpsilonOption = Annotated[float, typer.Option("--epsilon", help="The promise.")]
DeltaOption = Annotated[float, typer.Option("--delta", help="The promise; use less than 1 / rows.")]
AccountantOption = Annotated[AccountantName, typer.Option("--accountant", help="What proves the bound.")]
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
    uses: UsesOption = 1,
    delta: DeltaOption = 1e-5,
    accountant: AccountantOption = AccountantName.auto,
    plot: PlotOption = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Epsilon of a number of releases with a given noise."""
    del debug  # read by main
    from cosilo.accounting import epsilon_and_method

    _check_mechanism(mechanism)
    z = _noise_multiplier(noise_multiplier, share_multiplier, contributors, colluding)
    event = _event(z, sampling_rate, uses)
    bound, method = epsilon_and_method(event, delta, accountant.value)
    _check_finite(bound)
    note(f"event: {event}", quiet=quiet or not verbose)
    if plot is not None:
        _plot(plot, z, sampling_rate, uses, delta, accountant)
        note(f"drawn: {plot}", quiet=quiet)
    assumption = _assumption(sampling_rate, contributors, colluding)
    if json:
        print_json({"epsilon": _pair(bound), "accountant": method, "assumption": assumption})
        return
    _say(
        f"{_releases(uses)} with noise multiplier {z:.6g}{_batches(sampling_rate)} "
        f"{'is' if uses == 1 else 'are'} ({up(bound.upper)}, {delta:g})-differentially private.",
        f"{_bracket(bound)} Proved by: {method}.",
        assumption,
    )


@app.command("noise")
def noise_command(
    *,
    epsilon: EpsilonOption,
    mechanism: MechanismOption = "gaussian",
    contributors: ContributorsOption = None,
    colluding: ColludingOption = 0,
    sampling_rate: RateOption = 1.0,
    uses: UsesOption = 1,
    delta: DeltaOption = 1e-5,
    accountant: AccountantOption = AccountantName.auto,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Smallest noise with which a number of releases meets a promise."""
    del debug  # read by main
    from cosilo.accounting import calibrate_noise
    from cosilo.accounting import epsilon as account

    _check_mechanism(mechanism)
    honest = _honest(contributors, colluding)
    z = calibrate_noise(
        lambda z: _event(z, sampling_rate, uses), epsilon=epsilon, delta=delta, accountant=accountant.value
    )
    event = _event(z, sampling_rate, uses)
    bound = account(event, delta, accountant.value)
    note("Nothing is released, so no noise is needed.", quiet=quiet or z > 0)
    note(f"event: {event}", quiet=quiet or not verbose)
    share = z / math.sqrt(honest)
    if json:
        print_json({"noise_multiplier": z, "share_multiplier": share, "epsilon": _pair(bound)})
        return
    _say(
        f"{_releases(uses)}{_batches(sampling_rate)} {'needs' if uses == 1 else 'need'} noise multiplier {up(z)} "
        f"for ({epsilon:g}, {delta:g})-differential privacy: share multiplier {up(share)} from each of {honest} "
        f"honest contributor{'s' if honest > 1 else ''}.",
        f"That reaches epsilon {up(bound.upper)}.",
        _assumption(sampling_rate, contributors, colluding),
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
    delta: DeltaOption = 1e-5,
    accountant: AccountantOption = AccountantName.auto,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    debug: DebugFlag = False,
) -> None:
    """Largest number of releases with a given noise that meets a promise."""
    del debug  # read by main
    from cosilo.accounting import MOST_USES, calibrate_uses
    from cosilo.accounting import epsilon as account

    _check_mechanism(mechanism)
    z = _noise_multiplier(noise_multiplier, share_multiplier, contributors, colluding)
    uses = calibrate_uses(
        lambda n: _event(z, sampling_rate, n), epsilon=epsilon, delta=delta, accountant=accountant.value
    )
    event = _event(z, sampling_rate, uses)
    bound = account(event, delta, accountant.value)
    note(f"event: {event}", quiet=quiet or not verbose)
    if json:
        print_json({"uses": uses, "epsilon": _pair(bound)})
        return
    most = {0: "Not even one, at most", MOST_USES: "At least"}.get(uses, "At most")  # more are not considered
    _say(
        f"{most} {_releases(uses)} with noise multiplier {z:.6g}{_batches(sampling_rate)} "
        f"{'meets' if uses == 1 else 'meet'} ({epsilon:g}, {delta:g})-differential privacy.",
        f"They reach epsilon {up(bound.upper)}.",
        _assumption(sampling_rate, contributors, colluding),
    )


def _check_mechanism(mechanism: str) -> None:
    from cosilo.mechanisms import MECHANISMS

    if mechanism not in MECHANISMS:
        raise ConfigError(f"There is no mechanism {mechanism!r}.", f"Choose from: {', '.join(MECHANISMS)}.")


def _honest(contributors: int | None, colluding: int) -> int:
    total = 1 if contributors is None else contributors
    if colluding < 0:
        raise ConfigError(
            f"--colluding must be at least 0, got {colluding}.", "Count the silos that share their noise."
        )
    if total - colluding < 1:
        raise ConfigError(
            f"At least one contributor must be honest, got {total} contributors of whom {colluding} collude.",
            "Give --contributors larger than --colluding.",
        )
    return total - colluding


def _noise_multiplier(noise: float | None, share: float | None, contributors: int | None, colluding: int) -> float:
    """Total honest noise sd / l2 sensitivity from whichever of the two options was given."""
    if (noise is None) == (share is None):
        raise ConfigError(
            "The noise is given twice." if noise is not None else "The noise is missing.",
            "Give either --noise-multiplier, or --share-multiplier with --contributors.",
        )
    if noise is not None and (contributors is not None or colluding != 0):
        raise ConfigError(
            "--noise-multiplier is the noise of all honest contributors together already.",
            "Leave --contributors and --colluding out, or give --share-multiplier.",
        )
    option, value = ("--noise-multiplier", noise) if noise is not None else ("--share-multiplier", share)
    if value is None or not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{option} must be finite and > 0, got {value}.", "Without noise there is no epsilon.")
    return value if noise is not None else value * math.sqrt(_honest(contributors, colluding))


def _event(z: float, sampling_rate: float, uses: int) -> Event:
    from cosilo.privacy import Gaussian, PoissonSampled, Repeated

    return Repeated(uses, PoissonSampled(sampling_rate, Gaussian(z)))


def _check_finite(bound: Bound) -> None:
    if math.isinf(bound.upper):
        raise ConfigError("No finite epsilon can be proved at this delta.", "Use more noise, or --accountant auto.")


def _pair(bound: Bound) -> dict[str, Any]:
    return {"lower": bound.lower, "upper": bound.upper}


def _assumption(sampling_rate: float, contributors: int | None, colluding: int) -> str:
    parts = ["Neighbours differ by adding or removing one row", "every use adds fresh Gaussian noise"]
    if sampling_rate < 1:
        parts.append(f"every row enters each use by its own secret coin of probability {sampling_rate:g}")
    if contributors is not None:
        parts.append(f"the observer sees sums only, and knows the noise of at most {colluding} of {contributors} silos")
    return "; ".join(parts) + "."


def _releases(uses: int) -> str:
    return f"{uses} release{'' if uses == 1 else 's'}"


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


def _plot(path: Path, z: float, sampling_rate: float, uses: int, delta: float, accountant: AccountantName) -> None:
    """Epsilon over the number of uses: upper bound as a line, the bracket below it shaded."""
    from cosilo.accounting import epsilon as account

    most = _SAMPLED_PLOT_POINTS if sampling_rate < 1 or accountant != AccountantName.auto else _PLOT_POINTS
    points = min(max(uses, 1), most)
    counts = sorted({max(1, round(uses * (k + 1) / points)) for k in range(points)})
    bounds = [account(_event(z, sampling_rate, n), delta, accountant.value) for n in counts]
    lines = [b.upper for b in bounds], [b.upper if b.lower is None else b.lower for b in bounds]
    title = f"noise multiplier {z:.4g}, sampling rate {sampling_rate:g}, delta {delta:g}"
    _draw(path, counts, lines, title)


def _draw(path: Path, counts: list[int], lines: tuple[list[float], list[float]], title: str) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    blue = "#0072B2"  # Okabe and Ito's palette: told apart without colour vision and in grey
    with mpl.rc_context({"font.size": 9, "pdf.fonttype": 42}):
        figure = Figure(figsize=(5.0, 3.2), layout="constrained")
        axes = figure.add_subplot()
        marker = "o" if len(counts) <= _SAMPLED_PLOT_POINTS else ""
        axes.plot(counts, lines[0], color=blue, marker=marker, markersize=3, label="promise (upper bound)")
        if lines[0] != lines[1]:
            axes.fill_between(counts, lines[1], lines[0], color=blue, alpha=0.25, label="where the true value lies")
        axes.set(xlabel="uses (add or remove one row)", ylabel="epsilon", title=title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, linewidth=0.4, alpha=0.5)
        axes.legend(frameon=False)
        try:
            figure.savefig(path, dpi=200)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"The plot cannot be written to {path}: {error}.", "Give a writable .pdf, .png or .svg."
            ) from error
