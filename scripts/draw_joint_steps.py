"""Draw docs/joint-steps.svg: what joint-steps claims and what is true, over the number of local steps.

python scripts/draw_joint_steps.py [file.svg|file.png]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from cosilo.audit import ErasedNoise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

EPSILON, DELTA = 1.0, 1e-5
STEPS = sorted({round(s) for s in np.geomspace(2, 500, 60)})
# Okabe and Ito's palette, and a dash of its own for every line: told apart without colour vision and in grey
SILOS = {10: ("#0072B2", "o"), 50: ("#D55E00", "s")}


def _lines(axes: Axes, silos: int, colour: str, marker: str) -> None:
    examples = [ErasedNoise.claiming(EPSILON, DELTA, silos=silos, steps=steps) for steps in STEPS]
    true = [example.true_epsilon(DELTA) for example in examples]
    safe = [example.unconditional_epsilon(DELTA) for example in examples]
    axes.plot(STEPS, true, color=colour, marker=marker, markersize=4, markevery=6, label=f"true, N = {silos}")
    axes.plot(STEPS, safe, color=colour, linestyle="--", linewidth=1.2, label=f"unconditional, N = {silos}")


def draw(path: Path) -> None:
    """Epsilon at delta = 1e-5 where the noise is what joint-steps asks for (1, 1e-5)."""
    style = {"font.size": 10, "svg.hashsalt": "joint-steps", "svg.fonttype": "path"}
    with mpl.rc_context(style):
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.add_subplot()
        for silos, (colour, marker) in reversed(SILOS.items()):
            _lines(axes, silos, colour, marker)
        axes.axhline(EPSILON, color="black", linestyle=":", linewidth=1.8, label="claimed by joint-steps")
        axes.set(xscale="log", yscale="log", xlabel="local steps S per round", xlim=(2, STEPS[-1]), ylim=(0.8, 14))
        axes.set_ylabel(r"$\varepsilon$ at $\delta = 10^{-5}$, one round")
        axes.set_xticks([2, 5, 10, 20, 50, 100, 200, 500], ["2", "5", "10", "20", "50", "100", "200", "500"])
        axes.set_yticks([1, 2, 3, 5, 10], ["1", "2", "3", "5", "10"])
        axes.minorticks_off()
        axes.grid(visible=True, linewidth=0.4, alpha=0.5)
        figure.legend(*axes.get_legend_handles_labels(), frameon=False, loc="outside upper center", ncols=2)
        figure.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "joint-steps.svg")
