"""References and predictions become scores, each knowing whether higher is better."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
