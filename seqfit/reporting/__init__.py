"""HTML pages of runs, comparisons, plans and data: one self-contained file each, readable offline."""

from seqfit.callable_room import make_callable

make_callable(__name__, "seqfit.reporting.page")
