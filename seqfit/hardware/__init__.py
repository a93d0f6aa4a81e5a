"""WHERE training runs: a table of GPUs, each with its source, and what this machine has. Free of torch."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
