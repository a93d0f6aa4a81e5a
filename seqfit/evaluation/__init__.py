"""How good a model is: generate answers, score them, write them to the run directory."""

from seqfit.callable_room import make_callable

make_callable(__name__, "seqfit.evaluation.evaluate")
