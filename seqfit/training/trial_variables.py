"""What a comparison asks of the trainings that it starts, as environment variables. No torch here: it only sets them.

SEQFIT_WATCHED_STEPS=3    the peak of tensors is measured up to step 3, and of the largest later steps (peak.py)
SEQFIT_CALIBRATION=1      a fixed workload is timed between steps (peak.py)
SEQFIT_UNSCORED=1         the model is not evaluated: a repeat is the same training, and the first one is scored
SEQFIT_TRIAL=/c/runs/a    the run that this process and those it starts belong to: who is left of a killed comparison
"""

from __future__ import annotations

WATCHED = "SEQFIT_WATCHED_STEPS"
CALIBRATED = "SEQFIT_CALIBRATION"
UNSCORED = "SEQFIT_UNSCORED"
TRIAL = "SEQFIT_TRIAL"
