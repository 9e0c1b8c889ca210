"""cosilo: silos train one model together; every row carries a differential privacy guarantee that holds.

>>> import cosilo
>>> job = cosilo.Job.load("examples/flights.toml")  # doctest: +SKIP
>>> run = cosilo.run(job)  # doctest: +SKIP
>>> run.privacy["epsilon"], run.metrics["test"]["auc"]  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosilo.accounting import epsilon as account
    from cosilo.engines import Run, load_model, resume, run
    from cosilo.errors import CosiloError
    from cosilo.job import Job

__all__ = ["CosiloError", "Job", "Run", "__version__", "account", "load_model", "resume", "run"]

__version__ = "0.1.0"

# Names are loaded on first use: `cosilo --help` must not wait for torch.
_HOMES = {
    "CosiloError": ("cosilo.errors", "CosiloError"),
    "Job": ("cosilo.job", "Job"),
    "Run": ("cosilo.engines", "Run"),
    "account": ("cosilo.accounting", "epsilon"),
    "load_model": ("cosilo.engines", "load_model"),
    "resume": ("cosilo.engines", "resume"),
    "run": ("cosilo.engines", "run"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    try:
        module, attribute = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'cosilo' has no attribute {name!r}") from None
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
