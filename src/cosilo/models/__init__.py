"""Torch modules that ship, checks that a module can be trained privately, and modules as flat vectors."""

from cosilo.models.build import build
from cosilo.models.checks import check_module, device
from cosilo.models.forward import logits_in_batches
from cosilo.models.losses import example_loss, probabilities
from cosilo.models.vector import from_vector, to_vector

__all__ = [
    "build",
    "check_module",
    "device",
    "example_loss",
    "from_vector",
    "logits_in_batches",
    "probabilities",
    "to_vector",
]
