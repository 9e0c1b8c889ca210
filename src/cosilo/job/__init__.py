"""The job file: schema, defaults, checks, hash."""

from cosilo.job.job import Job
from cosilo.job.schema import Column

__all__ = ["Column", "Job"]
