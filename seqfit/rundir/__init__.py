"""The run directory: the only connection between training and everything after it.

Names are imported on first use: the telemetry sampler needs the records only, and starts several times as fast so.
"""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
