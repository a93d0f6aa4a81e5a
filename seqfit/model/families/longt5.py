"""LongT5: T5's layers under an attention that is local, so it runs padded and as transformers has it."""

from __future__ import annotations

from seqfit.model.families.t5 import T5Layers


class LongT5(T5Layers):
    """Both kinds: local, and with transient global tokens."""

    name = "LongT5"
    model_types = ("longt5",)
