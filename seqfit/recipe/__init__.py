"""WHAT to learn: the schema of a recipe, loading it from YAML with overrides, the recipes that ship."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
