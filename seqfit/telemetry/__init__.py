"""Telemetry of a run: what its GPUs and its host do, sampled by a process of its own into the run directory.

train  --starts-->  sampler process  --2 lines a second-->  telemetry.jsonl
                      gpu.py: NVML (nvml.py), AMD (amd.py), or a recording (recorded.py)
                      host.py: psutil
report, findings  <--summary.py--  telemetry.jsonl
"""
