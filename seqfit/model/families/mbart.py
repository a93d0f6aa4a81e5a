"""mBART, mBART-50 and PLBart: the decoder reads the target's last token first, a language code or the end token.

labels            7 9 1 fr_XX
decoder inputs    fr_XX 7 9 1
"""

from __future__ import annotations

from typing import Any

from seqfit.model.families.bart import Bart
from seqfit.model.families.family import Family


class _LastLabel(Family):
    def start_id(self, _model: Any) -> int | None:
        return None

    def starts_with_last_label(self, _model: Any) -> bool:
        return True


class MBart(_LastLabel, Bart):
    """BART with a closing norm behind each stack."""

    name = "mBART"
    model_types = ("mbart",)


class PLBart(_LastLabel):
    """Of programming languages; runs padded."""

    name = "PLBart"
    model_types = ("plbart",)
