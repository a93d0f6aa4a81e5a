"""Training: set-up, the loop, evaluation, snapshots, OOM recovery, non-finite values, the live view."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
