"""What the rest of cosilo sees of data: rows as arrays, and what was learnt about them while encoding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cosilo.data.encoding import Encoding

__all__ = ["Counts", "FederatedRows", "Rows"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Features `x`, float32 of shape (n, ...), and class indices `y`, int64 of shape (n,)."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    def take(self, mask: NDArray[np.bool_]) -> Rows:
        """The rows where `mask`, of shape (n,), is true, in their order."""
        return Rows(self.x[mask], self.y[mask])

    @staticmethod
    def concatenate(parts: list[Rows]) -> Rows:
        """All rows of `parts` (at least one, all of the same feature shape), in their order."""
        return Rows(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What happened to one silo's rows on their way in. Private: it stays at the silo.

    `rows` are trained on, `held_out` tested on, `dropped` left out (no target, or an empty cell whose column says
    missing = "drop"). `clamped` and `unknown` count, per column, the cells of rows that were kept outside
    [low, high] and outside the levels; for the target, `unknown` counts rows, which are among the dropped. Columns
    without such cells are not listed. `doubtful` are the columns of which these are at least half of the non-empty
    cells: table and schema hardly mean the same.
    """

    rows: int
    held_out: int = 0
    dropped: int = 0
    clamped: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    doubtful: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedRows:
    """Everything a run needs of its data, every dictionary in the same sorted order of silos.

    `silos` holds private training rows. `test` holds held-out rows of all silos, public by declaration; None
    when none are held out. `capacities` and `classes` come from the job or the catalogue, never from rows.
    `encoding` says how columns became features; None where the silos brought ready arrays.
    """

    silos: dict[str, Rows]
    test: Rows | None
    capacities: dict[str, int]
    encoding: Encoding | None
    classes: int
    counts: dict[str, Counts]

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one row's features."""
        first: tuple[Any, ...] = next(iter(self.silos.values())).x.shape
        return first[1:]
