"""Rows become (source, target) text, or a label for a classifier; generated text becomes a prediction."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
