"""Texts of a model: greedy decoding, beam search, sampling and constrained decoding in one loop of our own."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
