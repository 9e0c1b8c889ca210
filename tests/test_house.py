"""The house's own rules that no linter here checks: sizes, and a literal `__all__` in every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import cosilo

MODULES = sorted(Path(cosilo.__file__).parent.rglob("*.py"))
LONGEST_FUNCTION, LONGEST_MODULE = 40, 400


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
            docstring = ast.get_docstring(node, clean=False) or ""
            yield node.name, node.end_lineno - node.lineno + 1 - docstring.count("\n")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(MODULES[0].parent)))
def test_sizes_and_names(path: Path):
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE
    long = {name: lines for name, lines in functions(path) if lines > LONGEST_FUNCTION}
    assert not long
    tree = ast.parse(path.read_text())
    public = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]
    if public:
        assert any(isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__" for n in tree.body)
