"""What data looks like to a model, and a recipe guessed from its columns: `seqfit data`."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
