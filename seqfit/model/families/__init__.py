"""Model families: one file each, found by listing this folder. `family.py` has the contract they fulfil."""

from seqfit.model.families.family import (
    CurrentLayout,
    Family,
    Head,
    build_text_encoder,
    family_of,
    find_family,
    find_place,
    list_families,
    list_tested_types,
    read_model_shape,
)
from seqfit.model.families.refused import REFUSED

__all__ = [
    "REFUSED",
    "CurrentLayout",
    "Family",
    "Head",
    "build_text_encoder",
    "family_of",
    "find_family",
    "find_place",
    "list_families",
    "list_tested_types",
    "read_model_shape",
]
