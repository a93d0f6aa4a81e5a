"""One optimizer step: micro-batches -> normalised loss -> clip -> update. No I/O."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
