"""Where a step's time and memory went: trace readers, tables, findings with the change to make, and their proof."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
