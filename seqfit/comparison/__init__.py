"""A fair tournament of ways to train one recipe: matrix, trials in fresh processes, results, tables."""

from seqfit.callable_room import make_callable

make_callable(__name__, "seqfit.comparison.compare")
