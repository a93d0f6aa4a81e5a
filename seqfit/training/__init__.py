"""Training: set-up, the loop, evaluation, snapshots, OOM recovery, non-finite values, the live view."""
