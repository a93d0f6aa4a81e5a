"""Published comparisons, repeated: what was published, what is predicted, what is measured here, side by side."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
