"""What a script that was followed trains: which model, arguments, data, texts and collator count -> settings.

The first Trainer that trains decides; what is left over (a second Trainer, another file, a collator that no Trainer
gets) is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqfit.conversion.found import NO_DEFAULTS, ScriptPart
from seqfit.conversion.trained_data import TrainedData
from seqfit.conversion.trained_model import TrainedModel
from seqfit.conversion.values import Imported, Thing, Unknown, is_constant
from seqfit.recipe import trainer_names


class TrainedParts(ScriptPart):
    def finish(self) -> None:
        reading = self.reading
        trainer = next(
            (one for one in self.found.trainers if one.fields["is_trained"]), next(iter(self.found.trainers), None)
        )
        given: dict[str, Any] = trainer.fields["given"] if trainer is not None else {}
        for one in self.found.trainers:
            if one is not trainer and one.fields["is_trained"]:
                reading.leave(
                    "another Trainer",
                    one.line,
                    f"the one in line {trainer.line if trainer else '?'} is taken; convert them one by one",
                )
        TrainedModel(self.interpreter, self.found).finish(given)
        self._finish_arguments(given, trainer)
        TrainedData(self.interpreter, self.found).finish(given)
        for line in sorted(self.interpreter.assumes_gpu)[:1]:
            reading.leave("torch.cuda.is_available()", line, "taken as true, there and elsewhere: a GPU is planned for")

    def _finish_arguments(self, given: Mapping[str, Any], trainer: Thing | None) -> None:
        arguments = given.get("args")
        if not (isinstance(arguments, Thing) and arguments.kind == "arguments"):
            if trainer is not None and isinstance(arguments, Imported | Unknown):
                why = (
                    arguments.reason
                    if isinstance(arguments, Unknown)
                    else f"'{arguments.path}' is not defined in this script"
                )
                self.reading.leave("Trainer(args)", trainer.line, f"{why}: {NO_DEFAULTS}")
                self.reading.hides_arguments = True
            arguments = next(iter(self.found.arguments), None)
        if arguments is not None:
            for name, (value, line, said) in arguments.fields["given"].items():
                if name == "generation_config" and isinstance(value, Thing):
                    for key, inner in value.fields.items():
                        ours = {
                            "num_beams": "generation_num_beams",
                            "max_new_tokens": "generation_max_length",
                            "max_length": "generation_max_length",
                        }.get(key)
                        if ours is None:
                            self.reading.leave(
                                f"GenerationConfig({key})", value.line, "generation is greedy or beam search here"
                            )
                        else:
                            self.take(ours, inner, value.line, f"GenerationConfig({key})")
                    continue
                if trainer_names.find_argument(name) is None:
                    self.reading.leave(said or name, line, "not an argument of transformers' Trainer")
                else:
                    self.take(name, value, line, said)
            for other in self.found.arguments:
                if other is not arguments:
                    self.reading.leave(
                        "other training arguments",
                        other.line,
                        f"those of line {arguments.line} are taken; convert them one by one",
                    )
        if trainer is None:
            return
        callbacks = given.get("callbacks")
        for one in callbacks if isinstance(callbacks, list) else []:
            if isinstance(one, Thing) and one.kind == "early stopping":
                for name in ("early_stopping_patience", "early_stopping_threshold"):
                    self.take(name, one.fields.get(name), one.line, f"EarlyStoppingCallback({name})")
            else:
                self.reading.leave("callbacks", trainer.line, "a callback of the script's own has no counterpart")
        for name, value, line, said in trainer.fields.get("generation", []):
            if not self.reading.has(name):
                self.take(name, value, line, said)
        if "resume" in trainer.fields:
            value, line = trainer.fields["resume"]
            self.reading.leave(
                f"train(resume_from_checkpoint={value if is_constant(value) else '...'})",
                line,
                "checkpoints of the Trainer are not continued; 'seqfit train RUN --resume' continues a run",
            )
