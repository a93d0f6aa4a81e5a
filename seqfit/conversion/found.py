"""What a script makes, collected while it is followed: models, tokenizers, data, arguments, Trainers.

Which of them count is decided at the end (outcome.py), by the first Trainer that trains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from seqfit.conversion.interpreter import Interpreter
from seqfit.conversion.values import ColumnText, Imported, Thing, Unknown, is_constant
from seqfit.yaml_text import read_yaml

ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
TEXT_TO_TEXT = ("ForConditionalGeneration", "ForSeq2SeqLM", "MTModel")
OTHER_MODELS = re.compile(
    r"(ForCausalLM|LMHeadModel|ForMaskedLM|ForQuestionAnswering|ForTokenClassification|ForMultipleChoice|ForPreTraining"
    r"|Vision\w*|SpeechSeq2Seq|ForCTC|^EncoderDecoderModel|ForImageClassification|ForAudio\w*)$"
)
NO_DEFAULTS = "learning rate, batch size and epochs are the recipe's defaults, unless they are listed as taken"


@dataclass
class Found:
    trainers: list[Thing] = field(default_factory=list)
    arguments: list[Thing] = field(default_factory=list)
    models: list[Thing] = field(default_factory=list)
    tokenizers: list[Thing] = field(default_factory=list)
    data: list[Thing] = field(default_factory=list)
    opened: list[Thing] = field(default_factory=list)
    encoded: list[dict[str, Any]] = field(default_factory=list)  # calls of tokenizers
    label_columns: list[tuple[ColumnText, int]] = field(default_factory=list)
    metrics: list[tuple[str, int]] = field(default_factory=list)
    collators: list[Thing] = field(default_factory=list)
    holdout: tuple[Any, int] | None = None
    in_target: int = 0  # inside of as_target_tokenizer()


class ScriptPart:
    """One who reads a part of a script: some kinds of calls, or in the end what is trained."""

    def __init__(self, interpreter: Interpreter, found: Found) -> None:
        self.interpreter = interpreter
        self.reading = interpreter.reading
        self.found = found

    def take(self, name: str, value: Any, line: int | None, said: str = "") -> None:
        """A setting whose value is known; otherwise what is not read, and why."""
        if isinstance(value, list):
            value = [_constant_of(one) if isinstance(one, Imported) else one for one in value]
        value = _constant_of(value) if isinstance(value, Imported) else value
        if value is None:
            return
        if is_constant(value):
            self.reading.take(name, value, line, said)
        else:
            why = value.reason if isinstance(value, Unknown) else "it is known only when it runs"
            self.reading.leave(said or name, line, why)


def _constant_of(value: Imported) -> Any:
    """torch.bfloat16 -> 'bfloat16', IntervalStrategy.EPOCH -> 'epoch'; anything else is not known."""
    owner, _, name = value.path.rpartition(".")
    if owner.endswith("torch") and name in ("bfloat16", "float16", "float32", "half", "float"):
        return {"half": "float16", "float": "float32"}.get(name, name)
    if owner.rpartition(".")[2] in (
        "IntervalStrategy",
        "SchedulerType",
        "OptimizerNames",
        "SaveStrategy",
        "EvaluationStrategy",
    ):
        return name.lower()
    return Unknown(f"'{value.path}' is not defined in this script")


def read_scalar(text: str) -> Any:
    """An argument of a command line as a value: '3e-4' -> 0.0003, 'True' -> True."""
    found, _ = (
        read_yaml(text)
        if text and not text.startswith(("{", "[", "&", "*", "!", "|", ">", "%", "@", "`"))
        else (text, [])
    )
    return found if isinstance(found, int | float | bool) else text
