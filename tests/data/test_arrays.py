from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosilo.data import from_arrays, load
from cosilo.errors import ConfigError, DataError
from cosilo.job import Job

MakeJob = Callable[..., Job]

X = np.arange(12, dtype=np.float64).reshape(4, 3)
Y = np.array([0, 1, 1, 0])
CAPACITY = {"capacity": 10}


class Pairs:
    """Stands for a torch Dataset: `len`, `[]`, items (x, y)."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.x[i], self.y[i]


def test_arrays_become_float32_rows_in_sorted_silos(make_job: MakeJob) -> None:
    found = from_arrays(make_job(CAPACITY), {"b": (X, Y), "a": (X[:2].tolist(), [True, False])})
    assert list(found.silos) == list(found.capacities) == list(found.counts) == ["a", "b"]
    assert found.silos["b"].x.dtype == np.float32
    assert found.silos["b"].y.dtype == np.int64
    np.testing.assert_array_equal(found.silos["b"].x, X)
    assert found.silos["a"].y.tolist() == [1, 0]
    assert (found.test, found.encoding, found.classes, found.feature_shape) == (None, None, 2, (3,))
    assert (found.counts["b"].rows, found.counts["b"].dropped) == (4, 0)


def test_a_dataset_is_read_row_by_row(make_job: MakeJob) -> None:
    found = from_arrays(make_job(CAPACITY), {"a": Pairs(X.reshape(4, 1, 3), Y)})
    assert found.silos["a"].x.shape == (4, 1, 3)
    assert found.silos["a"].y.tolist() == Y.tolist()


def test_a_torch_dataset_is_read(make_job: MakeJob) -> None:
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    found = from_arrays(make_job(CAPACITY), {"a": dataset, "b": (torch.tensor(X), torch.tensor(Y))})
    for name in "ab":
        np.testing.assert_array_equal(found.silos[name].x, X)
        assert found.silos[name].y.tolist() == Y.tolist()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, r"Silo 'a' brought None instead of rows\. Give \(x, y\)"),
        (3, r"Silo 'a' brought an object of type int\. Give \(x, y\)"),
        (([["secret"]], [0]), r"features of silo 'a' are not an array of numbers .* Give \(x, y\)"),
        (([[1], [1, 2]], [0, 1]), "not an array of numbers"),
        ((X * 1j, Y), "not an array of numbers"),
        ((X[:, 0], Y), r"The x of silo 'a' has no features .* Give \(x, y\)"),
        ((X[:, :0], Y), "no features"),
        ((X + np.nan, Y), r"Silo 'a' has features that are nan, inf or beyond float32\. Replace them"),
        ((X - np.inf, Y), "nan, inf"),
        ((X * 1e39, Y), "beyond float32"),
        (
            (X, Y * 1.0),
            r"The y of silo 'a' is not a vector of whole numbers \(dtype float64, 1 axes\)\. .*: y\.astype\(int\)\.$",
        ),
        ((X, Y[:, None]), "2 axes"),
        ((X, [[1], [1, 2]]), "The y of silo 'a' is not an array"),
        ((X, Y - 1), r"Silo 'a' has classes outside 0 to 1\. Set \[data\] classes"),
        ((X, Y * 2), "classes outside 0 to 1"),
        ((X, Y[:3]), "x and y differ in their number of rows"),
        ((X[:0], Y[:0]), r"Silo 'a' brought no rows\. Give it at least one row, or leave it out\.$"),
        (Pairs(X[:0], Y[:0]), "brought no rows"),
        (Pairs([X[0], X[0, :2]], [0, 1]), r"rows of silo 'a' one by one raised ValueError\. Give"),
        (Pairs(X, ["secret"] * 4), "not a vector of whole numbers"),
        ([X, Y], "one by one raised ValueError"),
    ],
)
def test_wrong_arrays_name_the_silo_and_the_remedy(make_job: MakeJob, given: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        from_arrays(make_job(CAPACITY), {"a": given})
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_silos_must_have_the_same_features(make_job: MakeJob) -> None:
    with pytest.raises(DataError, match=r"'a' and 'b' have features of shapes \(3,\) and \(2,\)\. Give every silo"):
        from_arrays(make_job(CAPACITY), {"a": (X, Y), "b": (X[:, :2], Y)})


@pytest.mark.parametrize("silos", [{}, {1: (X, Y)}])
def test_silos_need_names(make_job: MakeJob, silos: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"no silo, or one whose name is not a text\. Pass silos="):
        from_arrays(make_job(CAPACITY), silos)


@pytest.mark.parametrize("silos", [[(X, Y)], (X, Y), "a", X, 3])
@pytest.mark.parametrize("listed", [{}, {"a": {}}])
def test_silos_need_a_mapping(make_job: MakeJob, silos: Any, listed: dict[str, Any]) -> None:
    with pytest.raises(
        DataError, match=r"silos= is of type \w+, not a mapping from names to rows\. Pass silos={name: rows}"
    ):
        from_arrays(make_job(CAPACITY, silos=listed), silos)


def test_the_number_of_classes_comes_from_the_job(make_job: MakeJob) -> None:
    assert from_arrays(make_job(CAPACITY | {"classes": 4}), {"a": (X, Y)}).classes == 4


def test_arrays_and_another_source_contradict(make_job: MakeJob) -> None:
    job = make_job({"dataset": "flights", "target": "late"})
    with pytest.raises(DataError, match=r"\[data\] sets dataset, target, but .* Remove those keys, or"):
        from_arrays(job, {"a": (X, Y)})


def test_listed_silos_must_be_those_given(make_job: MakeJob) -> None:
    job = make_job(CAPACITY, silos={"a": {}})
    with pytest.raises(DataError, match=r"1 of the 2 silos in silos= have no \[silos\.NAME\] table in the job: 'b'\."):
        from_arrays(job, {"a": (X, Y), "b": (X, Y)})
    job = make_job(CAPACITY, silos={"a": {}, "north ward": {}})
    with pytest.raises(DataError, match=r"'north ward', .* is not among silos=\. Bring .* \[silos\.\"north ward\"\]"):
        from_arrays(job, {"a": (X, Y)})


LOADER = """
import numpy as np
fixed = 3
def good(name):
    import beside  # found late, while the loader runs
    return np.full((2, 1), len(name)), np.array([0, 1])
def bad(name):
    raise KeyError("secret")
def odd(name):
    return "secret"
def forgetful(name):
    pass
"""


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the working directory, which is not otherwise importable."""
    (tmp_path / "my_silo_rows.py").write_text(LOADER, encoding="utf-8")
    (tmp_path / "beside.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_silo_rows", raising=False)
    return "my_silo_rows"


def test_a_loader_beside_the_job_is_called_once_per_silo(make_job: MakeJob, loader: str) -> None:
    path = list(sys.path)
    found = load(make_job({"loader": f"{loader}:good"}, silos={"xy": CAPACITY, "a": CAPACITY}))
    assert {name: rows.x.tolist() for name, rows in found.silos.items()} == {"a": [[1], [1]], "xy": [[2], [2]]}
    assert sys.path == path


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "no_such_module:f",
            r"cannot import module 'no_such_module' \(ModuleNotFoundError\)\. It is looked for",
        ),
        ("my_silo_rows:absent", r"module 'my_silo_rows' has no 'absent'\. Define a function absent"),
        ("my_silo_rows:fixed", "has 'fixed', which is not a function"),
        ("my_silo_rows:bad", r"my_silo_rows:bad\('a'\) raised KeyError\. Run with --debug"),
        ("my_silo_rows:forgetful", r"Silo 'a' brought None instead of rows"),
        ("my_silo_rows:odd", r"rows of silo 'a' one by one raised ValueError\. Give"),
    ],
)
@pytest.mark.usefixtures("loader")
def test_wrong_loaders_are_told_in_one_sentence(make_job: MakeJob, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        load(make_job({"loader": name}, silos={"a": CAPACITY}))
    assert "secret" not in str(caught.value)


def test_a_loader_needs_named_silos(make_job: MakeJob) -> None:
    with pytest.raises(DataError, match=r"names no silo\. Add a \[silos\.NAME\] table"):
        load(make_job({"loader": "m:f"} | CAPACITY))


def test_labels_of_a_dataset_are_never_rounded(make_job: MakeJob) -> None:
    with pytest.raises(DataError, match="not a vector of whole numbers"):
        from_arrays(make_job(CAPACITY), {"a": Pairs(X, Y * 0.7)})
