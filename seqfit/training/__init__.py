"""The training loop and what surrounds it: schedules, evaluation, best checkpoint, early stopping, the live view."""
