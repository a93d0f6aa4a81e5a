"""Several processes that train one model: their process group, and how they share a step."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
