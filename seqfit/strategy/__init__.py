"""HOW to train: the schema of a strategy, the named ones, what is lossless and what is lossy."""

from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import Strategy

__all__ = ["Strategy", "load_strategy"]
