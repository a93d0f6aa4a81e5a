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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.conversion.builtin_calls import call_builtin
from seqfit.conversion.expressions import ExpressionReader
from seqfit.conversion.operations import combine
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
    element_of,
    is_dataclass_field,
    is_same,
    list_fields,
)

_MOST_CALLS, _DEEPEST = 4000, 12
_ROW_NAMES = {
    *("example", "examples", "batch", "row", "rows", "sample", "samples", "item", "record", "element", "ex", "x"),
    *("data", "features"),
}
_MISSING = object()


class Interpreter(ExpressionReader):
    def __init__(self, reading: ScriptReading, folder: Path) -> None:
        super().__init__()
        self.reading = reading
        self.folder = folder
        self.calls: CallReader
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
                    self.bind(target, value, scope)
            case ast.AnnAssign():
                if node.value is not None:
                    self.bind(node.target, self.value(node.value, scope), scope)
            case ast.AugAssign():
                before = self.value(node.target, scope)
                changed = combine(node.op, before, self.value(node.value, scope))
                self.bind(node.target, changed, scope)
            case ast.Expr():
                self.value(node.value, scope)
            case ast.Return():
                value = None if node.value is None else self.value(node.value, scope)
                self.calls.returned(value)
                return value
            case ast.If():
                return self._branch(node, scope)
            case ast.For() | ast.AsyncFor():
                self.bind(node.target, element_of(self.value(node.iter, scope)), scope)
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
                self.bind(item.optional_vars, value, scope)
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

    def bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                if isinstance(value, Thing) and value.kind == "encoded":
                    value.fields["call"].setdefault("names", []).append(target.id)
                scope.names[target.id] = value
            case ast.Tuple() | ast.List():
                values = list(value) if isinstance(value, list | tuple) else []
                for index, one in enumerate(target.elts):
                    inside = values[index] if len(values) == len(target.elts) else self._part(value)
                    self.bind(one.value if isinstance(one, ast.Starred) else one, inside, scope)
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

    def make_object(self, found: Class, given: Mapping[str, Any]) -> Thing:
        """A dataclass whose fields come from the command line, where it gives them."""
        thing = self._instantiate(found, [], {})
        thing.fields |= {name: value for name, value in given.items() if name in list_fields(found)}
        for name in list_fields(found):
            thing.fields.setdefault(name, Unknown(f"'--{name}' has no default and is given on the command line"))
        return thing

    # Calls.

    def _call_name(self, node: ast.expr) -> str:
        inner = node.func if isinstance(node, ast.Call) else node
        return inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")

    def call(self, node: ast.Call, scope: Scope) -> Any:
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
        return call_builtin(self.columns, name, path, owner, args, kwargs, node.lineno)

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
