from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cosilo.job import Job

MakeJob = Callable[..., Job]


@pytest.fixture
def make_job() -> MakeJob:
    """Builds a job from [data], [silos], [evaluation] and a seed; the rest is the least a job needs."""
    return job_of


def job_of(
    data: dict[str, Any] | None = None,
    *,
    silos: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
    seed: int = 0,
) -> Job:
    return Job.parse(
        {
            "job": {"seed": seed},
            "data": data or {},
            "silos": silos or {},
            "evaluation": evaluation or {},
            "model": {"name": "logistic"},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
        }
    )
