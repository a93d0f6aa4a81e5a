"""Two encoders of transformers joined into one model, such as BERT as both: padded, each part with its own config."""

from __future__ import annotations

from transformers import PreTrainedConfig

from seqfit.model.families.family import Family, find_family


class EncoderDecoder(Family):
    """Each part is of a family of its own."""

    name = "encoder-decoder"
    model_types = ("encoder-decoder",)

    def config_parts(self, config: PreTrainedConfig) -> list[PreTrainedConfig]:
        return [config.encoder, config.decoder]

    def max_positions(self, config: PreTrainedConfig) -> int | None:
        limits = [find_family(part.model_type).max_positions(part) for part in self.config_parts(config)]
        return min((limit for limit in limits if limit is not None), default=None)
