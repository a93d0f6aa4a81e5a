"""Where a step's time and memory went: trace readers, tables, findings with the change to make, and their proof."""

from seqfit.callable_room import make_callable

make_callable(__name__, "seqfit.profiling.profile")
