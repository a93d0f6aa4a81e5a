"""`seqfit ls`: the recipes that come with seqfit."""

from __future__ import annotations

from seqfit.recipe.library import list_library


def command() -> None:
    """List the recipes that come with seqfit."""
    entries = list_library()
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        print(f"{entry.name:<{width}}  {entry.description}")
