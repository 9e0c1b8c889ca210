"""Server optimizers and weight averaging: post-processing of released sums, free of privacy cost."""

from cosilo.optimizers.averaging import average, averaged
from cosilo.optimizers.server import ServerOptimizer, State, build

__all__ = ["ServerOptimizer", "State", "average", "averaged", "build"]
