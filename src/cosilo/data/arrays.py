"""Ready arrays from a silo: (x, y), or a torch Dataset of (x, y) pairs, from memory or from the silo's loader.

Whatever a loader raises is reported by its type only: exception texts carry data, and error texts can leave the
silo.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cosilo.data.rows import Rows
from cosilo.errors import DataError
from cosilo.job import find_function, importable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

__all__ = ["call_loader", "check_mapping", "read_arrays"]

_SHAPES = "(x, y) with x of shape (rows, features...) and y of shape (rows,), or a torch Dataset of such pairs"


def call_loader(loader: str, silos: Iterable[str], folder: str | None) -> dict[str, Any]:
    """`{name: function(name)}` for `loader` = "pkg.module:function", also looked for in the job's `folder`.

    A torch Dataset is read inside, so that imports it does late are found as well.
    """
    function = find_function("data.loader", loader, folder)
    with importable(folder):
        return {name: _materialised(_called(function, loader, name), name) for name in silos}


def check_mapping(given: object) -> None:
    """`given` maps names to rows, whatever these are.

    Raises:
        DataError: it is something else, or empty, or has a key that is not a text.
    """
    fix = f"Pass silos={{name: rows}}, rows being {_SHAPES}."
    if not isinstance(given, Mapping):
        raise DataError(f"silos= is of type {type(given).__name__}, not a mapping from names to rows.", fix)
    if not given or not all(isinstance(name, str) for name in given):
        raise DataError("silos= has no silo, or one whose name is not a text.", fix)


def read_arrays(given: Mapping[str, Any], classes: int) -> dict[str, Rows]:
    """Checked rows per silo, sorted by name: finite float32 features of one shape, classes 0 to `classes` - 1.

    Raises:
        DataError: names the silo and what to mend, never a value.
    """
    rows = {name: _rows(name, _materialised(given[name], name), classes) for name in sorted(given)}
    first, *others = rows
    for name in others:
        if rows[name].x.shape[1:] != rows[first].x.shape[1:]:
            raise DataError(
                f"Silos {first!r} and {name!r} have features of shapes "
                f"{rows[first].x.shape[1:]} and {rows[name].x.shape[1:]}.",
                "Give every silo the same features.",
            )
    return rows


def _called(function: Callable[..., Any], loader: str, name: str) -> Any:  # noqa: ANN401 - user code
    try:
        return function(name)
    except Exception as error:
        # Its text may quote a row: it is chained for --debug at the silo, never quoted.
        raise DataError(
            f"data.loader: {loader}({name!r}) raised {type(error).__name__}.", "Run with --debug to see where."
        ) from error


def _materialised(given: Any, name: str) -> tuple[Any, Any]:  # noqa: ANN401 - user data
    """(x, y) as given, or collected from a Dataset by `len` and `[]`."""
    if given is None:
        raise DataError(f"Silo {name!r} brought None instead of rows.", f"Give {_SHAPES}.")
    if isinstance(given, tuple) and len(given) == 2:  # noqa: PLR2004 - x and y
        return given
    if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        raise DataError(f"Silo {name!r} brought an object of type {type(given).__name__}.", f"Give {_SHAPES}.")
    try:
        pairs = [given[i] for i in range(len(given))]
        x = np.stack([np.asarray(x, dtype=np.float32) for x, _ in pairs]) if pairs else np.empty((0, 1))
        return x, np.asarray([np.asarray(y).item() for _, y in pairs] or np.empty(0, np.int64))
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        raise DataError(
            f"Reading the rows of silo {name!r} one by one raised {type(error).__name__}.", f"Give {_SHAPES}."
        ) from None


def _rows(name: str, given: tuple[Any, Any], classes: int) -> Rows:
    x, y = _features(name, given[0]), _labels(name, given[1], classes)
    if len(x) != len(y):
        raise DataError(f"In silo {name!r} x and y differ in their number of rows.", "Give every row its y.")
    return Rows(x, y)


def _features(name: str, given: Any) -> NDArray[np.float32]:  # noqa: ANN401 - user data
    try:
        raw = np.asarray(given)
        if raw.dtype.kind not in "biufO":
            raise TypeError  # noqa: TRY301 - the same sentence as for objects that are not numbers
        with np.errstate(over="ignore"):  # too large for float32 becomes inf, refused below
            x = np.ascontiguousarray(raw, dtype=np.float32)
    except Exception as error:  # noqa: BLE001 - any object's conversion
        raise DataError(
            f"The features of silo {name!r} are not an array of numbers ({type(error).__name__}).", f"Give {_SHAPES}."
        ) from None
    if raw.ndim < 2 or 0 in raw.shape[1:]:  # noqa: PLR2004 - rows and features
        raise DataError(
            f"The x of silo {name!r} has no features (shape (rows, {str(raw.shape[1:])[1:-1]})).", f"Give {_SHAPES}."
        )
    if not np.isfinite(x).all():
        raise DataError(
            f"Silo {name!r} has features that are nan, inf or beyond float32.",
            "Replace them by a public constant or leave those rows out.",
        )
    return x


def _labels(name: str, given: Any, classes: int) -> NDArray[np.int64]:  # noqa: ANN401 - user data
    try:
        y = np.asarray(given)
    except Exception as error:  # noqa: BLE001 - any object's conversion
        raise DataError(
            f"The y of silo {name!r} is not an array ({type(error).__name__}).", f"Give {_SHAPES}."
        ) from None
    if y.ndim != 1 or y.dtype.kind not in "biu":
        how = ": y.astype(int)" if y.dtype.kind == "f" else ""
        raise DataError(
            f"The y of silo {name!r} is not a vector of whole numbers (dtype {y.dtype}, {y.ndim} axes).",
            f"Give class indices 0, 1, ... of an integer dtype, one per row{how}.",
        )
    if ((y < 0) | (y >= classes)).any():
        raise DataError(
            f"Silo {name!r} has classes outside 0 to {classes - 1}.",
            "Set [data] classes to the number of classes (it defaults to 2), or mend y.",
        )
    return y.astype(np.int64)
