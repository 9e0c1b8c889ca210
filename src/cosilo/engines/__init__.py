"""Engines drive rounds. In process: the same coordinator, participants and bytes as everywhere, no network."""

from cosilo.engines.inprocess import resume, run
from cosilo.engines.result import Round, Run
from cosilo.engines.trained import TrainedModel, load_model

__all__ = ["Round", "Run", "TrainedModel", "load_model", "resume", "run"]
