"""How a script itself computes, from the settings that were read of it -> `ScriptSettings`."""

from __future__ import annotations

import re

from seqfit.conversion.reading import ScriptReading, ScriptSettings, Setting
from seqfit.recipe import trainer_names
from seqfit.yaml_text import write_flow

_NUMBERS = re.compile(
    r"(_steps|_epochs|_size|_limit|_rate|_decay|_ratio|_norm|_factor|_beams|_length|_patience|_epsilon|_beta[12])$|^seed$"
)
# What transformers 5 no longer has: a script that uses one of them runs with an earlier version.
BEFORE_5 = (
    *("evaluation_strategy", "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "no_cuda", "use_mps_device"),
    *("fp16_opt_level", "fp16_backend", "half_precision_backend", "adafactor", "group_by_length", "parallelize"),
    *("overwrite_output_dir", "include_inputs_for_metrics", "save_safetensors"),
)


def describe_script(reading: ScriptReading, name: str) -> ScriptSettings:
    given = {one: as_number(setting).value for one, setting in reading.settings.items()}
    optimizer = "adafactor" if given.get("adafactor") is True else str(given.get("optim", ""))
    pads_both = given.get("pad_to_max_length") is True and bool(reading.script)  # as the example scripts do
    older = [f"{one}=" for one in BEFORE_5 if one in given]
    return ScriptSettings(
        name=name,
        padding="max_length" if given.get("pad_to_max_length") is True else reading.padding,
        target_padding="max_length" if pads_both else reading.target_padding,
        pad_multiple=given.get("pad_to_multiple_of") or 1,
        max_source_tokens=given.get("max_source_length", given.get("max_seq_length", given.get("max_length"))),
        max_target_tokens=given.get("max_target_length", given.get("max_answer_length")),
        precision="bf16" if given.get("bf16") is True else "fp16" if given.get("fp16") is True else "fp32",
        weights=str(given.get("dtype", given.get("torch_dtype", ""))).removeprefix("torch."),
        attention=str(given.get("attn_implementation", "")),
        per_device_examples=given.get("per_device_train_batch_size", given.get("per_gpu_train_batch_size", 8)),
        accumulation=given.get("gradient_accumulation_steps", 1),
        processes=reading.processes,
        starts_all=reading.starts_all,
        visible_gpus=reading.visible_gpus,
        checkpointing=given.get("gradient_checkpointing") is True,
        optimizer=optimizer,
        sharding=next((one for one in ("deepspeed", "fsdp") if given.get(one)), ""),
        quantized_bits=reading.quantized_bits,
        naive_pipeline=reading.naive_pipeline,
        sorts_by_length=given.get("group_by_length") is True
        or given.get("train_sampling_strategy") == "group_by_length",
        before_5=next(iter(older), reading.before_5),
        arguments=given,
        unread=find_unread(reading),
        hides_arguments=reading.hides_arguments,
    )


def find_unread(reading: ScriptReading) -> dict[str, str]:
    """Argument -> the script's own text."""
    said = {one.what.partition("=")[0].removeprefix("--"): one.what for one in reversed(reading.unread)}
    return {
        name: what
        for name, what in said.items()
        if not reading.has(name) and trainer_names.find_argument(name) is not None
    }


def as_number(setting: Setting) -> Setting:
    """gradient_accumulation_steps=True counts as 1, learning_rate="2e-5" as a number."""
    value, said = setting.value, setting.said or f"{setting.name}={write_flow(setting.value)}"
    argument = trainer_names.find_argument(setting.name)
    if argument is None or argument.is_flag or not _NUMBERS.search(setting.name):
        return setting
    if isinstance(value, bool):
        return Setting(setting.name, int(value), setting.line, f"{said} ({value} counts as {int(value)})")
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return setting
        return Setting(
            setting.name,
            int(number) if number.is_integer() and "e" not in value.lower() else number,
            setting.line,
            said,
        )
    return setting
