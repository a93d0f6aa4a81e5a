"""Attention within segments, the chunked loss, dropout and norm: what a step spends its time in."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
