"""Model families: one file each, found by listing this folder. `family.py` has the contract they fulfil."""

from seqfit.model.families.family import (
    CurrentLayout,
    Family,
    Head,
    ModelShape,
    Start,
    build_text_encoder,
    family_of,
    find_block_side,
    find_family,
    is_feed_forward,
    list_families,
    list_tested_types,
)
from seqfit.model.families.refused import REFUSED

__all__ = [
    "REFUSED",
    "CurrentLayout",
    "Family",
    "Head",
    "ModelShape",
    "Start",
    "build_text_encoder",
    "family_of",
    "find_block_side",
    "find_family",
    "is_feed_forward",
    "list_families",
    "list_tested_types",
]
