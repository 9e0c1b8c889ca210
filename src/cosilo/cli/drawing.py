"""The plot of `cosilo account epsilon`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosilo.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["draw"]


def draw(
    path: Path, counts: list[int], lines: tuple[list[float], list[float]], *, markers: bool, unit: str, title: str
) -> None:
    """Upper line and shaded bracket below it; the ending of `path` names the format.

    Args:
        path: .pdf, .png or .svg.
        counts: numbers of uses, shape (n,).
        lines: upper bounds and lower bounds, (n,) each.
        unit: what is counted.
        markers: whether every number of uses is marked.
        title: above the axes.

    Raises:
        ConfigError: the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    blue = "#0072B2"  # Okabe and Ito's palette: told apart without colour vision and in grey
    with mpl.rc_context({"font.size": 9, "pdf.fonttype": 42}):
        figure = Figure(figsize=(5.0, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(
            counts, lines[0], color=blue, marker="o" if markers else "", markersize=3, label="promise (upper bound)"
        )
        if lines[0] != lines[1]:
            axes.fill_between(counts, lines[1], lines[0], color=blue, alpha=0.25, label="where the true value lies")
        axes.set(xlabel=f"{unit} (add or remove one row)", ylabel="epsilon", title=title)
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
