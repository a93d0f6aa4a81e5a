"""What a Trainer script or its arguments state, as facts for an audit: what transformers would do with them.

In: a `Conversion`. Out: facts by aspect. A setting that is known only when the script runs is never taken to be the
default: its fact is the expression, which is compared with nothing but itself.

    per_device_train_batch_size=32                    micro_batch 32
    gradient_accumulation_steps=True        ->        accumulation 1       rows_per_update 32
    num_train_epochs=5, 1,000 rows                    updates 160
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.comparison.audits import ONE_COPY, PER_GPU, UNREAD, Fact
from seqfit.conversion import Conversion
from seqfit.model_configs import find_known_model
from seqfit.units import format_number

TRAINER = "transformers' Trainer"
_SCHEDULES = {"reduce_lr_on_plateau": "plateau", "constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}
_ADAMW = ("", "adamw_torch", "adamw_torch_fused", "adamw_hf")  # the same update
# Aspects of which nothing is known where one of these arguments is known only when the script runs.
STATED_BY = {
    "accumulation": ("gradient_accumulation_steps",),
    "loss_scale": ("gradient_accumulation_steps",),
    "rows_per_update": ("gradient_accumulation_steps", "per_device_train_batch_size", "per_gpu_train_batch_size"),
    "micro_batch": ("per_device_train_batch_size", "per_gpu_train_batch_size"),
    "updates": (
        *("gradient_accumulation_steps", "per_device_train_batch_size", "num_train_epochs", "max_steps"),
        "max_train_samples",
    ),
    "passes": ("num_train_epochs", "max_steps"),
    "learning_rate": ("learning_rate",),
    "schedule": ("lr_scheduler_type", "warmup_steps", "warmup_ratio", "lr_scheduler_kwargs"),
    "optimizer": ("optim", "adafactor", "adam_beta1", "adam_beta2", "adam_epsilon"),
    "regularisation": ("weight_decay", "max_grad_norm", "label_smoothing_factor"),
    "precision": ("fp16", "bf16", "dtype", "torch_dtype", "tf32"),
    "checkpointing": ("gradient_checkpointing",),
    "padding": ("pad_to_max_length", "pad_to_multiple_of", "group_by_length"),
    "lengths": ("max_source_length", "max_target_length", "max_seq_length", "max_length"),
    "seed": ("seed",),
    "data": ("dataset_name", "dataset_config_name", "train_file", "max_train_samples", "task_name"),
    "text": ("source_prefix", "text_column", "summary_column"),
    "test_data": ("validation_file", "test_file", "max_eval_samples", "max_predict_samples"),
    "evaluation": ("num_beams", "generation_num_beams", "generation_max_length", "val_max_target_length"),
    "evaluations": ("eval_strategy", "evaluation_strategy", "eval_steps", "num_train_epochs", "max_steps"),
    "model": ("model_name_or_path",),
    "attention": ("attn_implementation", "torch_compile"),
    "loader": ("dataloader_num_workers",),
    "trained_part": ("lora_r", "freeze_encoder", "freeze_embeds"),
    "layout": ("deepspeed", "fsdp"),
}
_COUNTS = ("per_device_train_batch_size", "per_gpu_train_batch_size", "gradient_accumulation_steps")
_NUMBERS = (
    *("num_train_epochs", "max_steps", "learning_rate", "warmup_steps", "warmup_ratio", "weight_decay"),
    *("max_grad_norm", "label_smoothing_factor", "dataloader_num_workers", "eval_steps", "logging_steps", "seed"),
    *("generation_num_beams", "num_beams"),
)
ALWAYS_STATED = (  # what TrainingArguments alone decide
    *("accumulation", "rows_per_update", "micro_batch", "updates", "passes", "learning_rate", "schedule", "optimizer"),
    *("regularisation", "precision", "checkpointing", "seed", "evaluations", "loader"),
)
_OF_SCRIPTS = ("padding", "lengths", "trained_part", "attention")  # what the rest of a script decides


@dataclass(frozen=True)
class Counts:
    """Rows of a data set, as far as they are known."""

    train: int | None = None
    scored: int | None = None


def read_script_facts(
    conversion: Conversion, counts: Counts, gpus: int | None = None, *, is_script: bool = True
) -> dict[str, Fact]:
    """`gpus`: where somebody else says how many there were. Arguments without their script leave some things open."""
    script, given, wrong = conversion.script, dict(conversion.script.arguments), _find_wrong(conversion)
    unread = {**script.unread, **wrong}
    for name in wrong:
        given.pop(name)
    sizes = [size if _is_count(size) else 1 for size in (script.per_device_examples, script.accumulation)]
    count = gpus or script.processes or script.visible_gpus
    is_naive = script.naive_pipeline
    copies = 1 if is_naive else count or 1
    rows = sizes[0] * sizes[1] * copies
    product = f"{sizes[0]} x {sizes[1]}"
    per_gpu = ", on each GPU" if count is None else f" x {format_number(copies, 'GPU')}"
    product += ", one copy of the model" if is_naive else per_gpu
    length = _read_length(given, counts.train, sizes[0] * copies, sizes[1])
    facts = {
        "accumulation": Fact(sizes[1], str(sizes[1])),
        "micro_batch": Fact(sizes[0], str(sizes[0])),
        "rows_per_update": Fact(rows, f"{rows} ({product})", "" if count else ONE_COPY if is_naive else PER_GPU),
        **length,
        "learning_rate": Fact(given.get("learning_rate", 5e-5), f"{given.get('learning_rate', 5e-5):g}"),
        "schedule": _fact(_describe_schedule(given, length["updates"].value)),
        "optimizer": _fact(_describe_optimizer(script.optimizer, given)),
        "regularisation": _fact(_describe_regularisation(given, conversion.recipe)),
        "precision": _fact(_describe_precision(script.precision, script.weights)),
        "checkpointing": _fact("every block" if script.checkpointing else "none"),
        "padding": _fact(_describe_padding(conversion)),
        "lengths": _fact(f"source {script.max_source_tokens or 'any'}, target {script.max_target_tokens or 'any'}"),
        "seed": Fact(given.get("seed", 42), str(given.get("seed", 42))),
        "evaluation": _fact(_describe_evaluation(given)),
        **_read_evaluations(given, None if set(unread) & set(_COUNTS) else counts.train, rows),
        "attention": _fact(_describe_kernels(script.attention, given)),
        "loader": _fact(f"{format_number(int(given.get('dataloader_num_workers', 0)), 'worker')}"),
        "trained_part": _fact(_describe_trained(conversion)),
        "program": _fact(TRAINER),
        "loss_scale": _read_loss_scale(conversion, sizes[1]),
    }
    facts |= _read_recipe(conversion.recipe)
    if count is not None:
        facts["gpus"] = Fact(count, str(count))
    if count is not None or script.naive_pipeline or script.sharding:
        facts["layout"] = _fact("one GPU" if count == 1 else _name_layout(conversion))
    for aspect, names in STATED_BY.items():
        if said := [unread[name] for name in names if name in unread]:
            facts[aspect] = Fact(said, ", ".join(said), UNREAD)
    hidden = set(ALWAYS_STATED) if script.hides_arguments else set()
    if not is_script:
        hidden |= {aspect for aspect in _OF_SCRIPTS if not set(STATED_BY[aspect]) & set(given)}
    return {aspect: fact for aspect, fact in facts.items() if aspect not in hidden}


def _fact(text: str) -> Fact:
    return Fact(text, text)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _find_wrong(conversion: Conversion) -> dict[str, str]:
    """Values that no Trainer could compute with, or that it gets from elsewhere, such as DeepSpeed's 'auto'."""
    given = conversion.script.arguments
    numbers = {name: given[name] for name in _NUMBERS if not isinstance(given.get(name, 0), int | float)}
    counts = {name: given[name] for name in _COUNTS if name in given and not _is_count(given[name])}
    return {name: f"{name}={value}" for name, value in {**numbers, **counts}.items()}


def _read_loss_scale(conversion: Conversion, pieces: int) -> Fact:
    if pieces == 1 or conversion.script.before_5:
        return Fact(1, "1")
    return Fact(pieces, f"{pieces} with transformers 5")


def _read_length(given: Mapping[str, Any], rows: int | None, rows_per_batch: int, accumulation: int) -> dict[str, Fact]:
    """As transformers counts them: batches of an epoch, the last one smaller, divided by the accumulation, upward."""
    steps, epochs = given.get("max_steps", -1), given.get("num_train_epochs", 3)
    if isinstance(steps, int) and steps > 0:
        facts = {"updates": Fact(steps, f"{steps:,}")}
        if rows:
            passes = steps * rows_per_batch * accumulation / rows
            facts["passes"] = Fact(round(passes, 2), format_passes(passes))
        return facts
    facts = {"passes": Fact(float(epochs), format_passes(epochs))}
    if rows:
        per_epoch = math.ceil(math.ceil(rows / rows_per_batch) / accumulation)
        updates = math.ceil(epochs * per_epoch)
        facts["updates"] = Fact(updates, f"{updates:,}")
    else:
        each = rows_per_batch * accumulation
        facts["updates"] = Fact(f"{epochs:g}/{each}", f"{epochs:g} epochs in batches of {each}")
    return facts


def format_passes(passes: float) -> str:
    return f"{passes:.3g} epoch{'' if passes == 1 else 's'}"


def _describe_schedule(given: Mapping[str, Any], updates: object) -> str:
    warm_up = given.get("warmup_steps") or given.get("warmup_ratio") or 0
    if 0 < warm_up < 1:
        warm_up = math.ceil(warm_up * updates) if isinstance(updates, int) else f"{warm_up:.0%} of the updates"
    more = given.get("lr_scheduler_kwargs")
    name = str(given.get("lr_scheduler_type", "linear"))
    return f"{_SCHEDULES.get(name, name)}, warm-up {warm_up}{f', {more}' if more else ''}"


def _describe_optimizer(name: str, given: Mapping[str, Any]) -> str:
    constants = {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8}
    other = [f"{key[5:]} {given[key]}" for key, value in constants.items() if given.get(key, value) != value]
    other += ["relative step"] if given.get("relative_step") else []
    return ", ".join(["adamw" if name in _ADAMW else name, *other])


def _describe_regularisation(given: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    dropout = (recipe.get("model") or {}).get("dropout")
    return describe_regularisation(
        given.get("weight_decay", 0.0),
        given.get("max_grad_norm", 1.0),
        given.get("label_smoothing_factor", 0.0),
        dropout,
    )


def describe_regularisation(decay: float, clip: float | None, smoothing: float, dropout: float | None) -> str:
    own = "the model's" if dropout is None else f"{dropout:g}"
    return f"decay {decay:g}, clip {clip or 0:g}, smoothing {smoothing:g}, dropout {own}"


def _describe_precision(precision: str, weights: str) -> str:
    half = weights in ("bfloat16", "float16", "half")
    return f"{precision}, weights in {weights}" if half else precision


def _describe_padding(conversion: Conversion) -> str:
    script = conversion.script
    sides = [script.padding.replace("_", " "), script.target_padding.replace("_", " ")]
    text = sides[0] if sides[0] == sides[1] else f"source {sides[0]}, target {sides[1]}"
    text += f", multiple of {script.pad_multiple}" if script.pad_multiple > 1 else ""
    return f"{text}, grouped by length" if script.sorts_by_length else text


def _describe_evaluation(given: Mapping[str, Any]) -> str:
    beams = given.get("generation_num_beams", given.get("num_beams", 1))
    limit = given.get("generation_max_length", given.get("val_max_target_length", "the model's"))
    best = given.get("metric_for_best_model", "loss") if given.get("load_best_model_at_end") else ""
    parts = [f"{format_number(beams, 'beam')}", f"at most {limit} tokens"] if given.get("predict_with_generate") else []
    parts += [f"best by {best}" if best else "last checkpoint"]
    stopping = given.get("early_stopping_patience")
    return ", ".join([*parts, *([f"early stopping after {stopping}"] if stopping else [])])


def _read_evaluations(given: Mapping[str, Any], rows: int | None, rows_per_update: int) -> dict[str, Fact]:
    when = str(given.get("eval_strategy", given.get("evaluation_strategy", "no"))).lower()
    epochs, steps = given.get("num_train_epochs", 3), given.get("max_steps", -1)
    if when == "no":
        return {"evaluations": Fact(0, "none")}
    if when == "epoch" and not (isinstance(steps, int) and steps > 0):
        return {"evaluations": Fact(math.ceil(epochs), f"{math.ceil(epochs)}, one per epoch")}
    every = given.get("eval_steps") or given.get("logging_steps") or 500
    total = (
        steps if isinstance(steps, int) and steps > 0 else math.ceil(rows / rows_per_update) * epochs if rows else None
    )
    if when == "steps" and total and every >= 1:
        return {"evaluations": Fact(int(total // every), f"{int(total // every)}, every {every} updates")}
    return {"evaluations": _fact(f"every {every} updates" if when == "steps" else when)}


def _describe_kernels(attention: str, given: Mapping[str, Any]) -> str:
    parts = [attention or "transformers' choice"]
    parts += ["compiled"] if given.get("torch_compile") else []
    parts += ["Liger kernels"] if given.get("use_liger_kernel") else []
    return ", ".join(parts)


def _describe_trained(conversion: Conversion) -> str:
    model = conversion.recipe.get("model") or {}
    text = describe_trained(model.get("lora"), model.get("freeze") or [], model.get("trim_vocabulary"))
    bits = conversion.script.quantized_bits
    return f"{text}, on weights of {bits} bits" if bits else text


def describe_trained(lora: Mapping[str, Any] | None, frozen: list[str], trimmed: object) -> str:
    parts = [f"LoRA of rank {lora.get('rank', 16)}"] if lora else []
    parts += [f"without {', '.join(frozen)}"] if frozen else []
    parts += [f"vocabulary trimmed ({trimmed})"] if trimmed is not None else []
    return ", ".join(parts) or "all weights"


def _name_layout(conversion: Conversion) -> str:
    script = conversion.script
    if script.naive_pipeline:
        return "one GPU at a time (naive model parallelism)"
    if script.sharding:
        return script.sharding
    return "DDP" if script.processes or script.starts_all else "nn.DataParallel"


def _read_recipe(recipe: Mapping[str, Any]) -> dict[str, Fact]:
    """Model, data and texts, as far as the script says them."""
    facts: dict[str, Fact] = {}
    model, task, data = (recipe.get(part) or {} for part in ("model", "task", "data"))
    if model.get("name") or model.get("path"):
        name = name_model(str(model.get("path") or model["name"]))
        facts["model"] = Fact([name, "pretrained"], name.rstrip("/").rpartition("/")[2], name)
    if isinstance(data, Mapping) and (data.get("hub") or data.get("path")):
        facts |= {
            name: Fact([fact.value], fact.text, fact.place)
            for name, fact in read_source_facts(data, recipe.get("eval") or {}).items()
        }
    texts = {name: task[name] for name in ("prefix", "source", "target") if task.get(name)}
    if texts:
        facts["text"] = Fact(json.dumps(texts, sort_keys=True), " -> ".join(map(str, texts.values())))
    return facts


def name_model(location: str) -> str:
    """t5-base and google-t5/t5-base are one model; a folder is known by its whole path."""
    known = find_known_model(location)
    return known.name if known is not None else _resolve(location)


def _resolve(location: str) -> str:
    path = Path(location).expanduser()
    return str(path.resolve()) if path.exists() else location


def read_source_facts(data: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, Fact]:
    """Of one source: what is trained on, and what is scored."""
    limits, splits = data.get("limit") or {}, data.get("splits") or {}
    place = _resolve(str(data["path"])) if data.get("path") else str(data.get("hub"))
    config = f" ({data['hub_config']})" if data.get("hub_config") else ""
    trained = [splits["train"]] if splits.get("train") else []
    trained += [f"{limits['train']:,} rows"] if limits.get("train") else []
    scored = [str(splits[name]) for name in ("validation", "test") if splits.get(name)]
    scored += [f"{limits[name]:,} {name} rows" for name in ("validation", "test") if limits.get(name)]
    scored += [f"{evaluation['limit']:,} rows during training"] if evaluation.get("limit") else []
    title = place.rstrip("/").rpartition("/")[2] + config
    held = data.get("holdout") if not splits else None
    return {
        "data": Fact(
            [place, config, trained, data.get("balance"), data.get("each")], ", ".join([title, *trained]), place
        ),
        "test_data": Fact([place, config, scored, held], ", ".join([title, *scored]), place),
    }
