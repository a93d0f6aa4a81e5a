"""The training loop and what surrounds it: schedules, evaluation, best checkpoint, early stopping, the live view."""

from seqfit.callable_room import make_callable

make_callable(__name__, "seqfit.training.train")
