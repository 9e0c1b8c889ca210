"""One shape for every benchmark: rows of ours beside a peer, with the bar that ours must reach."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Row", "show", "versions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure; ratio = ours / peer, ok: ours >= bar; None where there is no peer or no bar."""

    what: str
    unit: str
    ours: float
    peer: float | None
    peer_name: str | None
    ratio: float | None
    bar: float | None
    ok: bool | None


def _machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    names = [line for line in cpuinfo.read_text().splitlines() if "model name" in line] if cpuinfo.exists() else []
    return f"{names[0].split(':')[1].strip() if names else platform.processor()}, {platform.system()}"


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Of Python and of `packages` as installed."""
    out = {"python": platform.python_version()}
    for package in packages:
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def show(name: str, rows: list[Row], packages: tuple[str, ...], *, as_json: bool) -> int:
    """Print the table or the JSON object; 1 where a bar is missed, else 0."""
    machine, installed = _machine(), versions(packages)
    if as_json:
        print(json.dumps({"name": name, "machine": machine, "versions": installed, "rows": [asdict(r) for r in rows]}))
    else:
        print(f"{name}: {machine}; " + ", ".join(f"{k} {v}" for k, v in installed.items()))
        print(f"{'what':<42}{'unit':<10}{'ours':>10}{'peer':>10}{'ratio':>10}{'bar':>10}  ok   peer")
        for row in rows:
            ok = {None: "-", True: "yes", False: "NO"}[row.ok]
            print(
                f"{row.what:<42}{row.unit:<10}{_figure(row.ours):>10}{_figure(row.peer):>10}{_figure(row.ratio):>10}"
                f"{_figure(row.bar):>10}  {ok:<4} {row.peer_name or '-'}"
            )
    return 1 if any(row.ok is False for row in rows) else 0
