"""seqfit fine-tunes text-to-text models on the hardware you have. `__init__.pyi` lists the public names."""

from seqfit.doors import open_door

__version__ = "0.2.0"
__getattr__, _dir, _names = open_door(__name__)
__all__ = sorted([*_names, "__version__"])
