"""An expression of a script -> its value: a constant, a text made of columns, an object, or Unknown with the reason.

    BATCH * 2                          what its parts are, combined
    examples["article"]                ColumnText("{article}")
    args.learning_rate                 a field of an object that the script made
    [p + x for x in rows["text"]]      the value of one element

Calls and assignments inside of expressions (`:=`, the loop variables of comprehensions) are the interpreter's.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from seqfit.conversion.operations import combine, join_text
from seqfit.conversion.values import (
    Class,
    Columns,
    ColumnText,
    Function,
    Imported,
    Scope,
    Thing,
    Unknown,
    Unpacked,
    Zipped,
    element_of,
    extend_column,
    is_constant,
    is_one_column,
    is_same,
    scopes_above,
)

_SPLIT_NAMES = frozenset(["train", "training", "validation", "valid", "val", "dev", "test", "eval"])


class ExpressionReader(ABC):
    def __init__(self) -> None:
        self.columns = Columns()

    @abstractmethod
    def call(self, node: ast.Call, scope: Scope) -> Any: ...

    @abstractmethod
    def bind(self, target: ast.expr, value: Any, scope: Scope) -> None: ...

    def value(self, node: ast.expr, scope: Scope) -> Any:
        try:
            return self._value(node, scope)
        except RecursionError:
            return Unknown("its definition is too deep to follow")

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                found = scope.find(node.id)
                if found is None and node.id not in ("None",):
                    known_none = any(node.id in one.names for one in scopes_above(scope))
                    return None if known_none else Imported(node.id)
                return found
            case ast.Attribute():
                return self._attribute(self.value(node.value, scope), node)
            case ast.Subscript():
                holder = self.value(node.value, scope)
                key = None if isinstance(node.slice, ast.Slice) else self.value(node.slice, scope)
                return self._item(holder, key, node, scope)
            case ast.BinOp():
                return combine(node.op, self.value(node.left, scope), self.value(node.right, scope))
            case ast.UnaryOp():
                inner = self.value(node.operand, scope)
                if isinstance(inner, Unknown):
                    return inner
                if isinstance(node.op, ast.Not):
                    return not inner if is_constant(inner) else Unknown("it depends on an object")
                if isinstance(inner, int | float):
                    return -inner if isinstance(node.op, ast.USub) else inner
                return Unknown("it is not a number")
            case ast.BoolOp():
                return self._either(node, scope)
            case ast.Compare() if len(node.ops) == 1:
                return combine(node.ops[0], self.value(node.left, scope), self.value(node.comparators[0], scope))
            case ast.IfExp():
                test = self.value(node.test, scope)
                if is_constant(test):
                    return self.value(node.body if test else node.orelse, scope)
                one, other = self.value(node.body, scope), self.value(node.orelse, scope)
                if isinstance(one, ColumnText) and (isinstance(test, ColumnText | Unknown)):
                    return one  # text that an empty row lacks
                reason = test.reason if isinstance(test, Unknown) else "its condition is known only when it runs"
                return one if is_same(one, other) else Unknown(reason)
            case ast.JoinedStr():
                return join_text([self.value(part, scope) for part in node.values])
            case ast.FormattedValue():
                inner = self.value(node.value, scope)
                if node.format_spec is not None and is_constant(inner):
                    spec = self.value(node.format_spec, scope)
                    try:
                        return format(inner, spec) if isinstance(spec, str) else Unknown("its format is not known")
                    except (TypeError, ValueError):
                        return Unknown("its format does not fit")
                return inner
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value(one, scope) for one in node.elts]
            case ast.Dict():
                return self._dict(node, scope)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node, scope)
            case ast.DictComp():
                inner_scope = self._enter_generators(node.generators, scope)
                self.value(node.value, inner_scope)
                return Unknown("it is made by a comprehension")
            case ast.Lambda():
                return Function(node, scope)
            case ast.Call():
                return self.call(node, scope)
            case ast.NamedExpr():
                inner = self.value(node.value, scope)
                self.bind(node.target, inner, scope)
                return inner
            case ast.Starred() | ast.Await():
                return self.value(node.value, scope)
            case _:
                return Unknown("it is computed when it runs")

    def _attribute(self, holder: Any, node: ast.Attribute) -> Any:
        name = node.attr
        if isinstance(holder, Imported):
            return Imported(f"{holder.path}.{name}")
        if isinstance(holder, Class):
            found = holder.find(name)
            return Unknown(f"{holder.node.name} has no {name}") if found is None else found
        if isinstance(holder, Thing):
            return self._attribute_of_thing(holder, name, node)
        if isinstance(holder, Unknown):
            return holder
        if isinstance(holder, ColumnText):
            return ColumnText(extend_column(holder.text, name)) if is_one_column(holder) and name != "str" else holder
        return Unknown(f".{name} is known only when it runs")

    def _attribute_of_thing(self, holder: Thing, name: str, node: ast.Attribute) -> Any:
        if name in holder.fields:
            found = holder.fields[name]
            return Function(found.node, found.scope, holder) if isinstance(found, Function) else found
        if holder.kind == "object":
            found = holder.fields["class"].find(name)
            if isinstance(found, Function):
                return Function(found.node, found.scope, holder)
            return Unknown(f"{name} is set elsewhere") if found is None else found
        if holder.kind in ("row", "frame") and name not in ("columns", "iloc", "loc", "values", "shape", "index"):
            return self.columns.find(name)
        if holder.kind == "frame" and name in ("iloc", "loc"):
            return Thing("rows")
        if holder.kind == "encoded":
            return holder
        if holder.kind == "model" and name in ("config", "generation_config"):
            return Thing("config", {"model": holder})
        if holder.kind in ("model", "part"):
            return Thing("part", {"name": name})
        if holder.kind == "namespace":
            return Unknown(f"'{name}' is given on the command line, not in the script")
        return Unknown(f".{name} is known only when it runs")

    def _item(self, holder: Any, key: Any, node: ast.Subscript, scope: Scope) -> Any:
        if isinstance(holder, Thing):
            if holder.kind == "row":
                return self.columns.find(key) if isinstance(key, str) else holder
            if holder.kind in ("frame", "rows"):
                if isinstance(key, str):
                    return self.columns.find(key)
                is_filter = isinstance(key, list) or isinstance(node.slice, ast.Slice) or holder.kind == "frame"
                return holder if is_filter and holder.kind == "frame" else Thing("row")
            if holder.kind == "dataset":
                if isinstance(key, str):
                    if key.lower() in _SPLIT_NAMES or key.lower().startswith(("train", "valid", "test", "dev")):
                        return Thing("dataset", {**holder.fields, "split": key}, node.lineno)
                    return self.columns.find(key)
                return Thing("row")
            if holder.kind == "encoded":
                return holder
            return Unknown("its content is known only when it runs")
        if isinstance(holder, ColumnText):
            if isinstance(key, str) and is_one_column(holder):
                return ColumnText(extend_column(holder.text, key))
            return holder
        if isinstance(holder, dict | list | str | Unknown) and isinstance(key, ColumnText):  # a table of labels
            self.columns.note_change(key, ast.unparse(node.value), node.lineno)
            return key
        if isinstance(holder, dict | list | str) and is_constant(key) and key is not None:
            try:
                return holder[key]
            except (KeyError, IndexError, TypeError):
                return Unknown(f"there is no {key!r} in it")
        if isinstance(holder, str | list) and isinstance(node.slice, ast.Slice):
            bounds = [
                None if part is None else self.value(part, scope) for part in (node.slice.lower, node.slice.upper)
            ]
            if all(bound is None or isinstance(bound, int) for bound in bounds):
                return holder[slice(*bounds)]
        return holder if isinstance(holder, Unknown) else Unknown("its content is known only when it runs")

    def _either(self, node: ast.BoolOp, scope: Scope) -> Any:
        found: Any = None
        for one in node.values:
            found = self.value(one, scope)
            if not is_constant(found):
                return found if isinstance(found, Unknown | ColumnText) else Unknown("it depends on an object")
            if bool(found) == isinstance(node.op, ast.Or):
                return found
        return found

    def _dict(self, node: ast.Dict, scope: Scope) -> Any:
        found: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scope)
            if key is None:
                if isinstance(value, dict):
                    found |= value
                else:
                    reason = value.reason if isinstance(value, Unknown) else "it is known only when it runs"
                    found[Unpacked(item.lineno)] = Unknown(reason)
                continue
            name = self.value(key, scope)
            found[name if isinstance(name, str | int | float | bool) else Unpacked(key.lineno)] = value
        return found

    def _enter_generators(self, generators: Sequence[ast.comprehension], scope: Scope) -> Scope:
        inner = Scope(scope)
        for generator in generators:
            self.bind(generator.target, element_of(self.value(generator.iter, inner)), inner)
        return inner

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Any:
        over = self.value(node.generators[0].iter, scope)
        if isinstance(over, list) and not isinstance(over, Zipped) and not node.generators[0].ifs:
            found = []
            for one in over if len(node.generators) == 1 and all(map(is_constant, over)) else []:
                inner = Scope(scope)
                self.bind(node.generators[0].target, one, inner)
                found.append(self.value(node.elt, inner))
            if found:
                return found
        inner_scope = self._enter_generators(node.generators, scope)
        found = self.value(node.elt, inner_scope)
        if isinstance(over, Thing) and over.kind == "encoded":  # padding replaced by -100
            return over
        if isinstance(found, ColumnText | Thing):
            return found
        if isinstance(found, list) and len(found) == 1 and isinstance(found[0], ColumnText):
            return found[0]
        return found if isinstance(found, Unknown) else Unknown("it is made by a comprehension")
