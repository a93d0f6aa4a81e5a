"""Calls that make training arguments, Trainers and what goes with them, and a Trainer's own.

Seq2SeqTrainingArguments("out", learning_rate=3e-4)       arguments, by name, with their lines
Seq2SeqTrainer(model=model, args=args, ...)               what may be trained
trainer.train()                                           that it is
"""

from __future__ import annotations

import ast
from typing import Any

from seqfit.conversion.found import ARGUMENTS, NO_DEFAULTS, ScriptPart
from seqfit.conversion.values import Class, Function, Imported, ScriptCall, Thing

_TRAINERS = ("Trainer", "Seq2SeqTrainer")
_TRAINER_ORDER = ("model", "args", "data_collator", "train_dataset", "eval_dataset")
_SCHEDULES = {
    "get_linear_schedule_with_warmup": "linear",
    "get_cosine_schedule_with_warmup": "cosine",
    "get_constant_schedule_with_warmup": "constant_with_warmup",
    "get_constant_schedule": "constant",
    "get_inverse_sqrt_schedule": "inverse_sqrt",
    "get_polynomial_decay_schedule_with_warmup": "polynomial",
}


class TrainerCalls(ScriptPart):
    def read(self, call: ScriptCall) -> Any:
        made = self._read_arguments(call)
        return made if made is not None else self._read_training(call)

    def _read_arguments(self, call: ScriptCall) -> Any:
        if call.name in ARGUMENTS:
            self.reading.has_trainer = True
            fields = {
                name: (value, call.lines.get(name, call.line), self._said(call, name))
                for name, value in call.kwargs.items()
            }
            if call.args:
                fields.setdefault("output_dir", (call.args[0], call.line, ""))
            for index in range(1, len(call.args)):
                self.reading.leave(
                    f"argument {index + 1} of {call.name}", call.line, "only the first one may stand without a name"
                )
            for what in call.unpacked:
                self.reading.leave(what, call.line, f"what it holds is known only when it runs: {NO_DEFAULTS}")
                self.reading.hides_arguments = True
            found = Thing("arguments", {"given": fields}, call.line)
            self.found.arguments.append(found)
            return found
        if call.name in _TRAINERS:
            self.reading.has_trainer = True
            fields = {**dict(zip(_TRAINER_ORDER, call.args, strict=False)), **call.kwargs}
            if "tokenizer" in fields:
                self.reading.before_5 = f"{call.name}(tokenizer=)"
            for one in call.function.body.names.values() if isinstance(call.function, Class) else ():
                if isinstance(one, Function) and one.name != "__init__":
                    what = f"{call.function.node.name}.{one.name}()"
                    self.reading.leave(
                        what, one.node.lineno, "it replaces a part of the Trainer, and is not carried over"
                    )
            found = Thing("trainer", {"given": fields, "is_trained": False}, call.line)
            self.found.trainers.append(found)
            return found
        if call.name == "EarlyStoppingCallback":
            return Thing("early stopping", {"early_stopping_patience": 1, **call.kwargs}, call.line)
        if call.name == "set_seed" and call.args:
            self.take("seed", call.args[0], call.line, "set_seed()")
            return True
        if call.name in ("AdamW", "Adafactor"):
            return Thing("optimizer", {"name": call.name, "path": call.path, **call.kwargs}, call.line)
        if call.name in _SCHEDULES:
            return Thing(
                "schedule", {"name": _SCHEDULES[call.name], "warmup": call.get("num_warmup_steps", 1)}, call.line
            )
        if call.name == "AdafactorSchedule":
            return Thing("schedule", {}, call.line)
        if call.name.startswith("DataCollator"):
            self.found.collators.append(Thing("collator", {"class": call.name, **call.kwargs}, call.line))
            return self.found.collators[-1]
        is_metric = call.name == "load_metric" or (
            call.name == "load" and isinstance(call.owner, Imported) and "evaluate" in call.owner.path
        )
        is_metric = is_metric or (call.name == "load" and call.path == "load" and isinstance(call.get("path", 0), str))
        if is_metric and isinstance(call.get("path", 0), str):
            self.found.metrics.append((call.get("path", 0), call.line))
            return Thing("metric", {}, call.line)
        if call.name == "GenerationConfig":
            return Thing("generation", dict(call.kwargs), call.line)
        if call.name == "range" and call.args:
            return Thing("range", {"count": call.args[-1 if len(call.args) < 2 else 1]}, call.line)
        if call.name in ("is_available", "cuda_is_available") and "cuda" in call.path:
            self.interpreter.assumes_gpu.append(call.line)
            return True
        return None

    def _said(self, call: ScriptCall, name: str) -> str:
        for keyword in call.node.keywords:
            if keyword.arg == name and not isinstance(keyword.value, ast.Constant):
                text = " ".join(ast.unparse(keyword.value).split())
                return f"{name}={text if len(text) <= 60 else f'{text[:57]}...'}"
        return ""

    def _read_training(self, call: ScriptCall) -> Any:
        trainer = call.owner
        if isinstance(trainer, Thing) and trainer.kind == "object":
            return None
        if not isinstance(trainer, Thing) or trainer.kind != "trainer":
            return None
        if call.name == "train":
            trainer.fields["is_trained"] = True
            resume = call.get("resume_from_checkpoint", 0)
            if resume is not None and resume is not False:
                trainer.fields["resume"] = (resume, call.line)
        elif call.name == "add_callback" and call.args:
            callbacks = trainer.fields["given"].setdefault("callbacks", [])
            if isinstance(callbacks, list):
                callbacks.append(call.args[0])
        elif call.name in ("evaluate", "predict"):
            for name, ours in (("max_length", "generation_max_length"), ("num_beams", "generation_num_beams")):
                if name in call.kwargs:
                    trainer.fields.setdefault("generation", []).append(
                        (ours, call.kwargs[name], call.line, f"{call.path}({name})")
                    )
        return Thing("result")
