"""M2M100 and NLLB: padded, because positions are computed from ids; with a known head, since V is 128,000 and more.

head    logits = states W
"""

from __future__ import annotations

from transformers import PreTrainedModel

from seqfit.model.families.family import Family, Head, linear_head


class M2M100(Family):
    """Logits of a batch would be gigabytes."""

    name = "M2M100"
    model_types = ("m2m_100",)

    def head(self, model: PreTrainedModel) -> Head | None:
        return linear_head(model)
