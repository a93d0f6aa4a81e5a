"""A smaller vocabulary: which tokens are kept, sliced weights, a shrunk tokenizer, remapped data."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
