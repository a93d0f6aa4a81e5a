"""JSON files of any size as rows, one at a time, without reading the whole file.

In: a path. Out: rows. Three layouts hold rows, and SQuAD is a fourth:

    [{"q": "a"}, {"q": "b"}]                            -> {"q": "a"}, {"q": "b"}
    {"version": 1, "data": [{"q": "a"}]}                -> {"q": "a"}
    {"17": {"q": "a"}, "18": {"q": "b"}}                -> {"id": "17", "q": "a"}, {"id": "18", "q": "b"}
    {"data": [{"title": .., "paragraphs": [..]}]}       -> one row per question (`read_squad`)

The one idea: `JsonStream` keeps a window of the text. A value that does not parse may only be cut off by the end of
the window, so the window doubles and the value is tried again; an error well inside the window is a real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from seqfit.data.rows import Row
from seqfit.data.text_files import read_chunks
from seqfit.errors import DataError, complain

_WHITESPACE = " \t\r\n"
_LONGEST_LITERAL = 16  # "-Infinity" or "\ud83d\ude00": an error this near the end may come from the cut
_KEYED_AFTER = 3  # so many objects in a row at the top mean rows keyed by id, fewer may be a file's header


class JsonStream:
    """A cursor over the text of one JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chunks = read_chunks(path)
        self._decoder = json.JSONDecoder()
        self._window = ""
        self._at = 0
        self._lines_before = 0  # line ends in the text that has left the window
        self._columns_before = 0  # characters since the last of them

    def peek(self) -> str:
        """The next character that is not white space; '' at the end."""
        while True:
            while self._at < len(self._window):
                if self._window[self._at] not in _WHITESPACE:
                    return self._window[self._at]
                self._at += 1
            if not self._grow():
                return ""

    def take(self, expected: str) -> None:
        """Steps over one of the expected characters."""
        found = self.peek()
        if not found or found not in expected:
            wanted = " or ".join(f"'{char}'" for char in expected)
            self.fail(f"expected {wanted}, found {repr(found) if found else 'the end of the file'}", self._at)
        self._at += 1

    def value(self) -> Any:
        """The whole value that begins here."""
        self.peek()
        while True:
            start = self._at
            try:
                value, end = self._decoder.raw_decode(self._window, start)
            except json.JSONDecodeError as error:
                cut = "Unterminated" in error.msg or error.pos > len(self._window) - _LONGEST_LITERAL
                if cut and self._grow():
                    continue
                what = error.msg.removesuffix(" at").removesuffix(" starting")
                # Not error.pos: the window may have moved in the attempt to make it longer.
                self.fail(what[0].lower() + what[1:], self._at + error.pos - start)
            if end == len(self._window) and self._grow():
                continue  # 12 may be the beginning of 123
            self._at = end
            return value

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; the caller consumes each value before the next key."""
        self.take("{")
        while self.peek() != "}":
            if self.peek() != '"':
                self.fail("expected a key in double quotes", self._at)
            key = str(self.value())
            self.take(":")
            yield key
            if self.peek() == "}":
                break
            self.take(",}")
            if self.peek() == "}":
                self.fail("a comma before the closing brace", self._at)
        self.take("}")

    def items(self) -> Iterator[Any]:
        """The values of the list that begins here."""
        self.take("[")
        while self.peek() != "]":
            yield self.value()
            if self.peek() == "]":
                break
            self.take(",]")
            if self.peek() == "]":
                self.fail("a comma before the closing bracket", self._at)
        self.take("]")

    def end(self) -> None:
        """Nothing may follow the document."""
        if self.peek():
            self.fail("more text after the end of the document", self._at)

    def fail(self, what: str, at: int) -> NoReturn:
        """An error with line and column."""
        before = self._window[:at]
        line = 1 + self._lines_before + before.count("\n")
        column = at - before.rfind("\n") if "\n" in before else self._columns_before + at + 1
        raise DataError(
            complain(
                f"{self.path}, line {line}, column {column}: {what}",
                "The file must be valid JSON",
                "Correct it there (data.format=jsonl if every line is a document of its own)",
            )
        )

    def _grow(self) -> bool:
        """Drops what is consumed and doubles the rest; False at the end of the file."""
        gone = self._window[: self._at]
        self._lines_before += gone.count("\n")
        self._columns_before = len(gone) - 1 - gone.rfind("\n") + (0 if "\n" in gone else self._columns_before)
        pieces, size = [self._window[self._at :]], 0
        while size <= len(pieces[0]) and (chunk := next(self._chunks, None)) is not None:
            pieces.append(chunk)
            size += len(chunk)
        self._window, self._at = "".join(pieces), 0
        return size > 0


def read_json(path: Path) -> Iterator[Row]:
    """Rows of a list, of an object with one list, or of an object keyed by id."""
    stream = JsonStream(path)
    match stream.peek():
        case "[":
            for number, item in enumerate(stream.items(), 1):
                yield _as_row(item, path, f"item {number}")
        case "{":
            yield from _rows_of_object(stream)
        case "":
            raise DataError(complain(f"{path} is empty", "A data file needs rows", "Set data.path to another file"))
        case _:
            stream.fail("expected [ or { at the beginning", 0)
    stream.end()


def _rows_of_object(stream: JsonStream) -> Iterator[Row]:
    listed: str | None = None
    pending: list[Row] = []  # objects that are either the first rows or a header before the list
    keyed = False
    for key in stream.members():
        opening = stream.peek()
        if opening == "[":
            rows = stream.items()
            first = next(rows, None)
            if not isinstance(first, dict):
                _exhaust(rows)  # a list of plain values describes the file
                continue
            if keyed or listed is not None:
                raise _two_layouts(stream.path, listed or "objects keyed by id", key)
            listed, pending = key, []
            yield first
            for number, item in enumerate(rows, 2):
                yield _as_row(item, stream.path, f"{key}, item {number}")
        elif opening == "{" and listed is None:
            pending.append({"id": key} | stream.value())
            keyed = keyed or len(pending) == _KEYED_AFTER
            if keyed:
                yield from pending
                pending = []
        else:
            stream.value()
    yield from pending
    if listed is None and not keyed and not pending:
        raise DataError(
            complain(
                f"{stream.path} is an object without rows",
                "Rows are the objects of a list, of one key's list, or the values of an object keyed by id",
                "Write the rows as a list, or set data.path to another file",
            )
        )


def _exhaust(items: Iterator[Any]) -> None:
    for _ in items:
        pass


def _as_row(item: Any, path: Path, where: str) -> Row:
    if isinstance(item, dict):
        return item
    raise DataError(
        complain(f"{path}, {where}: {str(item)[:60]!r} is no object", "A row is an object", 'Write {"column": value}')
    )


def _two_layouts(path: Path, first: str, second: str) -> DataError:
    return DataError(
        complain(
            f"{path} has rows in two places: {first}, and the list '{second}'",
            "A file holds one list of rows",
            "Write each list to a file of its own, and name them in data.splits",
        )
    )


def read_squad(path: Path) -> Iterator[Row]:
    """One row per question of a SQuAD file (v1.1, or v2.0 with `is_impossible`)."""
    stream = JsonStream(path)
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


def _questions(article: Row) -> Iterator[Row]:
    for paragraph in article["paragraphs"]:
        for question in paragraph["qas"]:
            answers = question.get("answers") or []
            yield {
                "id": str(question["id"]),
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
        complain(
            f"{path}: {what}",
            "SQuAD JSON is {data: [{title, paragraphs: [{context, qas: [{id, question, answers}]}]}]}",
            "Set data.format=json for another layout",
        )
    )


def is_squad(path: Path) -> bool:
    """Whether the first article has paragraphs; reads no further than that."""
    stream = JsonStream(path)
    if stream.peek() != "{":
        return False
    for key in stream.members():
        opening = stream.peek()
        if opening == "[" and key == "data":
            first = next(stream.items(), None)
            return isinstance(first, dict) and "paragraphs" in first
        if opening in "[{":
            return False
        stream.value()
    return False
