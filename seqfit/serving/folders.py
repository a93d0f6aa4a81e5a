"""Which kind of model a folder holds, and its loading, by which torch or CTranslate2 is imported."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from seqfit.errors import ModelError
from seqfit.serving.backend import ServedModel

_CT2_WEIGHTS = "model.bin"  # of CTranslate2; transformers has not written a file of this name for long


def load_model_folder(path: Path, name: str) -> ServedModel:
    if not (path / _CT2_WEIGHTS).is_file():
        from seqfit.serving.checkpoint import CheckpointModel

        return CheckpointModel(path, name)
    if importlib.util.find_spec("ctranslate2") is None:
        raise ModelError(
            f"'{path}' is a CTranslate2 folder, and ctranslate2 is not installed",
            "it is an extra",
            "Install it: pip install 'seqfit[ct2]'",
        )
    from seqfit.serving.ct2 import Ct2Model

    return Ct2Model(path, name)
