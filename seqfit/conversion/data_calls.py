"""Calls that read, split or change data sets and tables.

load_dataset("csv", data_files={"train": "a.csv"})        a data set of files
data.map(encode).select(range(1000))                      the same rows, the first 1,000 of them
pandas.read_csv("a.csv").rename(columns={"q": "text"})    a table whose column text is its column q
"""

from __future__ import annotations

import ast
import re
from typing import Any

from seqfit.conversion.found import ScriptPart
from seqfit.conversion.values import ColumnText, Function, Imported, ScriptCall, Thing, Unknown, is_constant
from seqfit.hub import is_path

_BUILDERS = ("csv", "json", "text", "parquet", "pandas", "arrow", "jsonl", "tsv", "xml")
_READERS = re.compile(r"read_(csv|json|excel|parquet|table|feather|pickle|xml|orc)$")
_SAME_DATA = {  # what gives the rows of the same data again, perhaps fewer of them or changed
    *("shuffle", "map", "remove_columns", "set_format", "with_format", "cast_column", "cast", "class_encode_column"),
    *("dropna", "reset_index", "drop_duplicates", "from_pandas", "to_pandas", "copy", "astype", "drop", "fillna"),
    *("flatten", "with_transform", "set_transform", "sort_values", "sort", "DatasetDict", "concatenate_datasets"),
    *("to_dict", "from_dict", "from_list", "concat", "interleave_datasets", "flatten_indices", "rename", "skip"),
    *("rename_column", "rename_columns", "unique", "head", "sample", "select", "filter", "query", "take", "apply"),
    *("shard", "batch", "to_list"),
}


class DataCalls(ScriptPart):
    def read(self, call: ScriptCall) -> Any:
        name, owner, first = call.name, call.owner, call.args[0] if call.args else None
        if name == "load_dataset":
            return self._add_data(call)
        if name == "load_from_disk" or (_READERS.match(name) and isinstance(owner, Imported | Unknown)):
            path = call.get("path", 0) if name != "read_csv" else call.get("filepath_or_buffer", 0)
            found = Thing("frame" if name != "load_from_disk" else "dataset", {"path": path}, call.line)
            if isinstance(path, Thing) and path.kind == "file":
                found.fields["path"] = path.fields["path"]
            self.found.data.append(found)
            rows = call.get("nrows")
            if rows is not None:
                found.fields["limit"] = rows
            return found
        if name == "open" and owner is None and first is not None:
            found = Thing("file", {"path": first}, call.line)
            mode = call.get("mode", 1, "r")
            if isinstance(mode, str) and "r" in mode:
                self.found.opened.append(found)
            return found
        if name in ("load", "loads", "DictReader", "reader") and isinstance(first, Thing) and first.kind == "file":
            found = Thing("frame", {"path": first.fields["path"]}, first.line)
            self.found.data.append(found)
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
        self.found.data.append(found)
        return found

    def _make_data(self, call: ScriptCall, content: Any) -> Any:
        """A data set made of columns ({'text': frame['question']}) or of splits ({'train': dataset})."""
        for value in content.values() if isinstance(content, dict) else content:
            if isinstance(value, Thing) and value.kind in ("dataset", "frame"):
                return value
        if isinstance(content, dict):
            for name, value in content.items():
                if isinstance(name, str) and isinstance(value, ColumnText):
                    self.interpreter.columns.made[name] = value
        if self.found.data:
            return Thing("dataset", dict(self.found.data[-1].fields), self.found.data[-1].line)
        self.reading.leave(
            f"{call.path}(...)", call.line, "rows that the script makes itself: write them to a file, and set data.path"
        )
        return Thing("dataset", {}, call.line)

    def _split(self, call: ScriptCall) -> Any:
        size = call.get("test_size")
        if size is None and isinstance(call.kwargs.get("train_size"), float):
            size = round(1 - call.kwargs["train_size"], 10)
        size = 0.25 if size is None else size
        if self.found.holdout is None:
            self.found.holdout = (size, call.line)
        elif self.found.holdout[0] != size:
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
                    self.interpreter.columns.made[key] = value
        elif name in ("rename", "rename_columns", "rename_column"):
            pairs = call.kwargs.get("columns", first)
            pairs = {first: call.args[1]} if name == "rename_column" and len(call.args) > 1 else pairs
            for old, new in pairs.items() if isinstance(pairs, dict) else ():
                if isinstance(old, str) and isinstance(new, str):
                    self.interpreter.columns.made[new] = self.interpreter.columns.find(old)
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


def _add_note(data: Thing, what: str, line: int, why: str) -> None:
    """Listed if the Trainer gets this data."""
    data.fields["notes"] = [*data.fields.get("notes", []), (what, line, why)]
