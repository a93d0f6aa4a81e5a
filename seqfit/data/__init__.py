"""Files become tokenized splits, and splits become batches: sources, splits, the cache of token ids, the loader."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
