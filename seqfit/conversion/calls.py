"""What the calls and assignments of transformers, datasets, peft, pandas and argparse in a script mean.

Each kind of call has its reader; the first one that knows a call says what it gives. Assignments to a model's config,
to training arguments and to the labels of a tokenized row are read here.

    T5ForConditionalGeneration.from_pretrained("t5-base")     model_calls.py
    load_dataset("csv", data_files={"train": "a.csv"})        data_calls.py
    Seq2SeqTrainer(model=model, args=args, ...)               trainer_calls.py
    parser.add_argument("--lr", default=3e-4)                 option_calls.py
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from seqfit.conversion.data_calls import DataCalls
from seqfit.conversion.found import Found
from seqfit.conversion.interpreter import Interpreter
from seqfit.conversion.model_calls import ModelCalls
from seqfit.conversion.option_calls import OptionCalls
from seqfit.conversion.reading import VISIBLE_GPUS, ScriptReading, count_visible
from seqfit.conversion.trainer_calls import TrainerCalls
from seqfit.conversion.values import ColumnText, Imported, ScriptCall, Thing, Unknown, is_constant
from seqfit.yaml_text import write_flow

_CONFIG = {"num_beams": "num_beams", "max_length": "generation_max_length", "max_new_tokens": "generation_max_length",
           "use_cache": "use_cache", "dropout": "dropout", "dropout_rate": "dropout",
           "hidden_dropout_prob": "dropout"}  # fmt: skip  # fmt: skip


class ScriptCalls:
    """The interpreter's `CallReader`; `found` is what it collects."""

    def __init__(
        self, interpreter: Interpreter, options: Mapping[str, Any] | None, *, flags_known: bool = True
    ) -> None:
        self.interpreter = interpreter
        self.reading: ScriptReading = interpreter.reading
        self.found = Found()
        self.options = OptionCalls(interpreter, self.found, options, flags_known=flags_known)
        self._readers = (
            ModelCalls(interpreter, self.found),
            DataCalls(interpreter, self.found),
            TrainerCalls(interpreter, self.found),
            self.options,
        )

    def read(self, call: ScriptCall) -> Any:
        for reader in self._readers:
            made = reader.read(call)
            if made is not None:
                return made
        return None

    def set_attribute(self, thing: Thing, name: str, value: Any, node: ast.AST) -> None:
        line = getattr(node, "lineno", None)
        said = ast.unparse(node)
        if thing.kind == "arguments":
            thing.fields["given"][name] = (value, line, f"{said}={write_flow(value) if is_constant(value) else '...'}")
        elif thing.kind == "config" and isinstance(thing.fields.get("model"), Thing):
            settings = thing.fields["model"].fields["settings"]
            if name in _CONFIG:
                settings.append((_CONFIG[name], value, line, said))
            elif name not in ("pad_token_id", "eos_token_id", "decoder_start_token_id", "vocab_size", "bos_token_id"):
                self.reading.leave(said, line, "a setting of the model's config that a recipe does not have")
        elif thing.kind == "part" and name == "requires_grad" and value is False:
            part = {"encoder": "freeze_encoder", "shared": "freeze_embeds", "embed_tokens": "freeze_embeds"}
            ours = part.get(str(thing.fields.get("name")))
            if ours is None:
                self.reading.leave(
                    f"{said} = False", line, "which weights are frozen is not certain; model.freeze is the field"
                )
            else:
                self.reading.take(ours, True, line, f"{said} = False")
        elif thing.kind == "frame" and name == "columns" and is_constant(value):
            why = "columns that are renamed as a whole; for a file without a header set data.columns"
            self.reading.leave(f"{said}={write_flow(value)}", line, why)

    def set_item(self, holder: Any, key: Any, value: Any, node: ast.AST) -> None:
        line = getattr(node, "lineno", None)
        if isinstance(holder, Imported) and holder.path.endswith("environ") and key == VISIBLE_GPUS:
            self.reading.visible_gpus = count_visible(value)
        if key in ("labels", "decoder_input_ids", "label") and isinstance(key, str):
            self._mark_target(holder, value, line)
        if isinstance(holder, Thing) and holder.kind in ("frame", "row", "dataset") and isinstance(key, str):
            if isinstance(value, ColumnText):
                self.interpreter.columns.made[key] = value
            elif isinstance(value, Unknown):
                self.interpreter.columns.made[key] = Unknown(
                    f"the column '{key}' is made in line {line}: {value.reason}"
                )

    def _mark_target(self, holder: Any, value: Any, line: int | None) -> None:
        if isinstance(value, Thing) and value.kind == "encoded":
            found = value.fields["call"]
            if isinstance(holder, Thing) and holder.kind == "encoded" and holder.fields["call"] is found:
                if found["text_target"] is None:
                    why = "the labels are the source text itself, as a language model learns; a recipe has a target"
                    self.reading.leave(ast.unparse(ast.parse("labels = input_ids")), line, why)
            else:
                found["is_target"] = True
        elif isinstance(value, ColumnText) and line is not None:
            self.found.label_columns.append((value, line))

    def returned(self, value: Any) -> None:
        if isinstance(value, dict) and "labels" in value:
            self._mark_target(None, value["labels"], None)

    def enter_with(self, name: str, entered: bool) -> None:
        if name == "as_target_tokenizer":
            self.reading.before_5 = "as_target_tokenizer()"
            self.found.in_target += 1 if entered else -1
