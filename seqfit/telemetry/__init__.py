"""Telemetry of a run: what its GPUs and its host do, sampled by a separate process into the run directory.

train  --starts-->  sampler process  --2 lines per second-->  telemetry.jsonl
                      gpu.py: NVML, amdsmi, or a recording
                      host.py: psutil
report, findings  <--summary.py--  telemetry.jsonl"""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
