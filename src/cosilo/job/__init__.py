"""The job file: schema, defaults, checks, hash."""

from cosilo.job.functions import find_function, importable
from cosilo.job.job import Job
from cosilo.job.schema import Column

__all__ = ["Column", "Job", "find_function", "importable"]
