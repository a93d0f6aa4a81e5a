"""Know before you run: memory and time of a step, predicted on fake tensors, and the search for a strategy."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
