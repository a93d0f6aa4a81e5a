"""Starts training as several processes: on this machine, or as a job of a Slurm cluster, which it then follows."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
