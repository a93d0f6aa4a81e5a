"""Environment variables by which a comparison controls its trials. Without torch, because it only sets them.

SEQFIT_WATCHED_STEPS=3    the peak of tensors is measured up to step 3, and of the largest later steps (peak.py)
SEQFIT_CALIBRATION=1      a fixed workload is timed between steps (peak.py)
SEQFIT_UNSCORED=1         the model is not evaluated: a repeat is the same training, and the first one is scored
SEQFIT_TRIAL=/c/runs/a    the run of this process and its children: finds what a killed comparison left running
"""

from __future__ import annotations

WATCHED = "SEQFIT_WATCHED_STEPS"
CALIBRATED = "SEQFIT_CALIBRATION"
UNSCORED = "SEQFIT_UNSCORED"
TRIAL = "SEQFIT_TRIAL"
