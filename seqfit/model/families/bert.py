"""BERT, ELECTRA, RoBERTa, XLM-R and CamemBERT with a classifier's head.

    packed rows    a hook behind the encoder gives the classifier the first token of each segment

RoBERTa's kind counts positions from behind the pad id on and never uses those before: pad 1, positions 2 3 4 ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from seqfit.model.families.family import CurrentLayout, Family
from seqfit.model.flops import ModelShape


class Bert(Family):
    """Packed. Of one stack, so it is not split over stages."""

    name = "BERT"
    model_types: tuple[str, ...] = ("bert", "electra")
    is_encoder_decoder = False
    is_packed = True
    block_list = "layer"
    feed_forward_names = ("intermediate", "dense")

    def shape(self, config: Mapping[str, Any]) -> ModelShape:
        width = config["hidden_size"]
        return ModelShape(
            width=width,
            attention_width=width,
            encoder_layers=config["num_hidden_layers"],
            encoder_feed_forward=2 * width * config["intermediate_size"],
            example_head=width * (width + len(config["id2label"])),
        )

    def install_packing(self, model: PreTrainedModel, current: CurrentLayout) -> None:
        model.base_model.encoder.register_forward_hook(_keep_first_tokens(current))


class Roberta(Bert):
    name = "RoBERTa"
    model_types = ("roberta", "xlm-roberta", "camembert")

    def first_position(self, config: PreTrainedConfig) -> int:
        return 1 + int(config.pad_token_id or 0)

    def max_positions(self, config: PreTrainedConfig) -> int | None:
        positions = super().max_positions(config)
        return None if positions is None else positions - self.first_position(config)


def _keep_first_tokens(current: CurrentLayout) -> Callable[[nn.Module, Any, Any], Any]:
    def keep_first_tokens(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if current.layout is not None:
            states_1ND = output.last_hidden_state
            first_B = current.layout.source.first_tokens(states_1ND.device)
            output.last_hidden_state = states_1ND[0].index_select(0, first_B)[:, None]
        return output

    return keep_first_tokens
