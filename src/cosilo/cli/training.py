"""What `run` and `resume` share: progress while rounds pass, and the result at the end."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self

from cosilo.cli.console import note, print_json, stderr, stdout
from cosilo.errors import InterruptedRunError
from cosilo.privacy import up

if TYPE_CHECKING:
    from types import TracebackType

    from cosilo.engines import Round, Run

__all__ = ["Progress", "show"]


class Progress(AbstractContextManager["Progress"]):
    """One line on stderr: rounds, time left, epsilon spent, test metric; a line a round with -v."""

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._verbose = verbose
        self._bar = Progress(
            TextColumn("rounds"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=stderr(),
            disable=quiet or verbose,
        )
        self._task = self._bar.add_task("reading rows ...", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.live.transient = kind is not None  # an error stands alone
        self._bar.stop()
        if kind is KeyboardInterrupt:  # later ones are the engine's
            raise InterruptedRunError(
                "No round had begun; nothing more was released.", "Run the same command again."
            ) from None

    def __call__(self, report: Round) -> None:
        """Show a finished round."""
        parts = [f"{report.eta:.0f} s left", f"epsilon {up(report.epsilon_spent)} of {up(report.epsilon)}"]
        parts += [f"test {_metric(name, value)}" for name, value in _headline(report.test or {}).items()]
        self._bar.update(self._task, total=report.rounds, completed=report.round, description=", ".join(parts))
        if self._verbose:
            note(f"round {report.round}/{report.rounds}: {report.survivors} silos, {', '.join(parts)}")


def show(run: Run, *, json: bool) -> None:
    """The result: JSON for programs, sentences for people."""
    if json:
        print_json(
            {
                "run": str(run.path),
                "metrics": run.metrics,
                "privacy": run.privacy,
                "seconds": run.seconds,
                "mib_per_silo": run.mib_per_silo,
            }
        )
        return
    console = stdout()
    lines = (_reached(run), _guaranteed(run.privacy), _by_guarantee(run.privacy), _seen_by_others(run.privacy))
    for line in (*lines, _where(run)):
        if line:
            console.print(line, markup=False)


def _where(run: Run) -> str:
    return f"Everything is in {run.path}/; silos.json there is each silo's private log and must stay with it."


def _reached(run: Run) -> str:
    test = run.metrics.get("test")
    what = ", ".join(f"test {_metric(*pair)}" for pair in test.items()) if test else "no public test rows"
    return f"Reached: {what}, in {run.seconds:.1f} s and {_size(run.mib_per_silo)} a silo."


def _size(mib: float) -> str:
    return f"{mib:.1f} MiB" if mib >= 1 else f"{1024 * mib:.1f} KiB"


def _guaranteed(privacy: dict[str, Any]) -> str:
    seeded = "" if privacy["entropy"] == "system" else " SIMULATION: the noise was seeded, so this holds for nobody."
    return (
        f"Guaranteed to every single training {privacy['unit']} (add or remove one), against the {privacy['against']}, "
        f"{privacy['guarantee']}: "
        f"epsilon = {up(privacy['epsilon'])} at delta = {privacy['delta']:g}, for all models of "
        f"{privacy['rounds']['planned']} rounds together ({privacy['rule']}, {privacy['mechanism']} noise, "
        f"noise multiplier {privacy['noise_multiplier']:.4g}); what that rests on is in privacy.json.{seeded}"
    )


def _by_guarantee(privacy: dict[str, Any]) -> str:
    """Both numbers of a rule with local steps; empty for others."""
    joint = privacy["epsilon_joint_steps"]
    if joint is None:
        return ""
    return (
        f"Unconditional: epsilon = {_epsilon(privacy['epsilon_unconditional'])} whatever model and loss are. "
        f"Joint-steps: epsilon = {up(joint)} if every gradient is evaluated at a function of released sums, which "
        f"{privacy['local_steps']} local steps {'do not satisfy' if privacy['local_steps'] > 1 else 'satisfies'}."
    )


def _seen_by_others(privacy: dict[str, Any]) -> str:
    against = privacy["epsilon_against"]
    return (
        f"The same noise gives epsilon = {_epsilon(against['outsider'])} against an outsider who sees the models "
        f"({privacy['colluding_silos']} of {privacy['silos']} silos colluding), {_epsilon(against['server'])} against "
        f"the server, {_epsilon(against['local'])} by one silo's own noise alone."
    )


def _epsilon(value: float | None) -> str:
    return "infinity" if value is None else up(value)


def _metric(name: str, value: float | None) -> str:
    return f"{name} {value:.4f}" if value is not None else f"{name} not finite"


def _headline(test: dict[str, float | None]) -> dict[str, float | None]:
    name = "auc" if "auc" in test else "accuracy"
    return {name: test[name]} if name in test else {}
