"""JSON files of any size as rows, one at a time, without reading the whole file.

In: a path. Out: rows. `find_json_layout` says where they are, and SQuAD is a layout of its own:

    [{"q": "a"}, {"q": "b"}]                     list       {"q": "a"}, {"q": "b"}
    [["a", "x"], ["b", "y"]]                     list       {"column1": "a", "column2": "x"}, ...
    {"version": 1, "data": [{"q": "a"}]}         member     {"q": "a"}
    {"train": [{"q": "a"}], "test": [..]}        splits     one table per split
    {"17": {"q": "a"}, "18": {"q": "b"}}         keyed      {"id": "17", "q": "a"}, {"id": "18", "q": "b"}
    {"q": ["a", "b"], "n": [1, 2]}               columns    {"q": "a", "n": 1}, {"q": "b", "n": 2}
    {"abhor": -3, "adore": 3, ..}                pairs      {"key": "abhor", "value": -3}, ...
    {"pos": ["good", ..], "neg": ["bad", ..]}    classes    {"text": "good", "label": "pos"}, ...
    {"q": "a"} {"q": "b"}                        documents  {"q": "a"}, {"q": "b"}

The one idea: `JsonStream` keeps a window of the text. A value that does not parse may only be truncated by the end of
the window, so the window doubles and the value is tried again; an error well inside the window is a real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NoReturn

from seqfit.data.content import SAMPLE_ROWS, classify_first_row, is_known, name_columns
from seqfit.data.name_words import split_of
from seqfit.data.rows import BadRow, DataRow
from seqfit.data.text_files import read_chunks
from seqfit.errors import DataError

_LONGEST_LITERAL = 16  # "-Infinity" or "\ud83d\ude00": an error this near the end may come from the window's end
_ENOUGH_CHARACTERS = 1 << 25  # of one list: what follows it is not looked at
_ENOUGH_MEMBERS = 1000
_MANY_PAIRS = 20  # fewer plain values are a description, or one row
_MOST_COLUMNS = 30  # more lists of equal length are columns only if they are longer than that
_MANY_LISTS = 5  # from this many lists of records on, under names that are not splits, each key is a row


class JsonStream:
    def __init__(self, path: Path, encoding: str = "auto") -> None:
        self.path = path
        self._chunks = read_chunks(path, encoding, keep_broken=True)
        self._decoder = json.JSONDecoder()
        self._window = ""
        self._at = 0
        self._gone = 0  # characters that have left the window
        self._lines_before = 0  # line ends in the text that has left the window
        self._columns_before = 0  # characters since the last of them

    @property
    def position(self) -> int:
        return self._gone + self._at

    def peek(self) -> str:
        """The next character that is not white space; '' at the end."""
        while True:
            while self._at < len(self._window):
                if self._window[self._at] not in " \t\r\n":
                    return self._window[self._at]
                self._at += 1
            if not self._grow():
                return ""

    def take(self, expected: str) -> None:
        found = self.peek()
        if not found or found not in expected:
            wanted = " or ".join(f"'{char}'" for char in expected)
            self.fail(f"expected {wanted}, found {repr(found) if found else 'the end of the file'}", self._at)
        self._at += 1

    def value(self) -> Any:
        self.peek()
        while True:
            start = self._at
            try:
                value, end = self._decoder.raw_decode(self._window, start)
            except json.JSONDecodeError as error:
                is_truncated = "Unterminated" in error.msg or error.pos > len(self._window) - _LONGEST_LITERAL
                if is_truncated and self._grow():
                    continue
                what = error.msg.removesuffix(" at").removesuffix(" starting")
                # Not error.pos: the window may have moved in the attempt to make it longer.
                self.fail(what[0].lower() + what[1:], self._at + error.pos - start)
            if end == len(self._window) and self._grow():
                continue  # 12 may be the beginning of 123
            self._at = end
            return value

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; the caller reads each value before the next key."""
        for _ in self._parts("{", "}", "brace"):
            if self.peek() != '"':
                self.fail("expected a key in double quotes", self._at)
            key = str(self.value())
            self.take(":")
            yield key

    def items(self) -> Iterator[Any]:
        for _ in self._parts("[", "]", "bracket"):
            yield self.value()

    def _parts(self, opening: str, closing: str, name: str) -> Iterator[None]:
        """Stops at each part, which the caller reads before the next."""
        self.take(opening)
        while self.peek() != closing:
            yield
            if self.peek() == closing:
                break
            self.take(f",{closing}")
            if self.peek() == closing:
                self.fail(f"a comma before the closing {name}", self._at)
        self.take(closing)

    def end(self) -> None:
        """Fails if anything follows the document."""
        if self.peek():
            self.fail("more text after the end of the document", self._at)

    def fail(self, what: str, at: int) -> NoReturn:
        before = self._window[:at]
        line = 1 + self._lines_before + before.count("\n")
        column = at - before.rfind("\n") if "\n" in before else self._columns_before + at + 1
        raise DataError(
            f"{self.path}, line {line}, column {column}: {what}",
            "The file must be valid JSON",
            "Correct it there, or set data.format=jsonl if every line is a JSON document of its own",
        )

    def _grow(self) -> bool:
        """Drops what was read and doubles the rest; False at the end of the file."""
        gone = self._window[: self._at]
        self._gone += self._at
        self._lines_before += gone.count("\n")
        self._columns_before = len(gone) - 1 - gone.rfind("\n") + (0 if "\n" in gone else self._columns_before)
        pieces, size = [self._window[self._at :]], 0
        while size <= len(pieces[0]) and (chunk := next(self._chunks, None)) is not None:
            pieces.append(chunk)
            size += len(chunk)
        self._window, self._at = "".join(pieces), 0
        return size > 0


_JsonKind = Literal[
    "list", "member", "splits", "several", "keyed", "columns", "pairs", "classes", "documents", "inside"
]


@dataclass(frozen=True)
class JsonLayout:
    """Where a file's rows are; `keys` are those of the lists that hold them."""

    kind: _JsonKind
    keys: tuple[str, ...] = ()

    def describe(self) -> str | None:
        return {
            "pairs": "one row per key, with the columns key and value",
            "inside": f"the rows are read from {'.'.join(self.keys)}",
            "classes": f"one row per text, with the columns text and label; labels: {', '.join(self.keys[:10])}",
        }.get(self.kind)


@dataclass(frozen=True)
class _Member:
    key: str
    holds: Literal["records", "arrays", "values", "nothing", "object", "value"]
    size: int = 0
    example: Any = None


def find_json_layout(path: Path, encoding: str = "auto") -> JsonLayout:
    status = path.stat()
    return _find_layout(path, status.st_size, status.st_mtime_ns, encoding)


@lru_cache(maxsize=1024)
def _find_layout(path: Path, size: int, mtime_ns: int, encoding: str) -> JsonLayout:
    stream = JsonStream(path, encoding)
    match stream.peek():
        case "[":
            return JsonLayout("list")
        case "{":
            members, is_partial = _look_at_members(stream)
            if not is_partial and stream.peek() and stream.peek() in "{[,":
                return JsonLayout("documents")
            return _choose_layout(path, members)
        case "":
            raise DataError(f"{path} is empty", "A data file needs rows", "Set data.path to a file that has rows")
        case _:
            stream.fail("expected [ or { at the beginning", 0)


def _look_at_members(stream: JsonStream) -> tuple[list[_Member], bool]:
    """The members of the object, and whether there may be more that were not read."""
    members: list[_Member] = []
    for key in stream.members():
        opening = stream.peek()
        if opening == "[":
            start, count, first = stream.position, 0, None
            for item in stream.items():
                first = item if count == 0 else first
                count += 1
                is_row = isinstance(item, dict | list)
                if is_row and split_of(key) is None and stream.position - start > _ENOUGH_CHARACTERS:
                    return [*members, _Member(key, _held(first, count), count, first)], True
            members.append(_Member(key, _held(first, count), count, first))
        else:
            members.append(_Member(key, "object" if opening == "{" else "value", example=stream.value()))
        if len(members) >= _ENOUGH_MEMBERS and len({member.holds for member in members}) == 1:
            return members, True
    return members, False


def _held(first: Any, count: int) -> Literal["records", "arrays", "values", "nothing"]:
    if count == 0:
        return "nothing"
    return "records" if isinstance(first, dict) else "arrays" if isinstance(first, list) else "values"


def _choose_layout(path: Path, members: list[_Member]) -> JsonLayout:
    rows = [member for member in members if member.holds in ("records", "arrays")]
    lists = [member for member in members if member.holds in ("records", "arrays", "values")]
    objects = [member for member in members if member.holds == "object"]
    holding = lists or objects
    if len(holding) > 1 and all(split_of(member.key) is not None for member in holding):
        return JsonLayout("splits", tuple(member.key for member in holding))
    if {"columns", "data"} <= {member.key for member in lists}:
        return JsonLayout("member", ("data", "columns"))
    sizes = {member.size for member in lists}
    if len(lists) > 1 and len(rows) < len(lists) == len(members) <= max(_MOST_COLUMNS, *sizes) and len(sizes) == 1:
        return JsonLayout("columns")
    if len(rows) == 1:
        return JsonLayout("member", (rows[0].key,))
    if len(rows) > 1:
        if len(rows) == len(members) >= _MANY_LISTS:
            return JsonLayout("pairs")
        return JsonLayout("several", tuple(member.key for member in rows))
    if len(objects) > 1:
        inner = [set(member.example) for member in objects]
        is_numbered = all(keys and all(key.isdecimal() for key in keys) for keys in inner)
        is_columns = is_numbered and all(keys == inner[0] for keys in inner)
        return JsonLayout("columns" if is_columns else "keyed")
    if len(objects) == 1 and not lists and (deeper := _look_inside(objects[0])) is not None:
        return deeper
    are_lists = bool(lists) and len(lists) == len(members)
    total = sum(member.size for member in lists)
    are_texts = all(isinstance(member.example, str) for member in lists)
    if are_lists and 1 < len(lists) <= 50 and total >= 5 * len(lists) and are_texts:  # few long lists
        return JsonLayout("classes", tuple(member.key for member in lists))
    if len(members) >= _MANY_PAIRS and (are_lists or len({_plain_type(member.example) for member in members}) == 1):
        return JsonLayout("pairs")
    raise DataError(
        f"{path} is a JSON object in which no rows are found (its keys: {', '.join(one.key for one in members[:8])})",
        "Rows are the objects of a list, of the list of one key, or the values of an object keyed by id",
        "Write the rows as a list, [{...}, {...}], or set data.path to another file",
    )


def _look_inside(member: _Member) -> JsonLayout | None:
    """{"rasa_nlu_data": {"common_examples": [{...}, ...], "regex_features": []}}: the list one level deeper."""
    held: dict[str, Any] = member.example
    records = [key for key, value in held.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    largest = max(records, key=lambda key: len(held[key]), default=None)
    if largest is not None and all(len(held[largest]) > 5 * len(held[key]) for key in records if key != largest):
        return JsonLayout("inside", (member.key, largest))
    if not records and len(held) > 1 and all(isinstance(value, dict) for value in held.values()):
        return JsonLayout("inside", (member.key,))
    return None


def _plain_type(value: Any) -> str:
    return "text" if isinstance(value, str) else "number" if isinstance(value, int | float) else "other"


def read_json_rows(path: Path, encoding: str = "auto", keys: Sequence[str] = ()) -> Iterator[DataRow]:
    layout = find_json_layout(path, encoding)
    stream = JsonStream(path, encoding)
    match layout.kind:
        case "list":
            yield from _rows_of_items(stream.items())
        case "member" | "splits" | "several":
            if layout.kind != "member" and not keys:
                raise _several_lists(path, list(layout.keys))
            yield from _rows_of_members(stream, layout, keys or layout.keys)
        case "keyed":
            for key in stream.members():
                value = stream.value()
                if isinstance(value, dict):
                    yield {"id": key} | value
                elif isinstance(value, list):
                    yield BadRow("not an object", f"key '{key}' holds a list")
        case "columns":  # {"q": ["a", "b"]} or {"q": {"0": "a", "1": "b"}}: pandas writes both
            columns = stream.value()
            values = [list(column.values()) if isinstance(column, dict) else column for column in columns.values()]
            yield from (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))
        case "pairs":
            yield from ({"key": key, "value": stream.value()} for key in stream.members())
        case "classes":
            for key in stream.members():
                yield from ({"text": item, "label": key} for item in stream.items())
        case "inside":
            for key in stream.members():
                held = stream.value()
                if key == layout.keys[0] and len(layout.keys) > 1:
                    yield from _rows_of_items(iter(held[layout.keys[1]]))
                elif key == layout.keys[0]:
                    yield from ({"id": name} | value for name, value in held.items())
        case "documents":
            yield from _rows_of_items(_documents(stream))
            return
    stream.end()


def _documents(stream: JsonStream) -> Iterator[Any]:
    while stream.peek():
        yield stream.value()
        if stream.peek() == ",":
            stream.take(",")


def _rows_of_members(stream: JsonStream, layout: JsonLayout, keys: Sequence[str]) -> Iterator[DataRow]:
    names: list[str] | None = None
    for key in stream.members():
        if key == "columns" and layout.keys == ("data", "columns"):
            names = list(map(str, stream.value()))
        elif key in keys and stream.peek() == "[":
            yield from _rows_of_items(stream.items(), names)
        elif key in keys:
            objects = stream.value()
            yield from ({"id": name} | value for name, value in objects.items() if isinstance(value, dict))
        elif stream.peek() == "[":
            for item in stream.items():
                if isinstance(item, dict) and layout.kind == "member" and layout.keys == tuple(keys):
                    raise _several_lists(stream.path, [*keys, key])  # after a list too long to read past it before
        else:
            stream.value()


def _rows_of_items(items: Iterator[Any], names: list[str] | None = None) -> Iterator[DataRow]:
    """The items of a list: all are like the first, an object, an array or a plain value."""
    beginning = list(islice(items, SAMPLE_ROWS))
    first = beginning[0] if beginning else None
    if names is None and beginning and all(map(_is_record_list, beginning)):  # [[{...}, {...}], [{...}], ...]
        lists = (item if isinstance(item, list) else [item] for item in chain(beginning, items))
        yield from _rows_of_items(chain.from_iterable(lists))
        return
    if isinstance(first, list) and names is None:
        names, has_header = name_arrays(beginning)
        beginning = beginning[has_header:]
    for number, item in enumerate(chain(beginning, items), 1):
        yield as_row(item, first, names, f"item {number}")


def _is_record_list(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(record, dict) for record in item)


def name_arrays(arrays: Sequence[Any]) -> tuple[list[str], bool]:
    """Column names for arrays, and whether the first array holds them."""
    texts = [[str(value) for value in array] for array in arrays if isinstance(array, list)]
    first, below = texts[0], texts[1:]
    if below and all(map(is_known, first)) and classify_first_row(first, below).kind == "header":
        return name_columns(first), True
    return [f"column{number}" for number in range(1, len(first) + 1)], False


def as_row(item: Any, first: Any, names: list[str] | None, where: str) -> DataRow:
    """An object as it is, an array with column names, a plain value as column 'text'; all items are like `first`."""
    shown = repr(item)[:60]
    if isinstance(first, dict):
        return item if isinstance(item, dict) else BadRow("not an object", f"{where}: {shown}")
    if isinstance(first, list):
        names = names or []
        if not isinstance(item, list):
            return BadRow("not an array", f"{where}: {shown}")
        if len(item) != len(names):
            return BadRow(f"{len(item)} values instead of {len(names)}", f"{where}: {shown}")
        return dict(zip(names, item, strict=True))
    if isinstance(item, str | int | float):
        return {"text": item}
    return BadRow("not a text", f"{where}: {shown}")


def _several_lists(path: Path, keys: list[str]) -> DataError:
    return DataError(
        f"{path} has several lists of rows: {', '.join(keys[:8])}",
        "The rows of a split come from one list",
        f"Choose one, for example data.splits.train='{keys[0]}'",
    )


def read_squad(path: Path, encoding: str = "auto") -> Iterator[DataRow]:
    """One row per question of a SQuAD file (v1.1, or v2.0 with `is_impossible`)."""
    stream = JsonStream(path, encoding)
    found = False
    for key in stream.members():
        if key != "data" or stream.peek() != "[":
            stream.value()
            continue
        found = True
        for number, article in enumerate(stream.items(), 1):
            try:
                yield from _questions(article)
            except (KeyError, TypeError, AttributeError) as error:
                raise _no_squad(path, f"article {number}: {type(error).__name__} {error}") from error
    stream.end()
    if not found:
        raise _no_squad(path, "no list 'data'")


def _questions(article: DataRow) -> Iterator[DataRow]:
    for paragraph in article["paragraphs"]:
        for question in paragraph["qas"]:
            answers = question.get("answers") or []
            yield {
                "id": str(question.get("id", "")),
                "title": article.get("title", ""),
                "context": paragraph["context"],
                "question": question["question"],
                "answers": {
                    "text": [answer["text"] for answer in answers],
                    "answer_start": [answer.get("answer_start", -1) for answer in answers],
                },
                "is_impossible": bool(question.get("is_impossible", False)),
            }


def _no_squad(path: Path, what: str) -> DataError:
    return DataError(
        f"{path}: {what}",
        "SQuAD JSON is {data: [{title, paragraphs: [{context, qas: [{id, question, answers}]}]}]}",
        "Correct the file, or if its keys have other names, set data.format=json data.each=paragraphs.qas",
    )


def is_squad(path: Path, encoding: str = "auto") -> bool:
    """Whether the first article has paragraphs with questions and answers; reads no further than that."""
    stream = JsonStream(path, encoding)
    if stream.peek() != "{":
        return False
    for key in stream.members():
        opening = stream.peek()
        if opening == "[" and key == "data":
            first = next(stream.items(), None)
            if not isinstance(first, dict) or "paragraphs" not in first:
                return False
            parts = [part for part in first["paragraphs"] if isinstance(part, dict)]
            questions = [question for part in parts for question in part.get("qas", ())]
            return all(isinstance(one, dict) and "question" in one for one in questions)  # other keys need data.each
        if opening in "[{":
            return False
        stream.value()
    return False
