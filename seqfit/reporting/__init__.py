"""HTML pages of runs, comparisons, plans and data: one self-contained file each, readable offline."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
