"""A fair comparison of strategies for one recipe: matrix, trials in fresh processes, statistics, tables."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
