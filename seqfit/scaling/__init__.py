"""How a recipe's steps scale over processes here, measured, and over GPUs elsewhere, predicted."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
