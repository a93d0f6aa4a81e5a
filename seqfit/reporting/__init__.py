"""HTML pages of runs, comparisons, plans and data: one self-contained file each, readable offline."""
