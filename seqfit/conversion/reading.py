"""What reading a script finds: settings by name, what could not be read, and how the script itself computes.

A setting has a name of the table of Trainer arguments (learning_rate, max_source_length, lora_r), whatever the script
calls it, or the path of a field (task.source):

    tokenizer(texts, max_length=512)            Setting("max_source_length", 512, line 20)
    [prefix + x for x in rows["article"]]       Setting("task.source", "{article}", line 17)
    fp16=has_gpu()                              Unread("fp16=has_gpu()", line 31, "known only when it runs")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from seqfit.errors import did_you_mean

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
FILE = 1_000_000  # lines of another file are counted from a multiple of this


@dataclass(frozen=True)
class Setting:
    """`said` is the script's own text, where it differs from 'name=value'."""

    name: str
    value: Any
    line: int | None = None
    said: str = ""


@dataclass(frozen=True)
class Unread:
    what: str
    line: int | None
    why: str


@dataclass(frozen=True)
class ScriptSettings:
    """How the script computes when transformers runs it; a recipe has its own strategy instead."""

    name: str = "the script"
    padding: str = "longest"  # of sources: longest of a batch, or max_length
    target_padding: str = "longest"
    pad_multiple: int = 1
    max_source_tokens: int | None = None
    max_target_tokens: int | None = None
    precision: str = "fp32"
    weights: str = ""  # the type that they are loaded in; "" is transformers' default, auto the checkpoint's
    attention: str = ""  # "" is transformers' own choice: sdpa for models that have it, eager for others
    per_device_examples: int = 8
    accumulation: int = 1
    processes: int | None = None  # None: nothing starts several, and the Trainer takes all GPUs that it sees
    starts_all: bool = False  # a launcher starts one for each GPU
    visible_gpus: int | None = None  # what CUDA_VISIBLE_DEVICES leaves
    checkpointing: bool = False
    optimizer: str = ""  # "" is transformers' default
    sharding: str = ""  # deepspeed, fsdp
    quantized_bits: int | None = None
    naive_pipeline: bool = False  # model.parallelize() or device_map: one GPU computes at a time
    sorts_by_length: bool = False  # group_by_length
    before_5: str = ""  # what the script uses and transformers 5 no longer has
    arguments: Mapping[str, Any] = field(
        default_factory=dict, compare=False
    )  # all that is known, by the Trainer's name
    unread: Mapping[str, str] = field(default_factory=dict, compare=False)  # known only when it runs: what it says
    hides_arguments: bool = False  # some of the Trainer's arguments are not in the script


def check_script_settings(values: Mapping[str, Any]) -> list[str]:
    """A sentence for each mistake in settings that a file states."""
    known = list(ScriptSettings.__dataclass_fields__)
    unknown = [name for name in values if name not in known]
    others = f" Known are {', '.join(known)}."
    lines = [f"{name}: unknown setting.{did_you_mean(name, known) or others}" for name in unknown]
    try:
        TypeAdapter(ScriptSettings).validate_json(json.dumps({k: v for k, v in values.items() if k in known}))
    except ValidationError as error:
        lines += [
            f"{'.'.join(map(str, one['loc']))}: {one['input']!r} is given. {one['msg']}." for one in error.errors()
        ]
    return lines


@dataclass
class ScriptReading:
    """Filled while a script is read; the first setting of a name counts, and a later one that differs is listed."""

    settings: dict[str, Setting] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)
    script: str = ""  # the example script that is called, such as run_summarization.py
    processes: int | None = None
    padding: str = "longest"
    target_padding: str = "longest"
    visible_gpus: int | None = None
    starts_all: bool = False
    before_5: str = ""
    quantized_bits: int | None = None
    naive_pipeline: bool = False
    task: str = ""
    kind: str = ""  # text-to-text or classifier, where the model's class says it
    labels: list[str] | dict[str, list[str]] | None = None
    label_count: int | None = None
    has_trainer: bool = False
    hides_arguments: bool = False  # some of the Trainer's arguments are not in the script
    modules: list[str] = field(
        default_factory=list
    )  # files next to the script; the lines of number n begin at n * FILE

    def take(self, name: str, value: Any, line: int | None, said: str = "") -> None:
        known = self.settings.get(name)
        if known is None:
            self.settings[name] = Setting(name, value, line, said)
        elif known.value != value:
            where = f"line {known.line}" if known.line is not None else "an earlier place"
            self.leave(said or f"{name}={value}", line, f"{where} has {name}={known.value}, and that is taken")

    def leave(self, what: str, line: int | None, why: str) -> None:
        found = Unread(what, line, why)
        if found not in self.unread:
            self.unread.append(found)

    def has(self, name: str) -> bool:
        return name in self.settings


def count_visible(value: Any) -> int | None:
    """'0,1' -> 2; None where it does not say which GPUs."""
    listed = [one for one in str(value).split(",") if one.strip().lstrip("-").isdecimal()] if value is not None else []
    return len(listed) or None
