"""What the calls of transformers, datasets, peft, pandas and argparse in a script mean: calls -> settings.

    T5ForConditionalGeneration.from_pretrained("t5-base")     a model, by name
    load_dataset("csv", data_files={"train": "a.csv"})        a data set of files
    tokenizer(texts, max_length=512, padding="max_length")    the length of the source, or of the target
    Seq2SeqTrainer(model=model, args=args, ...)               which of them are trained

While the script is followed, things are only collected; which model, arguments and data count is decided at the end,
by the first Trainer that trains.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from seqfit.conversion.interpreter import Interpreter
from seqfit.conversion.reading import VISIBLE_GPUS, ScriptReading, count_visible
from seqfit.conversion.values import Class, ColumnText, Function, Imported, ScriptCall, Thing, Unknown, is_constant
from seqfit.hub import is_path
from seqfit.recipe import trainer_names
from seqfit.yaml_text import read_yaml, write_flow

ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
_TRAINERS = ("Trainer", "Seq2SeqTrainer")
_TRAINER_ORDER = ("model", "args", "data_collator", "train_dataset", "eval_dataset")
_BUILDERS = ("csv", "json", "text", "parquet", "pandas", "arrow", "jsonl", "tsv", "xml")
_READERS = re.compile(r"read_(csv|json|excel|parquet|table|feather|pickle|xml|orc)$")
_TOKENIZER_NAMES = re.compile(r"tokeni[sz]er|\btok\b", re.IGNORECASE)
TEXT_TO_TEXT = ("ForConditionalGeneration", "ForSeq2SeqLM", "MTModel")
OTHER_MODELS = re.compile(
    r"(ForCausalLM|LMHeadModel|ForMaskedLM|ForQuestionAnswering|ForTokenClassification|ForMultipleChoice|ForPreTraining"
    r"|Vision\w*|SpeechSeq2Seq|ForCTC|^EncoderDecoderModel|ForImageClassification|ForAudio\w*)$"
)
_TOKENIZERS = re.compile(r"(Tokenizer(Fast)?|Processor)$")
_SAME_MODEL = {  # what gives the same model again
    *("to", "cuda", "cpu", "half", "float", "train", "eval", "compile", "bfloat16", "to_bettertransformer"),
    *("prepare_model_for_kbit_training", "prepare_model_for_int8_training", "DataParallel", "merge_and_unload"),
}
_SAME_DATA = {  # what gives the rows of the same data again, perhaps fewer of them or changed
    *("shuffle", "map", "remove_columns", "set_format", "with_format", "cast_column", "cast", "class_encode_column"),
    *("dropna", "reset_index", "drop_duplicates", "from_pandas", "to_pandas", "copy", "astype", "drop", "fillna"),
    *("flatten", "with_transform", "set_transform", "sort_values", "sort", "DatasetDict", "concatenate_datasets"),
    *("to_dict", "from_dict", "from_list", "concat", "interleave_datasets", "flatten_indices", "rename", "skip"),
    *("rename_column", "rename_columns", "unique", "head", "sample", "select", "filter", "query", "take", "apply"),
    *("shard", "batch", "to_list"),
}
_SCHEDULES = {
    "get_linear_schedule_with_warmup": "linear",
    "get_cosine_schedule_with_warmup": "cosine",
    "get_constant_schedule_with_warmup": "constant_with_warmup",
    "get_constant_schedule": "constant",
    "get_inverse_sqrt_schedule": "inverse_sqrt",
    "get_polynomial_decay_schedule_with_warmup": "polynomial",
}
_CONFIG = {"num_beams": "num_beams", "max_length": "generation_max_length", "max_new_tokens": "generation_max_length",
           "use_cache": "use_cache", "dropout": "dropout", "dropout_rate": "dropout",
           "hidden_dropout_prob": "dropout"}  # fmt: skip


NO_DEFAULTS = "learning rate, batch size and epochs are the recipe's defaults, unless they are listed as taken"


class ScriptCalls:
    """Collects what a script makes; `finish` decides and writes it into the reading."""

    def __init__(
        self, interpreter: Interpreter, options: Mapping[str, Any] | None, *, flags_known: bool = True
    ) -> None:
        self.interpreter = interpreter
        self.reading: ScriptReading = interpreter.reading
        self.options = options  # of the command line, or None where there is none
        self.used_options: set[str] = set()
        self.flags_known = flags_known
        self.trainers: list[Thing] = []
        self.arguments: list[Thing] = []
        self.models: list[Thing] = []
        self.tokenizers: list[Thing] = []
        self.data: list[Thing] = []
        self.opened: list[Thing] = []
        self.encoded: list[dict[str, Any]] = []
        self.label_columns: list[tuple[ColumnText, int]] = []
        self.metrics: list[tuple[str, int]] = []
        self.collators: list[Thing] = []
        self.holdout: tuple[Any, int] | None = None
        self._in_target = 0

    def read(self, call: ScriptCall) -> Any:
        for reader in (
            self._read_model,
            self._read_data,
            self._read_arguments,
            self._read_training,
            self._read_options,
        ):
            found = reader(call)
            if found is not None:
                return found
        return None

    # Models and tokenizers.

    def _read_model(self, call: ScriptCall) -> Any:
        owner = call.owner
        if call.name in ("from_pretrained", "from_config"):
            return self._load(call)
        if isinstance(owner, Imported | Unknown) or owner is None:
            is_class = owner is None and call.name.endswith(TEXT_TO_TEXT)
            if is_class and call.args and isinstance(call.args[0], Thing):
                return self._add_model(call.name, call.args[0].fields.get("name"), call, is_new=True)
            if call.name == "get_peft_model":
                model, config = call.get("model", 0), call.get("peft_config", 1)
                if isinstance(model, Thing) and isinstance(config, Thing):
                    model.fields["lora"] = config
                return model
            if call.name == "LoraConfig":
                return Thing("lora", dict(call.kwargs), call.line)
            if call.name == "BitsAndBytesConfig":
                return Thing("quantization", dict(call.kwargs), call.line)
            if call.name in _SAME_MODEL and call.args and isinstance(call.args[0], Thing):
                return call.args[0]
        if isinstance(owner, Thing) and owner.kind in ("model", "part"):
            return self._call_model(owner, call)
        is_tokenizer = isinstance(owner, Thing) and owner.kind == "tokenizer"
        if is_tokenizer and call.name in ("add_tokens", "add_special_tokens"):
            self.reading.leave(f"{call.path}()", call.line, "tokens are not added to a vocabulary here")
            return 1
        methods = ("encode_plus", "batch_encode_plus", "prepare_seq2seq_batch", "encode", "__call__")
        named = call.path.rpartition(".")[0] if call.name in methods else call.path
        function = call.function
        is_call = isinstance(function, Thing) and function.kind == "tokenizer"
        if (
            is_call
            or (call.name in methods and is_tokenizer)
            or (
                _TOKENIZER_NAMES.search(named.rpartition(".")[2])
                and not isinstance(function, Function | Class | Imported)
            )
        ):
            return self._encode(call)
        return None

    def _load(self, call: ScriptCall) -> Any:
        owner = call.owner
        name = owner.name if isinstance(owner, Imported) else ""
        if isinstance(owner, Class) and owner.foreign_base is not None:
            name = owner.foreign_base.name
        place = call.get("pretrained_model_name_or_path", 0)
        if name.endswith("Config") and name != "GenerationConfig":
            return Thing("config", {"name": place, **call.kwargs}, call.line)
        if _TOKENIZERS.search(name):
            found = Thing("tokenizer", {"name": place, **call.kwargs}, call.line)
            self.tokenizers.append(found)
            return found
        if isinstance(place, Thing) and place.kind == "config":
            return self._add_model(name, place.fields.get("name"), call, is_new=True)
        if isinstance(place, Thing):  # PeftModel.from_pretrained(model, ...)
            return place
        is_model = "Model" in name or name.endswith(TEXT_TO_TEXT) or "ForSequenceClassification" in name
        return self._add_model(name, place, call) if is_model or OTHER_MODELS.search(name) else None

    def _add_model(self, name: str, place: Any, call: ScriptCall, *, is_new: bool = False) -> Thing:
        found = Thing("model", {"name": place, "class": name, "options": call.kwargs, "is_new": is_new}, call.line)
        found.fields["settings"] = []
        self.models.append(found)
        return found

    def _call_model(self, owner: Thing, call: ScriptCall) -> Any:
        settings = owner.fields.setdefault("settings", [])
        said = f"{call.path}()"
        if call.name == "gradient_checkpointing_enable":
            settings.append(("gradient_checkpointing", True, call.line, said))
        elif call.name == "parallelize":
            settings.append(("parallelize", True, call.line, said))
        elif call.name == "generate":
            given = [f"{name}={write_flow(call.kwargs[name])}" for name in ("num_beams", "max_length", "max_new_tokens")
                     if is_constant(call.kwargs.get(name)) and call.kwargs.get(name) is not None]  # fmt: skip
            if given and call.kwargs.get("num_beams", 1) != 1:
                why = "a prediction by the script itself; eval.beams and eval.max_new_tokens are for evaluations"
                self.reading.leave(f"generate({', '.join(given)})", call.line, why)
            return Unknown("it is generated when it runs")
        elif call.name == "get_input_embeddings":
            return Thing("part", {"name": "shared"})
        elif call.name in ("get_encoder", "base_model"):
            return Thing("part", {"name": call.name.removeprefix("get_")})
        elif call.name in ("parameters", "named_parameters", "named_modules", "children"):
            return Thing("part", {"name": owner.fields.get("name") if owner.kind == "part" else "all"})
        elif (
            call.name not in _SAME_MODEL
            and owner.kind == "model"
            and call.name
            not in (
                *(
                    "resize_token_embeddings",
                    "print_trainable_parameters",
                    "save_pretrained",
                    "push_to_hub",
                    "num_parameters",
                ),
                *(
                    "enable_input_require_grads",
                    "state_dict",
                    "load_state_dict",
                    "zero_grad",
                    "resize_position_embeddings",
                ),
            )
        ):
            return Unknown(f"{said} is known only when it runs")
        return owner

    def _encode(self, call: ScriptCall) -> Thing:
        text, target = call.get("text", 0), call.get("text_target")
        found: dict[str, Any] = {
            "text": text,
            "text_target": target,
            "options": call.kwargs,
            "line": call.line,
            "is_target": self._in_target > 0 or (text is None and target is not None),
            "in_function": self.interpreter.depth > 0,
            "owner": call.owner if isinstance(call.owner, Thing) and call.owner.kind == "tokenizer" else call.function,
        }
        if text is not None and len(call.args) > 1 and isinstance(call.args[1], ColumnText | str) and target is None:
            found["pair"] = call.args[1]
        self.encoded.append(found)
        return Thing("encoded", {"call": found}, call.line)

    # Data.

    def _read_data(self, call: ScriptCall) -> Any:
        name, owner, first = call.name, call.owner, call.args[0] if call.args else None
        if name == "load_dataset":
            return self._add_data(call)
        if name == "load_from_disk" or (_READERS.match(name) and isinstance(owner, Imported | Unknown)):
            path = call.get("path", 0) if name != "read_csv" else call.get("filepath_or_buffer", 0)
            found = Thing("frame" if name != "load_from_disk" else "dataset", {"path": path}, call.line)
            if isinstance(path, Thing) and path.kind == "file":
                found.fields["path"] = path.fields["path"]
            self.data.append(found)
            rows = call.get("nrows")
            if rows is not None:
                found.fields["limit"] = rows
            return found
        if name == "open" and owner is None and first is not None:
            found = Thing("file", {"path": first}, call.line)
            mode = call.get("mode", 1, "r")
            if isinstance(mode, str) and "r" in mode:
                self.opened.append(found)
            return found
        if name in ("load", "loads", "DictReader", "reader") and isinstance(first, Thing) and first.kind == "file":
            found = Thing("frame", {"path": first.fields["path"]}, first.line)
            self.data.append(found)
            return found
        if name == "train_test_split":
            return self._split(call)
        if name == "random_split":
            self.reading.leave("random_split()", call.line, "data.holdout says how much is held out for validation")
            return Unknown("it is split when it runs")
        things = [owner, *call.args]
        if name in ("from_dict", "DatasetDict", "from_list", "from_pandas", "Dataset") and isinstance(
            first, dict | list
        ):
            return self._make_data(call, first)
        data = next((one for one in things if isinstance(one, Thing) and one.kind in ("dataset", "frame")), None)
        if data is None and isinstance(first, list):
            data = next((one for one in first if isinstance(one, Thing) and one.kind in ("dataset", "frame")), None)
        if data is not None and name in _SAME_DATA:
            return self._change_data(data, call)
        return None

    def _add_data(self, call: ScriptCall) -> Thing:
        place, config = call.get("path", 0), call.get("name", 1)
        known = {"path", "name", "data_files", "split", "data_dir", "cache_dir", "trust_remote_code", "streaming"}
        ignored = {"token", "use_auth_token", "num_proc", "keep_in_memory", "download_mode", "ignore_verifications"}
        ignored |= {"verification_mode", "revision"}
        fields: dict[str, Any] = {"hub": place, "config": config}
        files = call.get("data_files", 2) if len(call.args) > 2 else call.kwargs.get("data_files")
        if isinstance(place, str) and place in _BUILDERS:
            fields = {"path": files if files is not None else call.kwargs.get("data_dir")}
            known |= {"delimiter", "sep", "field", "column_names", "encoding", "quoting"}
            if call.kwargs.get("field") is not None:
                self.reading.leave(
                    f"field={call.kwargs['field']}", call.line, "rows inside a field are found by themselves"
                )
            if is_constant(call.kwargs.get("column_names")) and call.kwargs.get("column_names"):
                fields["columns"] = call.kwargs["column_names"]
        elif isinstance(place, str) and is_path(place):
            fields = {"path": place}
        elif files is not None:
            fields["files"] = files
            self.reading.leave(
                f"data_files={ast.unparse(call.node)}",
                call.line,
                "of a data set of the Hub, name splits in data.splits",
            )
        found = Thing("dataset", fields, call.line)
        split = call.kwargs.get("split")
        if isinstance(split, str):
            found.fields["split"] = split.partition("[")[0]
            if limit := re.fullmatch(r"\w+\[:(\d+)\]", split):
                found.fields["limit"] = int(limit[1])
            elif "[" in split:
                why = "a part in per cent has no field; data.limit takes a number of rows"
                self.reading.leave(f"split={split}", call.line, why)
        for name in sorted(set(call.kwargs) - known - ignored):
            shown = ast.unparse(next(one.value for one in call.node.keywords if one.arg == name))
            self.reading.leave(f"{name}={shown}", call.line, "an option of this data set's own loading code")
        self.data.append(found)
        return found

    def _make_data(self, call: ScriptCall, content: Any) -> Any:
        """A data set made of columns ({'text': frame['question']}) or of splits ({'train': dataset})."""
        for value in content.values() if isinstance(content, dict) else content:
            if isinstance(value, Thing) and value.kind in ("dataset", "frame"):
                return value
        if isinstance(content, dict):
            for name, value in content.items():
                if isinstance(name, str) and isinstance(value, ColumnText):
                    self.interpreter.columns[name] = value
        if self.data:
            return Thing("dataset", dict(self.data[-1].fields), self.data[-1].line)
        self.reading.leave(
            f"{call.path}(...)", call.line, "rows that the script makes itself: write them to a file, and set data.path"
        )
        return Thing("dataset", {}, call.line)

    def _split(self, call: ScriptCall) -> Any:
        size = call.get("test_size")
        if size is None and isinstance(call.kwargs.get("train_size"), float):
            size = round(1 - call.kwargs["train_size"], 10)
        size = 0.25 if size is None else size
        if self.holdout is None:
            self.holdout = (size, call.line)
        elif self.holdout[0] != size:
            self.reading.leave(
                f"{call.path}(test_size={size})", call.line, "a second split; data.holdout has one share for each"
            )
        if isinstance(call.owner, Thing):
            return Thing("dataset", {**call.owner.fields, "is_split": "limit" in call.owner.fields}, call.owner.line)
        return [one for part in call.args for one in (part, part)]

    def _change_data(self, data: Thing, call: ScriptCall) -> Any:
        name, first = call.name, call.args[0] if call.args else None
        changed = Thing(data.kind if name != "from_pandas" else "dataset", dict(data.fields), data.line)
        if name == "to_pandas":
            changed.kind = "frame"
        function = first if isinstance(first, Function) else call.kwargs.get("function")
        if name in ("map", "apply", "with_transform", "set_transform") and isinstance(function, Function):
            given = call.kwargs.get("fn_kwargs")
            made = self.interpreter.call_function(function, [Thing("row")], given if isinstance(given, dict) else {})
            for key, value in made.items() if isinstance(made, dict) else ():
                if isinstance(key, str) and isinstance(value, ColumnText):
                    self.interpreter.columns[key] = value
        elif name in ("rename", "rename_columns", "rename_column"):
            pairs = call.kwargs.get("columns", first)
            pairs = {first: call.args[1]} if name == "rename_column" and len(call.args) > 1 else pairs
            for old, new in pairs.items() if isinstance(pairs, dict) else ():
                if isinstance(old, str) and isinstance(new, str):
                    self.interpreter.columns[new] = self.interpreter.column(old)
        elif name in ("filter", "query"):
            _add_note(
                changed,
                f"{call.path}(...)",
                call.line,
                "rows that the script leaves out are kept; write the others to a file",
            )
        elif name in ("select", "take", "head", "sample"):
            count = call.kwargs.get("n", first if isinstance(first, int) and not isinstance(first, bool) else None)
            if isinstance(first, Thing) and first.kind == "range":
                count = first.fields["count"]
            if isinstance(count, int):
                changed.fields["limit"] = count
            elif name != "sample" or call.kwargs.get("frac") != 1:
                _add_note(
                    changed,
                    f"{call.path}(...)",
                    call.line,
                    "how many rows it keeps is known only when it runs; see data.limit",
                )
        return changed

    # Arguments, the Trainer, and what goes with them.

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
            self.arguments.append(found)
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
            self.trainers.append(found)
            return found
        if call.name == "EarlyStoppingCallback":
            return Thing("early stopping", {"early_stopping_patience": 1, **call.kwargs}, call.line)
        if call.name == "set_seed" and call.args:
            take_value(self.reading, "seed", call.args[0], call.line, "set_seed()")
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
            self.collators.append(Thing("collator", {"class": call.name, **call.kwargs}, call.line))
            return self.collators[-1]
        is_metric = call.name == "load_metric" or (
            call.name == "load" and isinstance(call.owner, Imported) and "evaluate" in call.owner.path
        )
        is_metric = is_metric or (call.name == "load" and call.path == "load" and isinstance(call.get("path", 0), str))
        if is_metric and isinstance(call.get("path", 0), str):
            self.metrics.append((call.get("path", 0), call.line))
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

    # Options of the command line.

    def _read_options(self, call: ScriptCall) -> Any:
        owner = call.owner
        if call.name == "ArgumentParser":
            return Thing("parser", {"options": {}}, call.line)
        if call.name == "HfArgumentParser":
            classes = call.get("dataclass_types", 0)
            return Thing(
                "dataclass parser", {"classes": classes if isinstance(classes, list) else [classes]}, call.line
            )
        if call.name == "field" and (
            "default" in call.kwargs or "default_factory" in call.kwargs or "metadata" in call.kwargs
        ):
            made = call.kwargs.get("default", Unknown("it is given on the command line"))
            return Thing("field", {"default": made}, call.line)
        if not isinstance(owner, Thing):
            return None
        if owner.kind == "parser":
            return self._call_parser(owner, call)
        if owner.kind == "dataclass parser" and call.name.startswith("parse"):
            return self._parse_dataclasses(owner, call)
        return None

    def _call_parser(self, parser: Thing, call: ScriptCall) -> Any:
        options: dict[str, Any] = parser.fields["options"]
        if call.name == "add_argument":
            names = [name for name in call.args if isinstance(name, str)]
            long = next((name for name in names if name.startswith("--")), names[0] if names else "")
            dest = call.kwargs.get("dest") or long.lstrip("-").replace("-", "_")
            action = call.kwargs.get("action")
            missing = Unknown(f"'{long}' has no default and is given on the command line")
            default = call.kwargs.get("default", {"store_true": False, "store_false": True}.get(str(action), missing))
            if action in ("store_true", "store_false") and not self.flags_known:
                default = Unknown(f"'{long}' is a flag of the command line")
            for name in names:
                given = (self.options or {}).get(name.lstrip("-").replace("-", "_"))
                if given is not None:
                    self.used_options.add(name.lstrip("-").replace("-", "_"))
                    default = action != "store_false" if action in ("store_true", "store_false") else given
            options[str(dest)] = default
            return Thing("option")
        if call.name in ("add_argument_group", "add_mutually_exclusive_group"):
            return parser
        if call.name == "set_defaults":
            options.update(call.kwargs)
            return parser
        if call.name in ("parse_args", "parse_known_args"):
            found = Thing("namespace", dict(options), call.line)
            return [found, []] if call.name == "parse_known_args" else found
        return None

    def _parse_dataclasses(self, parser: Thing, call: ScriptCall) -> Any:
        given = self.options
        if call.name == "parse_dict" and isinstance(call.get("args", 0), dict):
            given = call.get("args", 0)
        if given is None:
            why = "convert the command line that gives them (a shell script, or text in quotes), or its JSON or YAML"
            self.reading.leave(f"{call.path}(): arguments of the command line", call.line, f"{why}: {NO_DEFAULTS}")
            self.reading.hides_arguments = True
        found = []
        for one in parser.fields["classes"]:
            if (isinstance(one, Imported) and one.name in ARGUMENTS) or (
                isinstance(one, Class) and one.foreign_base is not None and one.foreign_base.name in ARGUMENTS
            ):
                self.reading.has_trainer = True
                names = {
                    name: (value, None, "")
                    for name, value in (given or {}).items()
                    if trainer_names.find_argument(name)
                }
                thing = Thing("arguments", {"given": names}, call.line)
                self.arguments.append(thing)
            elif isinstance(one, Class):
                thing = self.interpreter.make_object(one, given or {})
                self.used_options |= set(given or {}) & set(thing.fields)
            else:
                thing = Thing("namespace")
            found.append(thing)
        return found

    # Changes that are no calls.

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
                self.interpreter.columns[key] = value
            elif isinstance(value, Unknown):
                self.interpreter.columns[key] = Unknown(f"the column '{key}' is made in line {line}: {value.reason}")

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
            self.label_columns.append((value, line))

    def returned(self, value: Any) -> None:
        if isinstance(value, dict) and "labels" in value:
            self._mark_target(None, value["labels"], None)

    def enter_with(self, name: str, entered: bool) -> None:
        if name == "as_target_tokenizer":
            self.reading.before_5 = "as_target_tokenizer()"
            self._in_target += 1 if entered else -1


def take_value(reading: ScriptReading, name: str, value: Any, line: int | None, said: str = "") -> None:
    """A setting whose value is known; otherwise what is not read, and why."""
    if isinstance(value, list):
        value = [_constant_of(one) if isinstance(one, Imported) else one for one in value]
    value = _constant_of(value) if isinstance(value, Imported) else value
    if value is None:
        return
    if is_constant(value):
        reading.take(name, value, line, said)
    else:
        reading.leave(
            said or name, line, value.reason if isinstance(value, Unknown) else "it is known only when it runs"
        )


def _add_note(data: Thing, what: str, line: int, why: str) -> None:
    """Listed if the Trainer gets this data."""
    data.fields["notes"] = [*data.fields.get("notes", []), (what, line, why)]


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
