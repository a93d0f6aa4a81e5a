"""A fine-tuned model in a form that others run, checked against the checkpoint that it was made from."""

from seqfit.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)
