"""HOW to train: the schema of a strategy, the named ones, what is lossless and what is lossy."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
