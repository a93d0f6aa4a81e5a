"""How good a model is: score what it generates, write it to the run directory."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
