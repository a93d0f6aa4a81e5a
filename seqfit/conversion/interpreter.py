"""Python without running it: assignments, calls and branches -> the values that arguments have where they are given.

Nothing of the script is imported or executed. An expression's value is a constant, a `ColumnText` (text made of the
columns of a row), a `Thing` (a tokenizer, a model, a data set, an object of one of the script's classes), a function of
the script, or `Unknown` with the reason:

    BATCH = 2 * 8                                     16
    f"{OUT}/logs"                                     'runs/logs', where OUT is known
    ["summarize: " + x for x in examples["text"]]     ColumnText("summarize: {text}")
    args.learning_rate                                the default of add_argument, or what the command line gives
    compute_rate()                                    inlined where the script defines it, else Unknown

A function is followed where it is called, and one that nothing calls is followed once by itself. Both branches of an
`if` are read where its condition is not known, and a name that they leave with two values is Unknown. Calls of
transformers, datasets and others are interpreted by `calls.py`.
"""

from __future__ import annotations

import ast
import operator
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.conversion.reading import FILE, ScriptReading
from seqfit.conversion.values import (
    CallReader,
    Class,
    ColumnText,
    Function,
    Imported,
    Scope,
    ScriptCall,
    Thing,
    Unknown,
    Unpacked,
    Zipped,
    extend_column,
    is_constant,
    is_dataclass_field,
    is_one_column,
    is_same,
    list_fields,
    scopes_above,
)

_MOST_CALLS, _DEEPEST = 4000, 12
_LONGEST_TEXT, _LARGEST_POWER = 10_000, 64
_ROW_NAMES = {
    *("example", "examples", "batch", "row", "rows", "sample", "samples", "item", "record", "element", "ex", "x"),
    *("data", "features"),
}
_SPLIT_NAMES = frozenset(["train", "training", "validation", "valid", "val", "dev", "test", "eval"])
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, inside: item in inside,
    ast.NotIn: lambda item, inside: item not in inside,
}
_NO_CHANGES = {  # calls that look at a text, or give it to something else
    *("print", "unique", "isin", "set", "sample", "reset_index", "Series", "startswith", "endswith", "count", "type"),
    *("value_counts", "isinstance", "nunique", "sorted", "append", "info", "debug", "array", "groupby", "mean", "head"),
    *("describe", "zip", "isnull", "notnull", "isna", "notna", "any", "all", "index", "write"),
}
_SAME_TEXT = {
    *("strip", "rstrip", "lstrip", "tolist", "to_list", "copy", "astype", "flatten", "squeeze", "values", "numpy"),
    *("item", "str", "list", "int", "float", "fillna", "next", "iter", "tuple"),
}
_TEXT_METHODS = {
    *("strip", "lstrip", "rstrip", "lower", "upper", "replace", "split", "removeprefix", "removesuffix", "rsplit"),
    *("title", "startswith", "endswith", "partition", "rpartition"),
}
_MISSING = object()


class Interpreter:
    def __init__(self, reading: ScriptReading, folder: Path) -> None:
        self.reading = reading
        self.folder = folder
        self.calls: CallReader
        self.columns: dict[str, Any] = {}  # columns that the script makes itself
        self.globals = Scope()
        self._entered: set[int] = set()
        self._stack: list[ast.AST] = []
        self._modules: dict[str, Scope | None] = {}
        self._functions: list[Function] = []
        self._classes: list[Class] = []
        self._objects: list[Thing] = []
        self._budget = _MOST_CALLS
        self.depth = 0  # of functions; 0 is the module
        self.assumes_gpu: list[int] = []
        self.changes: list[tuple[str, str, int]] = []  # text of columns that the script changes, by what, line

    def run(self, module: ast.Module) -> None:
        self.globals.names["__name__"] = "__main__"
        self._block(module.body, self.globals)
        self._follow_the_rest(module)

    def _follow_the_rest(self, module: ast.Module) -> None:
        """Functions and methods that nothing called: whoever imports the script may. First those that call others."""
        calls = [node.func for node in ast.walk(module) if isinstance(node, ast.Call)]
        called = {self._call_name(function) for function in calls}
        made = {id(thing.fields["class"].node) for thing in self._objects}
        for found in list(self._classes):
            if id(found.node) not in made and found.foreign_base is None:
                self._instantiate(found, [], {})
        methods = [
            Function(value.node, value.scope, thing)
            for thing in self._objects
            for value in thing.fields["class"].body.names.values()
            if isinstance(value, Function)
        ]
        for function in sorted([*self._functions, *methods], key=lambda one: one.name in called):
            if id(function.node) not in self._entered:
                self.call_function(function, [], {})

    # Statements. A block gives the value of its return, or _MISSING.

    def _block(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        for statement in body:
            found = self._statement(statement, scope)
            if found is not _MISSING:
                return found
        return _MISSING

    def _statement(self, node: ast.stmt, scope: Scope) -> Any:
        match node:
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self._bind(target, value, scope)
            case ast.AnnAssign():
                if node.value is not None:
                    self._bind(node.target, self.value(node.value, scope), scope)
            case ast.AugAssign():
                before = self.value(node.target, scope)
                changed = self._combine(node.op, before, self.value(node.value, scope))
                self._bind(node.target, changed, scope)
            case ast.Expr():
                self.value(node.value, scope)
            case ast.Return():
                value = None if node.value is None else self.value(node.value, scope)
                self.calls.returned(value)
                return value
            case ast.If():
                return self._branch(node, scope)
            case ast.For() | ast.AsyncFor():
                self._bind(node.target, self._element(self.value(node.iter, scope)), scope)
                self._block(node.body, scope)
                self._block(node.orelse, scope)
            case ast.While():
                self.value(node.test, scope)
                self._block(node.body, scope)
            case ast.With() | ast.AsyncWith():
                return self._with(node, scope)
            case ast.Try():
                found = self._block([*node.body, *node.orelse], scope)
                last = self._block(node.finalbody, scope)
                return found if last is _MISSING else last
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                function = Function(node, scope)
                scope.names[node.name] = function
                self._functions.append(function)
            case ast.ClassDef():
                self._define_class(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.Raise():
                return Unknown("an error is raised there")
            case _:
                pass
        return _MISSING

    def _branch(self, node: ast.If, scope: Scope) -> Any:
        test = self.value(node.test, scope)
        if not isinstance(test, Unknown | ColumnText | Imported | Thing):
            return self._block(node.body if test else node.orelse, scope)
        before = dict(scope.names)
        first = self._block(node.body, scope)
        after_first, scope.names = scope.names, before
        second = self._block(node.orelse, scope)
        if isinstance(first, Unknown) and first.reason.startswith("an error is raised"):
            return second
        if first is not _MISSING and second is _MISSING:  # the rest of the block is the other branch
            return _MISSING if first is None or isinstance(first, Unknown) else first
        for name in {*after_first, *scope.names}:
            one, other = after_first.get(name, _MISSING), scope.names.get(name, _MISSING)
            if one is _MISSING or other is _MISSING or one is other or is_same(one, other):
                scope.names[name] = other if one is _MISSING else one
            else:
                scope.names[name] = Unknown(f"it depends on the 'if' in line {node.lineno}")
        return first if first is not _MISSING and second is not _MISSING else _MISSING

    def _with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> Any:
        entered = [self._call_name(item.context_expr) for item in node.items]
        for item, name in zip(node.items, entered, strict=True):
            value = self.value(item.context_expr, scope)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value, scope)
            self.calls.enter_with(name, True)
        found = self._block(node.body, scope)
        for name in entered:
            self.calls.enter_with(name, False)
        return found

    def _define_class(self, node: ast.ClassDef, scope: Scope) -> None:
        body = Scope(scope)
        found = Class(node, scope, [self.value(base, scope) for base in node.bases], body)
        scope.names[node.name] = found
        self._classes.append(found)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                body.names[statement.name] = Function(statement, scope)
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                self._statement(statement, body)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                inside = self._read_module(alias.name)
                name = alias.asname or alias.name.partition(".")[0]
                scope.names[name] = Imported(alias.name) if inside is None else Thing("module", inside.names)
            return
        inside = self._read_module(node.module or "")
        for alias in node.names:
            if alias.name == "*":
                scope.names.update({} if inside is None else inside.names)
                continue
            found = None if inside is None else inside.names.get(alias.name)
            scope.names[alias.asname or alias.name] = (
                found if found is not None else Imported(f"{node.module or ''}.{alias.name}".lstrip("."))
            )

    def _read_module(self, name: str) -> Scope | None:
        """A module of the script's own folder, read in the same way."""
        if name not in self._modules:
            self._modules[name] = None
            parts = name.split(".") if name else []
            for file in (self.folder.joinpath(*parts).with_suffix(".py"),) if parts else ():
                try:
                    tree = ast.parse(file.read_text("utf-8"))
                except (OSError, SyntaxError, ValueError):
                    continue
                self.reading.modules.append(file.name)
                ast.increment_lineno(tree, FILE * len(self.reading.modules))
                scope = Scope(names={"__name__": name})
                self._modules[name] = scope
                self._block(tree.body, scope)
        return self._modules[name]

    def _bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                if isinstance(value, Thing) and value.kind == "encoded":
                    value.fields["call"].setdefault("names", []).append(target.id)
                scope.names[target.id] = value
            case ast.Tuple() | ast.List():
                values = list(value) if isinstance(value, list | tuple) else []
                for index, one in enumerate(target.elts):
                    inside = values[index] if len(values) == len(target.elts) else self._part(value)
                    self._bind(one.value if isinstance(one, ast.Starred) else one, inside, scope)
            case ast.Attribute():
                holder = self.value(target.value, scope)
                if isinstance(holder, Thing):
                    holder.fields[target.attr] = value
                    self.calls.set_attribute(holder, target.attr, value, target)
            case ast.Subscript():
                holder, key = self.value(target.value, scope), self.value(target.slice, scope)
                if isinstance(holder, dict) and isinstance(key, str | int):
                    holder[key] = value
                self.calls.set_item(holder, key, value, target)
            case _:
                pass

    def _part(self, value: Any) -> Any:
        return Unknown("one of several values that a call returns") if not isinstance(value, ColumnText) else value

    # Expressions.

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
                return self._combine(node.op, self.value(node.left, scope), self.value(node.right, scope))
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
                return self._combine(node.ops[0], self.value(node.left, scope), self.value(node.comparators[0], scope))
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
                return self._join([self.value(part, scope) for part in node.values])
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
                return self._call(node, scope)
            case ast.NamedExpr():
                inner = self.value(node.value, scope)
                self._bind(node.target, inner, scope)
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
            return self.column(name)
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

    def make_object(self, found: Class, given: Mapping[str, Any]) -> Thing:
        """A dataclass whose fields come from the command line, where it gives them."""
        thing = self._instantiate(found, [], {})
        thing.fields |= {name: value for name, value in given.items() if name in list_fields(found)}
        for name in list_fields(found):
            thing.fields.setdefault(name, Unknown(f"'--{name}' has no default and is given on the command line"))
        return thing

    def join(self, parts: Sequence[Any]) -> Any:
        return self._join(parts)

    def column(self, name: str) -> Any:
        return self.columns.get(name, ColumnText(f"{{{name}}}"))

    def _item(self, holder: Any, key: Any, node: ast.Subscript, scope: Scope) -> Any:
        if isinstance(holder, Thing):
            if holder.kind == "row":
                return self.column(key) if isinstance(key, str) else holder
            if holder.kind in ("frame", "rows"):
                if isinstance(key, str):
                    return self.column(key)
                is_filter = isinstance(key, list) or isinstance(node.slice, ast.Slice) or holder.kind == "frame"
                return holder if is_filter and holder.kind == "frame" else Thing("row")
            if holder.kind == "dataset":
                if isinstance(key, str):
                    if key.lower() in _SPLIT_NAMES or key.lower().startswith(("train", "valid", "test", "dev")):
                        return Thing("dataset", {**holder.fields, "split": key}, node.lineno)
                    return self.column(key)
                return Thing("row")
            if holder.kind == "encoded":
                return holder
            return Unknown("its content is known only when it runs")
        if isinstance(holder, ColumnText):
            if isinstance(key, str) and is_one_column(holder):
                return ColumnText(extend_column(holder.text, key))
            return holder
        if isinstance(holder, dict | list | str | Unknown) and isinstance(key, ColumnText):  # a table of labels
            self._note_change(key, ast.unparse(node.value), node)
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

    def _combine(self, op: ast.AST, left: Any, right: Any) -> Any:
        if isinstance(op, ast.Add) and (isinstance(left, ColumnText) or isinstance(right, ColumnText)):
            return self._join([left, right])
        if isinstance(op, ast.Mod) and isinstance(left, str) and not is_constant(right):
            parts = right if isinstance(right, list) else [right]
            pieces = left.split("%s")
            if len(pieces) == len(parts) + 1:
                return self._join([one for pair in zip(pieces, [*parts, ""], strict=True) for one in pair])
        for one in (left, right):
            if isinstance(one, Unknown):
                return one
        function = _OPERATORS.get(type(op))
        if isinstance(op, ast.Pow) and isinstance(right, int | float) and abs(right) <= _LARGEST_POWER:
            function = operator.pow
        if isinstance(op, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
            return left | right
        if isinstance(op, ast.Mult) and isinstance(left, str | list | tuple) | isinstance(right, str | list | tuple):
            return Unknown("it is repeated")
        if isinstance(op, ast.Div) and isinstance(left, str) and isinstance(right, str):
            return f"{left.rstrip('/')}/{right}"  # paths
        is_list = isinstance(op, ast.Add) and isinstance(left, list) and isinstance(right, list)
        if function is None or not (is_list or (is_constant(left) and is_constant(right))):
            return Unknown("it is computed when it runs")
        try:
            found = function(left, right)
        except (ArithmeticError, TypeError, ValueError, OverflowError) as error:
            return Unknown(f"it can't be computed: {error}")
        return Unknown("its text is too long") if isinstance(found, str) and len(found) > _LONGEST_TEXT else found

    def _join(self, parts: Sequence[Any]) -> Any:
        """Text from pieces; a template where one of them comes from a column."""
        texts = []
        for part in parts:
            if isinstance(part, Unknown):
                return part
            if isinstance(part, ColumnText):
                texts.append(part.text)
            elif is_constant(part):
                text = str(part)
                if any(isinstance(one, ColumnText) for one in parts) and any(mark in text for mark in "{}"):
                    return Unknown("text with braces cannot be a part of a template")
                texts.append(text)
            else:
                return Unknown("a part of the text is known only when it runs")
        joined = "".join(texts)
        return ColumnText(joined) if any(isinstance(part, ColumnText) for part in parts) else joined

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
            self._bind(generator.target, self._element(self.value(generator.iter, inner)), inner)
        return inner

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Any:
        over = self.value(node.generators[0].iter, scope)
        if isinstance(over, list) and not isinstance(over, Zipped) and not node.generators[0].ifs:
            found = []
            for one in over if len(node.generators) == 1 and all(map(is_constant, over)) else []:
                inner = Scope(scope)
                self._bind(node.generators[0].target, one, inner)
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

    def _element(self, value: Any) -> Any:
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

    # Calls.

    def _call_name(self, node: ast.expr) -> str:
        inner = node.func if isinstance(node, ast.Call) else node
        return inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        self._budget -= 1
        if self._budget < 0:
            return Unknown("the script is too long to follow every call")
        args, unpacked = [], []
        for one in node.args:
            value = self.value(one, scope)
            if isinstance(one, ast.Starred):
                args += value if isinstance(value, list) else []
                unpacked += [] if isinstance(value, list) else [ast.unparse(one)]
            else:
                args.append(value)
        kwargs: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                kwargs[keyword.arg], lines[keyword.arg] = value, keyword.value.lineno
            elif isinstance(value, dict):
                for key, item in value.items():
                    if isinstance(key, str):
                        kwargs[key], lines[key] = item, keyword.value.lineno
                    else:
                        unpacked.append(f"**{ast.unparse(keyword.value)}")
            else:
                unpacked.append(f"**{ast.unparse(keyword.value)}")
        owner = self.value(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None
        # Of `load_dataset(...).map(...)` the inner call is followed once.
        function = (
            self._attribute(owner, node.func) if isinstance(node.func, ast.Attribute) else self.value(node.func, scope)
        )
        name, path = self._call_name(node), ast.unparse(node.func)
        if isinstance(function, Class):
            foreign = function.foreign_base
            if foreign is None:
                return self._instantiate(function, args, kwargs)
            name = foreign.name
        elif isinstance(function, Imported):
            name = function.name
        found = self.calls.read(ScriptCall(node, name, path, owner, function, args, kwargs, unpacked, lines))
        if found is not None:
            return found
        if isinstance(function, Class):
            return self._instantiate(function, args, kwargs)
        if isinstance(function, Function):
            return self.call_function(function, args, kwargs)
        if isinstance(function, Thing) and function.kind == "object":
            method = function.fields["class"].find("__call__")
            if isinstance(method, Function):
                return self.call_function(Function(method.node, method.scope, function), args, kwargs)
        return self._builtin(name, path, owner, args, kwargs, node)

    def call_function(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if function.node in self._stack or len(self._stack) >= _DEEPEST:
            return Unknown(f"{function.name}() calls itself")
        is_followed_alone = not args and not kwargs
        self._entered.add(id(function.node))
        self._stack.append(function.node)
        self.depth += 1
        scope = Scope(function.scope)
        try:
            self._bind_parameters(function, list(args), dict(kwargs), scope, guess=is_followed_alone)
            if isinstance(function.node, ast.Lambda):
                found = self.value(function.node.body, scope)
                self.calls.returned(found)
            else:
                found = self._block(function.node.body, scope)
        finally:
            self._stack.pop()
            self.depth -= 1
        return None if found is _MISSING else found

    def _bind_parameters(
        self, function: Function, args: list[Any], kwargs: dict[str, Any], scope: Scope, *, guess: bool
    ) -> None:
        spec = function.node.args
        named = [*spec.posonlyargs, *spec.args]
        is_static = any(
            getattr(one, "id", "") == "staticmethod" for one in getattr(function.node, "decorator_list", ())
        )
        if function.owner is not None and named and not is_static:
            scope.names[named.pop(0).arg] = function.owner
        defaults = dict(zip([one.arg for one in named][len(named) - len(spec.defaults) :], spec.defaults, strict=False))
        defaults |= {
            one.arg: default
            for one, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
            if default is not None
        }
        for one in [*named, *spec.kwonlyargs]:
            name = one.arg
            if args and one in named:
                scope.names[name] = args.pop(0)
            elif name in kwargs:
                scope.names[name] = kwargs.pop(name)
            elif name in defaults:
                scope.names[name] = self.value(defaults[name], function.scope)
            elif guess and name.lower() in _ROW_NAMES:
                scope.names[name] = Thing("row")
            elif guess and "tokenizer" in name.lower():
                scope.names[name] = Thing("tokenizer")
            else:
                scope.names[name] = Unknown(f"'{name}' is a parameter of {function.name}(), and no call gives it")
        if spec.kwarg is not None:
            scope.names[spec.kwarg.arg] = kwargs
        if spec.vararg is not None:
            scope.names[spec.vararg.arg] = args

    def _instantiate(self, found: Class, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Thing:
        thing = Thing("object", {"class": found}, found.node.lineno)
        self._objects.append(thing)
        chain = [found]
        while chain and isinstance(chain[-1].bases[0] if chain[-1].bases else None, Class):
            chain.append(chain[-1].bases[0])
        for one in reversed(chain):
            for name, value in one.body.names.items():
                if not isinstance(value, Function):
                    thing.fields[name] = value.fields["default"] if is_dataclass_field(value) else value
        start = found.find("__init__")
        if isinstance(start, Function):
            self.call_function(Function(start.node, start.scope, thing), args, kwargs)
        else:  # a dataclass
            thing.fields |= {**dict(zip(list_fields(found), args, strict=False)), **kwargs}
        return thing

    def _builtin(
        self, name: str, path: str, owner: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> Any:
        first = args[0] if args else None
        if isinstance(owner, ColumnText) or (isinstance(first, ColumnText) and owner is None):
            return self._text_call(name, owner, args, node)
        if isinstance(owner, Imported) and isinstance(first, ColumnText):
            self._note_change(first, path, node)  # re.sub(..., text), clean(text)
            return first
        for one in (owner, *args, *kwargs.values()):
            is_ours = isinstance(owner, Thing | Unknown) or is_constant(owner)
            if isinstance(one, Unknown) and is_ours:
                return one
        if name in ("int", "float", "str", "bool", "abs", "round", "len", "max", "min") and owner is None:
            kinds = {"int": int, "float": float, "str": str, "bool": bool, "abs": abs, "round": round, "len": len}
            try:
                many = args[0] if len(args) == 1 and isinstance(first, list) else args
                if name in ("max", "min"):
                    return {"max": max, "min": min}[name](many)
                if name == "len" or all(map(is_constant, args)):
                    return kinds[name](*args)  # type: ignore[operator]
            except (TypeError, ValueError):
                return Unknown(f"{path}() does not take it")
        if name in ("join", "Path", "PosixPath", "abspath", "expanduser", "as_posix", "resolve", "absolute"):
            pieces = [owner, *args] if name in ("as_posix", "resolve", "absolute") else args
            if name == "join" and isinstance(owner, str):
                inside = first if isinstance(first, list) else []
                return self._join([one for part in inside for one in (part, owner)][:-1])
            if pieces and all(isinstance(one, str) for one in pieces):
                return "/".join([*(one.rstrip("/") for one in pieces[:-1]), pieces[-1]])
        if name == "dict" and owner is None:
            return {**(first if isinstance(first, dict) else {}), **kwargs}
        if name in ("list", "tuple", "set", "sorted") and owner is None and args:
            return first
        if name == "zip" and owner is None:
            return list(args) if not all(isinstance(one, ColumnText) for one in args) else Zipped(args)
        if name == "enumerate" and args:
            return Zipped([Unknown("it counts"), self._element(first)])
        if name in ("getenv", "get") and path.startswith("os."):
            default = args[1] if len(args) > 1 else None
            return Unknown("it is an environment variable" + (f", by default {default}" if default is not None else ""))
        if isinstance(owner, str) and name in _TEXT_METHODS and all(map(is_constant, args)):
            try:
                return getattr(owner, name)(*args, **kwargs)
            except (TypeError, ValueError, IndexError, KeyError):
                return Unknown(f".{name}() does not take it")
        if isinstance(owner, str) and name == "format":
            return self._format(owner, args, kwargs)
        if isinstance(owner, dict) and name in ("get", "pop"):
            return owner.get(first, args[1] if len(args) > 1 else None) if is_constant(first) else Unknown("its key")
        if isinstance(owner, dict) and name == "update" and isinstance(first, dict):
            owner.update(first | kwargs)
            return owner
        if isinstance(owner, dict) and name == "update":
            owner.update(kwargs)
            return owner
        if isinstance(owner, dict) and name == "copy":
            return dict(owner)
        if isinstance(owner, list) and name in ("append", "extend"):
            owner += [first] if name == "append" else first if isinstance(first, list) else []
            return owner
        if isinstance(owner, Thing) and owner.kind == "row" and name == "get" and isinstance(first, str):
            return self.column(first)
        if isinstance(owner, Thing) and owner.kind == "encoded":
            return owner
        return Unknown(f"{path}() is known only when it runs")

    def _text_call(self, name: str, owner: Any, args: list[Any], node: ast.Call) -> Any:
        """A call of text from a column: its own method, or str(text)."""
        if name == "len":
            return Unknown("it depends on the row")
        if name in ("zip",):
            return Zipped(args)
        if name == "enumerate":
            return Zipped([Unknown("it counts"), args[0]])
        if name == "join" and isinstance(owner, ColumnText):
            return owner
        template = owner if isinstance(owner, ColumnText) else args[0]
        if name not in _SAME_TEXT:
            self._note_change(template, name, node)
        return template

    def _note_change(self, template: ColumnText, by: str, node: ast.expr) -> None:
        if by.rpartition(".")[2] not in _NO_CHANGES:
            self.changes.append((template.text, by, node.lineno))

    def _format(self, text: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        parts: list[Any] = []
        count = 0
        for before, name, _, _ in string.Formatter().parse(text):
            parts.append(before)
            if name is None:
                continue
            if name == "" or name.isdecimal():
                index = int(name) if name else count
                count += 1
                parts.append(args[index] if index < len(args) else Unknown("a part of the text is missing"))
            else:
                parts.append(kwargs.get(name, Unknown("a part of the text is missing")))
        return self._join(parts)
