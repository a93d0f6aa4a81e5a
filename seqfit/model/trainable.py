"""Which weights are trainable: the blocks of a model, frozen parts, LoRA adapters.

Blocks are what transformers repeats, and so what is recomputed, compiled, sharded or given adapters:

    T5     encoder.block.0, ..., decoder.block.0, ...
    BART   model.encoder.layers.0, ..., model.decoder.layers.0, ...
    BERT   bert.encoder.layer.0, ...

LoRA by PEFT: two small matrices next to each frozen weight of the blocks, put into the model in place. Shapes: R rank,
D a layer's input, F its output.

    y = W x + (alpha / R) B A x        W [F, D] is frozen; A [R, D] and B [F, R] are trainable; B starts at zero
    D = F = 512, R = 16:               262,144 frozen weights, 16,384 trainable ones

The model stays of transformers' class, so `generate`, gradient checkpointing and the loss know nothing of it. It is
never merged itself, so there is nothing to undo and no rounding left in its weights: a checkpoint has new tensors
(`merged_state_dict`), and the small matrices alone in PEFT's layout (`save_adapter`).

Frozen parts need no gradient and no optimizer state:

    embeddings   token and position tables. A head that is tied to them (T5, BART) is the same matrix and is frozen too.
    encoder      its blocks with their relative-position tables, norms and own position tables. Not the token table,
                 which the decoder shares. Of a classifier: the base model but for its tables and the pooler, which
                 feeds the head and is trained with it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from seqfit.errors import ModelError, RecipeError, did_you_mean
from seqfit.model.families.family import family_of
from seqfit.recipe import ModelRecipe, schema
from seqfit.rundir import EventKind, records
from seqfit.strategy import Strategy
from seqfit.units import format_count


def find_blocks(model: nn.Module, purpose: str) -> dict[str, nn.Module]:
    """Name -> block, in the order of the model; `purpose` is the setting that needs them, for the message."""
    blocks = family_of(model).blocks(model)
    if not blocks:
        raise ModelError(
            f"{purpose} is set for a {type(model).__name__}",
            "it works on the blocks that transformers marks, and this model has none",
            "Leave it out, or choose a T5, BART or BERT-type model",
        )
    return blocks


def choose_weights(model: PreTrainedModel, recipe: ModelRecipe, strategy: Strategy) -> records.Events:
    """Adds adapters, then freezes what the recipe or the strategy states; adapters freeze all other weights."""
    events: records.Events = []
    lora = choose_lora(recipe.lora, strategy.lora_rank)
    if lora is not None:
        events.append((EventKind.LORA, add_adapters(model, lora)))
    frozen = [*dict.fromkeys([*recipe.freeze, *strategy.freeze])]
    if frozen:
        events.append((EventKind.FREEZE, freeze_parts(model, frozen)))
    return events


_ADAPTER = "default"  # PEFT's name of the only one; it is part of the weights' names


def choose_lora(recipe: schema.LoraRecipe | None, rank: int | None) -> schema.LoraRecipe | None:
    """The recipe's adapters, with a strategy's rank in place of theirs; None where neither has any."""
    if rank is None:
        return recipe
    return (recipe or schema.LoraRecipe()).model_copy(update={"rank": rank})


def add_adapters(model: PreTrainedModel, lora: schema.LoraRecipe) -> str:
    """Adapt the model in place; everything else is frozen but a classifier's head. Returns what was done."""
    from peft import LoraConfig, TaskType, inject_adapter_in_model  # a second to import, and few runs use it
    from peft.tuners.lora import LoraLayer

    task = TaskType.SEQ_2_SEQ_LM if model.config.is_encoder_decoder else TaskType.SEQ_CLS
    config = LoraConfig(
        task_type=task,
        r=lora.rank,
        lora_alpha=lora.alpha or 2 * lora.rank,
        lora_dropout=lora.dropout,
        target_modules=_choose_targets(model, lora.targets),
    )
    inject_adapter_in_model(config, model, _ADAPTER)
    for head in _find_heads(model).values():
        head.requires_grad_(True)
    layers = sum(isinstance(part, LoraLayer) for part in model.modules())
    total = sum(parameter.numel() for parameter in model.parameters())
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return (
        f"LoRA of rank {lora.rank} in {layers} layers: {format_count(trainable)} weights are trainable, "
        f"{format_count(total - trainable)} are frozen"
    )


def has_adapters(model: nn.Module) -> bool:
    return hasattr(model, "peft_config")


@torch.no_grad()
def merged_state_dict(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights of the model as if it had been fine-tuned whole: W + (alpha / R) B A, under the names of the base.

    Adapted layers are new tensors (as much memory again as these layers take), all others the model's own.
    """
    state: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        layer, is_base, field = name.rpartition(".base_layer.")
        if is_base:
            adapted: Any = model.get_submodule(layer)
            state[f"{layer}.{field}"] = tensor + adapted.get_delta_weight(_ADAPTER) if field == "weight" else tensor
        elif not _is_adapters(name):
            state[name] = tensor
    return state


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write what `peft.PeftModel.from_pretrained(base, folder)` loads: the adapters, and a classifier's head."""
    heads = _find_heads(model)
    config: Any = copy.copy(model.peft_config[_ADAPTER])
    config.target_modules = sorted(config.target_modules)  # PEFT keeps a set; the file should not change by itself
    config.modules_to_save = list(heads) or None
    config.inference_mode = True
    config.base_model_name_or_path = model.config.name_or_path or None
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    tensors = {
        f"base_model.model.{name.replace(f'.{_ADAPTER}.', '.')}": tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if _is_adapters(name) or name.split(".")[0] in heads
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _is_adapters(name: str) -> bool:
    return f".lora_A.{_ADAPTER}." in name or f".lora_B.{_ADAPTER}." in name


def _find_heads(model: PreTrainedModel) -> dict[str, nn.Module]:
    """What a classifier has besides its base model: fresh weights, to be trained. A text-to-text head is not fresh."""
    if model.config.is_encoder_decoder:
        return {}
    children = {name: part for name, part in model.named_children() if part is not model.base_model}
    return {name: part for name, part in children.items() if any(True for _ in part.parameters())}


def _choose_targets(model: nn.Module, wanted: list[str] | None) -> list[str]:
    """Linear layers by their paths inside a block, which BERT's pooler (also called dense) does not match."""
    blocks = find_blocks(model, "LoRA").values()
    paths = list(
        dict.fromkeys(path for block in blocks for path, part in block.named_modules() if isinstance(part, nn.Linear))
    )
    if wanted is None:
        return paths
    found = {name: [path for path in paths if f".{path}".endswith(f".{name}")] for name in wanted}
    unknown = [name for name, matches in found.items() if not matches]
    if unknown:
        known = sorted({path.split(".")[-1] for path in paths})
        raise RecipeError(
            f"model.lora.targets names {', '.join(map(repr, unknown))}",
            f"the linear layers in the blocks of a {type(model).__name__} are {', '.join(known)}",
            f"Name some of these, or leave targets out for all.{did_you_mean(unknown[0], known)}",
        )
    return [path for path in paths if any(path in matches for matches in found.values())]


def freeze_parts(model: PreTrainedModel, parts: Sequence[str]) -> str:
    """Freeze in place; parts are 'embeddings' and 'encoder'. What was frozen before stays so. Returns what was done."""
    # Embedding matrices outside the blocks: inside there are T5's relative-position tables.
    inside = {id(part) for block in find_blocks(model, "freeze").values() for part in block.modules()}
    outside = [part for part in model.modules() if isinstance(part, nn.Embedding) and id(part) not in inside]
    tables = [parameter for table in outside for parameter in table.parameters()]
    chosen = {"embeddings": tables, "encoder": _find_encoder(model, tables)}
    for part in parts:
        for parameter in chosen[part]:
            parameter.requires_grad_(False)
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    frozen = sum(parameter.numel() for parameter in model.parameters()) - trainable
    counts = f"{format_count(frozen)} weights are frozen, {format_count(trainable)} are trainable"
    text = f"{' and '.join(parts)} frozen: {counts}"
    head = model.get_output_embeddings() if "embeddings" in parts else None
    if head is not None and head.weight is model.get_input_embeddings().weight:
        text += "; the head is the same matrix as the embeddings and is frozen, too"
    return text


def _find_encoder(model: PreTrainedModel, tables: list[nn.Parameter]) -> list[nn.Parameter]:
    if model.config.is_encoder_decoder:
        encoder, kept = model.get_encoder(), list(model.get_decoder().parameters())  # the token table
    else:
        pooler = getattr(model.base_model, "pooler", None)
        encoder, kept = model.base_model, [*tables, *(pooler.parameters() if pooler is not None else ())]
    spared = {id(parameter) for parameter in kept}
    return [parameter for parameter in encoder.parameters() if id(parameter) not in spared]
