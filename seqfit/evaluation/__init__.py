"""How good a model is: generate answers, score them, write them to the run directory."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
