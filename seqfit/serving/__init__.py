"""`seqfit serve`: trained models behind an HTTP API and a page, on the loopback address."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
