"""Encoder-decoder types that run padded, as transformers runs them: what differs from the defaults is little."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from seqfit.model.families.family import Family, Head, find_family, linear_head
from seqfit.model.families.t5 import T5Layers


class Padded(Family):
    """Mostly BART's descendants, each with attention or positions of its own; their own forward computes the logits."""

    name = "padded"
    model_types = ("bigbird_pegasus", "blenderbot", "blenderbot-small", "led", "mvp", "pegasus_x")


class EncoderDecoder(Family):
    """Two encoders joined into one model, such as BERT as both: each part is of a family of its own."""

    name = "encoder-decoder"
    model_types = ("encoder-decoder",)

    def config_parts(self, config: PreTrainedConfig) -> list[PreTrainedConfig]:
        return [config.encoder, config.decoder]

    def max_positions(self, config: PreTrainedConfig) -> int | None:
        limits = [find_family(part.model_type).max_positions(part) for part in self.config_parts(config)]
        return min((limit for limit in limits if limit is not None), default=None)


class LongT5(T5Layers):
    """T5's layers under an attention that is local, or has transient global tokens."""

    name = "LongT5"
    model_types = ("longt5",)


class M2M100(Family):
    """M2M100 and NLLB: positions follow from ids; the head is known, because a batch's logits would be gigabytes."""

    name = "M2M100"
    model_types = ("m2m_100",)

    def head(self, model: PreTrainedModel) -> Head | None:
        return linear_head(model)


class T5Gemma(Family):
    """T5Gemma and T5Gemma 2: sliding and full attention in turn, so `generate` creates the cache; bos is read first."""

    name = "T5Gemma"
    model_types = ("t5gemma", "t5gemma2")
    creates_own_cache = True

    def start_id(self, model: Any) -> int | None:
        start: int | None = model.config.decoder.bos_token_id
        return start
