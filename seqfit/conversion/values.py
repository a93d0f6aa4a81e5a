"""What an expression of a script can be, and the scopes that hold it: constants stay Python's own.

Unknown("it is an environment variable")     no value, and why
ColumnText("summarize: {article}")           text made of the columns of a row
Imported("transformers.AutoTokenizer")       a name of another package
Thing("tokenizer", {"name": "t5-base"})      an object: of a library, or of a class of the script
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Unknown:
    reason: str


@dataclass(frozen=True)
class ColumnText:
    """Text made of columns: 'summarize: {article}'."""

    text: str


@dataclass(frozen=True)
class Imported:
    """A name of another package, 'transformers.AutoTokenizer'."""

    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(eq=False)
class Thing:
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    line: int | None = None


@dataclass(eq=False)
class Function:
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    owner: Thing | None = None  # the object whose method it is

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "lambda")


@dataclass(eq=False)
class Class:
    node: ast.ClassDef
    scope: Scope
    bases: list[Any]
    body: Scope

    def find(self, name: str) -> Any:
        if name in self.body.names:
            return self.body.names[name]
        for base in self.bases:
            if isinstance(base, Class) and (found := base.find(name)) is not None:
                return found
        return None

    @property
    def foreign_base(self) -> Imported | None:
        """What it extends outside of the script: Seq2SeqTrainer, Dataset, ..."""
        for base in self.bases:
            if isinstance(base, Imported):
                return base
            if isinstance(base, Class) and base.foreign_base is not None:
                return base.foreign_base
        return None


@dataclass(eq=False)
class Scope:
    above: Scope | None = None
    names: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.above
        return None


@dataclass(frozen=True)
class ScriptCall:
    """A call with its arguments read; `unpacked` are reasons why the content of a ** or * is not known."""

    node: ast.Call
    name: str  # 'from_pretrained', or what the script's class extends
    path: str  # 'AutoTokenizer.from_pretrained', as the script writes it
    owner: Any  # what stands before the last dot, if anything
    function: Any  # what is called, if the script defines it
    args: list[Any]
    kwargs: dict[str, Any]
    unpacked: list[str]
    lines: dict[str, int]

    @property
    def line(self) -> int:
        return self.node.lineno

    def get(self, name: str, position: int | None = None, default: Any = None) -> Any:
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if position is not None and position < len(self.args) else default


class CallReader(Protocol):
    """What calls of libraries mean; None where a call is not known."""

    def read(self, call: ScriptCall) -> Any: ...
    def set_attribute(self, thing: Thing, name: str, value: Any, node: ast.AST) -> None: ...
    def set_item(self, holder: Any, key: Any, value: Any, node: ast.AST) -> None: ...
    def enter_with(self, name: str, entered: bool) -> None: ...
    def returned(self, value: Any) -> None: ...


def list_fields(found: Class) -> list[str]:
    above = [name for base in found.bases if isinstance(base, Class) for name in list_fields(base)]
    own = [
        one.target.id for one in found.node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    return [*above, *own]


_NO_CHANGES = {  # calls that look at a text, or give it to something else
    *("print", "unique", "isin", "set", "sample", "reset_index", "Series", "startswith", "endswith", "count", "type"),
    *("value_counts", "isinstance", "nunique", "sorted", "append", "info", "debug", "array", "groupby", "mean", "head"),
    *("describe", "zip", "isnull", "notnull", "isna", "notna", "any", "all", "index", "write"),
}


@dataclass
class Columns:
    """The columns of the data: those that the script makes itself, and how it changes texts of others."""

    made: dict[str, Any] = field(default_factory=dict)
    changes: list[tuple[str, str, int]] = field(default_factory=list)  # text, by what, line

    def find(self, name: str) -> Any:
        return self.made.get(name, ColumnText(f"{{{name}}}"))

    def note_change(self, template: ColumnText, by: str, line: int) -> None:
        if by.rpartition(".")[2] not in _NO_CHANGES:
            self.changes.append((template.text, by, line))


class Zipped(list[Any]):
    """zip(a, b) of columns: each element is one row's texts."""


class Unpacked(int):
    """The place of a key that is not known."""


def scopes_above(scope: Scope) -> Iterator[Scope]:
    one: Scope | None = scope
    while one is not None:
        yield one
        one = one.above


def is_constant(value: Any) -> bool:
    """Whether it is a constant, or a container of constants."""
    if isinstance(value, list | tuple):
        return all(map(is_constant, value))
    if isinstance(value, dict):
        return all(map(is_constant, value.values()))
    return value is None or isinstance(value, str | int | float | bool)


def is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, Thing) and isinstance(other, Thing):
        # Of what has no name of its own, either branch serves; two models or data sets must be the same.
        serves = one.kind in ("object", "arguments", "namespace", "tokenizer", "collator")
        return one.kind == other.kind and (serves or (one.line == other.line and one.line is not None))
    return (
        type(one) is type(other) and (is_constant(one) or isinstance(one, ColumnText | Imported)) and bool(one == other)
    )


def is_one_column(template: ColumnText) -> bool:
    return template.text.startswith("{") and template.text.endswith("}") and template.text.count("{") == 1


def extend_column(text: str, key: str) -> str:
    return f"{text[:-1]}.{key}}}"


def is_dataclass_field(value: Any) -> bool:
    return isinstance(value, Thing) and value.kind == "field"


def element_of(value: Any) -> Any:
    """One element of what is iterated over."""
    if isinstance(value, ColumnText):
        return value
    if isinstance(value, Thing):
        return Thing("row") if value.kind in ("dataset", "frame", "rows") else value
    if isinstance(value, Unknown):
        return value
    if isinstance(value, Zipped):
        return list(value)
    return Unknown("it changes in a loop")
