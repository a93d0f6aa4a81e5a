"""What a script that was followed trains: which model, arguments, data, texts and collator count -> settings.

The first Trainer that trains decides; what is left over (a second Trainer, another file, a collator that no Trainer
gets) is listed. Of the tokenizer's calls the source's and the target's are distinguished by where their tokens go
(`labels`), by text_target, by the variable, and last by their order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.conversion.calls import NO_DEFAULTS, OTHER_MODELS, TEXT_TO_TEXT, ScriptCalls, take_value
from seqfit.conversion.reading import ScriptReading
from seqfit.conversion.values import Class, ColumnText, Function, Imported, Thing, Unknown, is_constant
from seqfit.recipe import trainer_names
from seqfit.yaml_text import write_flow

_TARGET_NAMES = re.compile(r"label|target|summar|answer|output|decoder|tgt|^y$|reference", re.IGNORECASE)
_LORA = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
}
_ONE_SOURCE = "one is taken; a recipe mixes several as a list in data"
_METRICS = {
    **{name: name for name in ("rouge", "bleu", "chrf", "accuracy", "squad", "exact_match")},
    **{"sacrebleu": "bleu", "squad_v2": "squad", "f1": "macro_f1"},
}
_MODEL_OPTIONS = {
    *("cache_dir", "torch_dtype", "dtype", "attn_implementation", "token", "use_auth_token", "device_map"),
    *("low_cpu_mem_usage", "ignore_mismatched_sizes", "trust_remote_code", "load_in_8bit", "load_in_4bit"),
}
_SAME_MEANING = {  # options of from_pretrained that change nothing, or are read elsewhere
    *("local_files_only", "num_labels", "id2label", "label2id", "quantization_config", "problem_type", "config"),
    *("return_dict", "output_attentions", "output_hidden_states", "from_tf", "from_flax", "force_download"),
    *("resume_download", "use_safetensors", "pretrained_model_name_or_path", "use_cache", "class"),
}


class TrainedParts:
    def __init__(self, found: ScriptCalls) -> None:
        self.found = found
        self.reading: ScriptReading = found.reading

    def _take(self, name: str, value: Any, line: int | None, said: str = "") -> None:
        take_value(self.reading, name, value, line, said)

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
        model = self._choose_model(given)
        if model is not None:
            self._finish_model(model)
        self._finish_tokenizer()
        self._finish_optimizer(given)
        self._finish_arguments(given, trainer)
        self._finish_data(given)
        self._finish_texts()
        self._finish_collator(given)
        self._finish_metrics()
        for line in sorted(self.found.interpreter.assumes_gpu)[:1]:
            reading.leave("torch.cuda.is_available()", line, "taken as true, there and elsewhere: a GPU is planned for")

    def _choose_model(self, given: Mapping[str, Any]) -> Thing | None:
        model = given.get("model", given.get("model_init"))
        if isinstance(model, Function):
            model = self.found.interpreter.call_function(model, [], {})
        if isinstance(model, Thing) and model.kind == "object":
            inside = [one for one in model.fields.values() if isinstance(one, Thing) and one.kind == "model"]
            model = inside[0] if inside else None
        if isinstance(model, Thing) and model.kind == "model":
            return model
        return next(iter(self.found.models), None)

    def _finish_model(self, model: Thing) -> None:
        reading, fields = self.reading, model.fields
        name = fields["class"]
        if OTHER_MODELS.search(name) and not name.endswith("ForConditionalGeneration"):
            reading.kind = name
            return
        reading.kind = (
            "classifier"
            if "ForSequenceClassification" in name
            else "text-to-text"
            if name.endswith(TEXT_TO_TEXT)
            else ""
        )
        self._take("model_name_or_path", fields["name"], model.line, f"{name}.from_pretrained()")
        if fields["is_new"]:
            self._take("model.weights", "random", model.line, f"{name}(config)")
        options: dict[str, Any] = dict(fields["options"])
        config = options.get("config")
        if isinstance(config, Thing):
            options = {**config.fields, **options}
        options.pop("name", None)
        quantization = options.get("quantization_config")
        if isinstance(quantization, Thing):
            options |= {
                key: quantization.fields[key] for key in ("load_in_4bit", "load_in_8bit") if key in quantization.fields
            }
        for bits in (4, 8):
            if options.get(f"load_in_{bits}bit") is True:
                reading.quantized_bits = bits
        reading.naive_pipeline = options.get("device_map") in ("auto", "balanced", "balanced_low_0", "sequential")
        for key, value in options.items():
            if key in _MODEL_OPTIONS:
                self._take(key, value, model.line, f"from_pretrained({key})")
            elif key in ("dropout", "dropout_rate", "hidden_dropout_prob"):
                self._take("model.dropout", value, model.line, f"from_pretrained({key})")
            elif key not in _SAME_MEANING:
                reading.leave(
                    f"from_pretrained({key})", model.line, "an option of the model's own that a recipe does not have"
                )
        self._finish_labels(options)
        for key, value, line, said in fields["settings"]:
            reading.naive_pipeline = reading.naive_pipeline or key == "parallelize"
            self._take("model.dropout" if key == "dropout" else key, value, line, said)
        lora = fields.get("lora")
        if isinstance(lora, Thing):
            self._finish_lora(lora)

    def _finish_labels(self, options: Mapping[str, Any]) -> None:
        names, count, problem = options.get("id2label"), options.get("num_labels"), options.get("problem_type")
        if isinstance(names, dict) and is_constant(names):
            self.reading.labels = {str(label): [str(index)] for index, label in names.items()}
        if isinstance(count, int):
            self.reading.label_count = count
        if problem == "multi_label_classification":
            self.reading.task = "multilabel"
        elif problem == "regression" or (count == 1 and self.reading.kind == "classifier"):
            self.reading.task = "regression"

    def _finish_lora(self, lora: Thing) -> None:
        # peft's own defaults: rank 8, alpha 8
        for name, ours in _LORA.items():
            value = lora.fields.get(name, 8 if name in ("r", "lora_alpha") else None)
            said = f"LoraConfig({name})" if name in lora.fields else f"LoraConfig: peft's default {name}={value}"
            self._take(ours, value, lora.line, said)
        known = {*_LORA, "task_type", "inference_mode", "bias", "base_model_name_or_path", "revision"}
        for name in sorted(set(lora.fields) - known):
            self.reading.leave(f"LoraConfig({name})", lora.line, "an option of peft that a recipe does not have")
        if lora.fields.get("bias", "none") != "none":
            self.reading.leave("LoraConfig(bias)", lora.line, "biases are frozen with the other weights here")

    def _finish_tokenizer(self) -> None:
        for one in self.found.tokenizers[:1]:
            model = self.reading.settings.get("model_name_or_path")
            if isinstance(one.fields["name"], str) and (model is None or model.value != one.fields["name"]):
                self._take("tokenizer_name", one.fields["name"], one.line, "tokenizer.from_pretrained()")
        for one in self.found.tokenizers:
            for key, ours in (("src_lang", "task.source_language"), ("tgt_lang", "task.target_language")):
                if key in one.fields and not self.reading.has(ours):
                    self._take(ours, one.fields[key], one.line, f"tokenizer.{key}")

    def _finish_optimizer(self, given: Mapping[str, Any]) -> None:
        pair = given.get("optimizers")
        things = [one for one in pair if isinstance(one, Thing)] if isinstance(pair, list) else []
        for one in things:
            if one.kind == "optimizer":
                self._finish_rule(one)
            elif one.kind == "schedule" and "name" in one.fields:
                self._take("lr_scheduler_type", one.fields["name"], one.line, "optimizers=")
                self._take("warmup_steps", one.fields["warmup"], one.line, "optimizers=")
        if pair is not None and not things:
            self.reading.leave("optimizers=", None, "which optimizer it is, is known only when it runs")

    def _finish_rule(self, one: Thing) -> None:
        fields, is_adamw = one.fields, one.fields["name"] == "AdamW"
        self._take("optim", "adamw_torch" if is_adamw else "adafactor", one.line, f"{fields['name']}()")
        rate = fields.get("lr", 1e-3 if is_adamw else None)
        self._take("learning_rate", rate, one.line, f"{fields['name']}(lr)")
        self._take(
            "weight_decay",
            fields.get("weight_decay", 0.01 if is_adamw else 0.0),
            one.line,
            f"{fields['name']}(weight_decay)",
        )
        betas = fields.get("betas")
        if isinstance(betas, list) and len(betas) == 2:
            self._take("adam_beta1", betas[0], one.line, "AdamW(betas)")
            self._take("adam_beta2", betas[1], one.line, "AdamW(betas)")
        if is_adamw and "eps" in fields:
            self._take("adam_epsilon", fields["eps"], one.line, "AdamW(eps)")
        if not is_adamw:
            self._take("relative_step", fields.get("relative_step", True), one.line, "Adafactor(relative_step)")
            usual = {
                **{"clip_threshold": (1.0,), "decay_rate": (-0.8,), "beta1": (None,), "warmup_init": (False,)},
                "scale_parameter": (fields.get("relative_step", True),),
            }
            for name in sorted(set(fields) & {*usual, "eps"}):
                if fields[name] not in usual.get(name, ()) or type(fields[name]) is not type(usual[name][0]):
                    why = "Adafactor has relative_step here, and otherwise the constants of its paper"
                    self.reading.leave(f"Adafactor({name})", one.line, why)

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
                            self._take(ours, inner, value.line, f"GenerationConfig({key})")
                    continue
                if trainer_names.find_argument(name) is None:
                    self.reading.leave(said or name, line, "not an argument of transformers' Trainer")
                else:
                    self._take(name, value, line, said)
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
                    self._take(name, one.fields.get(name), one.line, f"EarlyStoppingCallback({name})")
            else:
                self.reading.leave("callbacks", trainer.line, "a callback of the script's own has no counterpart")
        for name, value, line, said in trainer.fields.get("generation", []):
            if not self.reading.has(name):
                self._take(name, value, line, said)
        if "resume" in trainer.fields:
            value, line = trainer.fields["resume"]
            self.reading.leave(
                f"train(resume_from_checkpoint={value if is_constant(value) else '...'})",
                line,
                "checkpoints of the Trainer are not continued; 'seqfit train RUN --resume' continues a run",
            )

    def _finish_data(self, given: Mapping[str, Any]) -> None:
        reading = self.reading
        train, evaluation = (_source_of(given.get(name)) for name in ("train_dataset", "eval_dataset"))
        known = [
            one for one in self.found.data if one.fields.get("path") is not None or one.fields.get("hub") is not None
        ]
        source = (
            train
            if train is not None and (train.fields.get("hub") or train.fields.get("path"))
            else next(iter(known), None)
        )
        if source is None:
            for one in self.found.opened:
                path = one.fields["path"]
                if isinstance(path, str) and re.search(r"\.(jsonl?|csv|tsv|parquet)$", path):
                    source = Thing("frame", {"path": path}, one.line)
                    break
        wanted = given.get("train_dataset")
        if wanted is not None and train is None and source is not None:
            reason = f"{wanted.reason}; " if isinstance(wanted, Unknown) else ""
            where = f"the data of line {source.line} is taken"
            reading.leave(
                "Trainer(train_dataset)", source.line, f"{reason}how its rows are made is not followed; {where}"
            )
        for thing in (train, evaluation):
            for note in thing.fields.get("notes", []) if thing is not None else ():
                reading.leave(*note)
        if source is None:
            return
        if "hub" in source.fields:
            self._take("dataset_name", source.fields["hub"], source.line, "load_dataset()")
            self._take("dataset_config_name", source.fields.get("config"), source.line, "load_dataset()")
        else:
            self._finish_files(source, evaluation, known)
        for name, thing, ours in (
            ("train_dataset", train, "max_train_samples"),
            ("eval_dataset", evaluation, "max_eval_samples"),
        ):
            limit = thing.fields.get("limit") if thing is not None else None
            if (
                limit is not None
                and thing is not None
                and thing.fields.get("is_split")
                and self.found.holdout is not None
            ):
                share = self.found.holdout[0] if isinstance(self.found.holdout[0], float) else 0.0
                limit = round(limit * (share if thing is evaluation else 1 - share))
            if limit is not None:
                self._take(ours, limit, thing.line if thing else None, f"{name}: its first rows")
        if "columns" in source.fields:
            self._take("data.columns", source.fields["columns"], source.line, "column_names")
        split = evaluation.fields.get("split") if evaluation is not None else None
        if self.found.holdout is not None and isinstance(self.found.holdout[0], float):
            size, line = self.found.holdout
            self._take("data.holdout.validation", size, line, f"train_test_split(test_size={size})")
            self._take("data.holdout.test", 0.0, line, "train_test_split(): no third part")
        elif self.found.holdout is not None:
            reading.leave(
                "train_test_split()", self.found.holdout[1], "data.holdout is a share of the rows, by default 0.1"
            )
        elif split is not None and split.startswith("test"):
            reading.leave(
                f"eval_dataset: the split '{split}'",
                evaluation.line if evaluation else None,
                "the split called validation is used, or a tenth is held out; see data.splits",
            )
        for one in known:
            if one.fields.get("hub") is not None and one.fields["hub"] != source.fields.get("hub"):
                reading.leave(
                    f"another data set, {_shown(one.fields['hub'])}",
                    one.line,
                    _ONE_SOURCE,
                )

    def _finish_files(self, source: Thing, evaluation: Thing | None, known: Sequence[Thing]) -> None:
        path = source.fields["path"]
        if isinstance(path, str) and not re.search(r"\.\w{2,8}$", path):  # a folder
            self._take("data.path", path, source.line, "load_dataset()")
            known = [one for one in known if one.fields.get("path") != path]
            for one in known:
                self.reading.leave(f"another data set, {_shown(one.fields.get('path'))}", one.line, _ONE_SOURCE)
            return
        named: dict[str, Any] = {}
        if isinstance(path, dict):
            for key, value in path.items():
                split = _split_of(str(key)) or "train"
                named.setdefault(split, value)
        else:
            named["train"] = path
            if evaluation is not None and evaluation.fields.get("path") not in (None, path):
                named["validation"] = evaluation.fields["path"]
            for one in known:
                other = one.fields.get("path")
                if isinstance(other, str) and other not in named.values():
                    found = _split_of(other.rpartition("/")[2])
                    if found in (None, "train") or found in named:
                        self.reading.leave(f"another file, {other}", one.line, "which rows it has, is not certain")
                    else:
                        named[str(found)] = other
        for split, value in named.items():
            if isinstance(value, list) and is_constant(value) and value:
                if len(value) > 1:
                    self.reading.leave(
                        f"{len(value)} files of {split}",
                        source.line,
                        "the first is taken; a recipe lists several sources in data",
                    )
                value = value[0]
            self._take(f"{split}_file", value, source.line, "" if is_constant(value) else f"{split} data")

    def _finish_texts(self) -> None:
        """The tokenizer's calls: which are the source's and the target's, their texts, lengths and padding."""
        reading = self.reading
        inside = [
            one for one in self.found.encoded if one["in_function"] and one["options"].get("return_tensors") is None
        ]
        useful = [one for one in self.found.encoded if _is_text(one) or one in inside] or self.found.encoded
        useful.sort(key=lambda one: not _is_text(one))
        for one in useful:
            if any(_TARGET_NAMES.search(name) for name in one.get("names", [])) and reading.kind != "classifier":
                one["is_target"] = True
        sources = [one for one in useful if not one["is_target"]]
        targets = [one for one in useful if one["is_target"]]
        if not targets and len(sources) > 1 and reading.kind != "classifier":
            targets = [one for one in sources[1:] if one["text"] != sources[0]["text"]][:1]
        source = next(iter(sources), None)
        with_text = next((one for one in sources if _is_text(one) and one["text"] is not None), None)
        source = with_text or source
        if source is not None:
            self._finish_side(source, "source")
            if source["text_target"] is not None and not targets:
                targets = [source]
        if targets:
            self._finish_side(targets[0], "target")
        elif reading.kind == "classifier":
            for template, line in self.found.label_columns[:1]:
                reading.take("task.target", template.text, line, "labels")
            if source is not None and not self.found.label_columns:
                found = self.found.interpreter.columns.get(
                    "label", self.found.interpreter.columns.get("labels", ColumnText("{label}"))
                )
                if isinstance(found, ColumnText):
                    reading.take("task.target", found.text, None, "the column that a Trainer learns")
        elif self.found.label_columns:
            reading.take("task.target", self.found.label_columns[0][0].text, self.found.label_columns[0][1], "labels")
        self._list_changes()

    def _list_changes(self) -> None:
        """What the script does to the text of the columns that the recipe uses."""
        texts = [
            str(one.value) for name, one in self.reading.settings.items() if name in ("task.source", "task.target")
        ]
        for text, by, line in self.found.interpreter.changes:
            if any(column in used for used in texts for column in re.findall(r"\{[^{}]+\}", text)):
                why = "the recipe uses the column as it is in the data; change the data, if it matters"
                self.reading.leave(f"{' '.join(text.split())} is changed by {by}", line, why)

    def _finish_side(self, call: Mapping[str, Any], side: str) -> None:
        reading, options, line = self.reading, call["options"], call["line"]
        text = call["text_target"] if side == "target" and call["text_target"] is not None else call["text"]
        if "pair" in call and isinstance(text, ColumnText) and side == "source":
            text = self.found.interpreter.join([text, " ", call["pair"]])
        if isinstance(text, ColumnText):
            self._take_text(text, side, line)
        elif text is not None:
            reason = text.reason if isinstance(text, Unknown) else "which columns they use is not certain"
            reading.leave(f"the {side} texts", line, f"{reason}; set task.{side}")
        length = options.get("max_length", options.get("max_target_length") if side == "target" else None)
        if length is None and options.get("truncation") and isinstance(call["owner"], Thing):
            length = call["owner"].fields.get("model_max_length")
        is_truncated = bool(options.get("truncation", True))
        said = f"tokenizer(max_length={_shown(length)})"
        if length is not None and not is_truncated:
            reading.leave(said, line, "without truncation=True the tokenizer truncates nothing")
        elif length is not None:
            self._take(f"max_{side}_length", length, line, said)
        elif options.get("truncation") and side == "source":
            why = "without max_length it truncates to the tokenizer's own limit; see task.max_source_tokens"
            reading.leave("tokenizer(truncation=True)", line, why)
        is_whole = options.get("padding") == "max_length" or options.get("pad_to_max_length") is True
        padding = "max_length" if is_whole else "longest"
        if side == "target":
            reading.target_padding = padding
            return
        reading.padding = padding
        if is_whole:
            self._take("pad_to_max_length", True, line, "tokenizer(padding='max_length')")

    def _take_text(self, text: ColumnText, side: str, line: int) -> None:
        prefix, brace, rest = text.text.partition("{")
        is_prefix = side == "source" and prefix and re.search(r"[:\]>]\s*$", prefix)
        if is_prefix and not re.fullmatch(r"(question|context|q|input|text)\s*:\s*", prefix):
            self.reading.take("source_prefix", prefix, line, "the prefix of the texts")
            self.reading.take(f"task.{side}", brace + rest, line, "the tokenizer's texts")
        else:
            self.reading.take(f"task.{side}", text.text, line, "the tokenizer's texts")

    def _finish_collator(self, given: Mapping[str, Any]) -> None:
        collator = given.get("data_collator")
        if not isinstance(collator, Thing) or collator.kind != "collator":
            for one in self.found.collators if collator is None else ():
                self.reading.leave(one.fields["class"], one.line, "no Trainer gets it")
            if isinstance(collator, Thing | Function | Class):
                self.reading.leave("data_collator", None, "a collator of the script's own is not carried over")
            return
        if "pad_to_multiple_of" in collator.fields:
            self._take(
                "pad_to_multiple_of",
                collator.fields["pad_to_multiple_of"],
                collator.line,
                f"{collator.fields['class']}(pad_to_multiple_of)",
            )
        if collator.fields.get("padding") == "max_length":
            self._take("pad_to_max_length", True, collator.line, f"{collator.fields['class']}(padding='max_length')")
        if collator.fields["class"] == "DataCollatorForLanguageModeling":
            self.reading.leave(
                "DataCollatorForLanguageModeling", collator.line, "language modelling is not a task of a recipe"
            )

    def _finish_metrics(self) -> None:
        ours = []
        for name, line in self.found.metrics:
            if name in _METRICS:
                ours.append((_METRICS[name], name, line))
            else:
                self.reading.leave(f"the metric {name}", line, "it is not among eval.metrics")
        if ours:
            value = list(dict.fromkeys(one for one, _, _ in ours))
            self.reading.take("eval.metrics", value, ours[0][2], f"the metric {', '.join(name for _, name, _ in ours)}")


def _source_of(value: Any, depth: int = 3) -> Thing | None:
    """The data set or table in an argument of the Trainer, also inside an object of the script's own."""
    if isinstance(value, Thing) and value.kind in ("dataset", "frame"):
        return value
    if isinstance(value, Thing) and value.kind == "object" and depth:
        for inner in value.fields.values():
            found = _source_of(inner, depth - 1)
            if found is not None:
                return found
    return None


def _split_of(name: str) -> str | None:
    for split, pattern in (("train", r"train|trn"), ("validation", r"val|dev|eval"), ("test", r"test|tst")):
        if re.search(pattern, name, re.IGNORECASE):
            return split
    return None


def _is_text(call: Mapping[str, Any]) -> bool:
    return isinstance(call["text"], ColumnText) or isinstance(call["text_target"], ColumnText)


def _shown(value: Any) -> str:
    return write_flow(value) if is_constant(value) else "..."
