"""A script for transformers' Trainer, read without running it -> a recipe, and what was not read."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
