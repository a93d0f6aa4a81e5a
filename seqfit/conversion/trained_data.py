"""Which data, texts and collator a script trains with, and what it measures -> settings.

Of the tokenizer's calls the source's and the target's are distinguished by where their tokens go (`labels`), by
text_target, by the variable, and last by their order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.conversion.found import ScriptPart
from seqfit.conversion.operations import join_text
from seqfit.conversion.values import ColumnText, Imported, Thing, Unknown, is_constant
from seqfit.yaml_text import write_flow

_TARGET_NAMES = re.compile(r"label|target|summar|answer|output|decoder|tgt|^y$|reference", re.IGNORECASE)
_ONE_SOURCE = "one is taken; a recipe mixes several as a list in data"
_METRICS = {
    **{name: name for name in ("rouge", "bleu", "chrf", "accuracy", "squad", "exact_match")},
    **{"sacrebleu": "bleu", "squad_v2": "squad", "f1": "macro_f1"},
}


class TrainedData(ScriptPart):
    def finish(self, given: Mapping[str, Any]) -> None:
        """`given`: the arguments of the Trainer."""
        self._finish_data(given)
        self._finish_texts()
        self._finish_collator(given)
        self._finish_metrics()

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
            if wanted is not None:
                reason = wanted.reason if isinstance(wanted, Unknown) else "how its rows are made is not followed"
                reading.leave("Trainer(train_dataset)", None, f"{reason}; set data.path")
            return
        if "hub" in source.fields:
            self.take("dataset_name", source.fields["hub"], source.line, "load_dataset()")
            self.take("dataset_config_name", source.fields.get("config"), source.line, "load_dataset()")
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
                self.take(ours, limit, thing.line if thing else None, f"{name}: its first rows")
        if "columns" in source.fields:
            self.take("data.columns", source.fields["columns"], source.line, "column_names")
        split = evaluation.fields.get("split") if evaluation is not None else None
        if self.found.holdout is not None and isinstance(self.found.holdout[0], float):
            size, line = self.found.holdout
            self.take("data.holdout.validation", size, line, f"train_test_split(test_size={size})")
            self.take("data.holdout.test", 0.0, line, "train_test_split(): no third part")
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
            self.take("data.path", path, source.line, "load_dataset()")
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
            self.take(f"{split}_file", value, source.line, "" if is_constant(value) else f"{split} data")

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
                found = self.interpreter.columns.made.get(
                    "label", self.interpreter.columns.made.get("labels", ColumnText("{label}"))
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
        for text, by, line in self.interpreter.columns.changes:
            if any(column in used for used in texts for column in re.findall(r"\{[^{}]+\}", text)):
                why = "the recipe uses the column as it is in the data; change the data, if it matters"
                self.reading.leave(f"{' '.join(text.split())} is changed by {by}", line, why)

    def _finish_side(self, call: Mapping[str, Any], side: str) -> None:
        reading, options, line = self.reading, call["options"], call["line"]
        text = call["text_target"] if side == "target" and call["text_target"] is not None else call["text"]
        if "pair" in call and isinstance(text, ColumnText) and side == "source":
            text = join_text([text, " ", call["pair"]])
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
            self.take(f"max_{side}_length", length, line, said)
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
            self.take("pad_to_max_length", True, line, "tokenizer(padding='max_length')")

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
            is_plain = isinstance(collator, Imported) and collator.name in ("default_data_collator", "None")
            if collator is not None and not is_plain:
                self.reading.leave("data_collator", None, "a collator of the script's own is not carried over")
            return
        if "pad_to_multiple_of" in collator.fields:
            self.take(
                "pad_to_multiple_of",
                collator.fields["pad_to_multiple_of"],
                collator.line,
                f"{collator.fields['class']}(pad_to_multiple_of)",
            )
        if collator.fields.get("padding") == "max_length":
            self.take("pad_to_max_length", True, collator.line, f"{collator.fields['class']}(padding='max_length')")
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
