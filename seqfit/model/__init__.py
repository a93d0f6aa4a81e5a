"""transformers' own models, loaded with care: build, loss, packing, checkpoint folders. No forked model code."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
