"""Know before you run: memory and time of a step, predicted on fake tensors, and the search for a strategy."""

from seqfit.callable_room import make_callable

make_callable(__name__, "seqfit.api")
