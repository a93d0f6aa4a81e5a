"""Calls of argparse and HfArgumentParser: options of the command line, where one is known, else their defaults.

parser.add_argument("--lr", default=3e-4)                 args.lr is 0.0003, or what the command line gives
HfArgumentParser((ModelArguments, TrainingArguments))     an object of each class, and training arguments
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqfit.conversion.found import ARGUMENTS, NO_DEFAULTS, Found, ScriptPart
from seqfit.conversion.interpreter import Interpreter
from seqfit.conversion.values import Class, Imported, ScriptCall, Thing, Unknown
from seqfit.recipe import trainer_names


class OptionCalls(ScriptPart):
    def __init__(
        self, interpreter: Interpreter, found: Found, options: Mapping[str, Any] | None, *, flags_known: bool
    ) -> None:
        super().__init__(interpreter, found)
        self.options = options  # of the command line, or None where there is none
        self.used: set[str] = set()
        self.flags_known = flags_known

    def read(self, call: ScriptCall) -> Any:
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
                    self.used.add(name.lstrip("-").replace("-", "_"))
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
                self.found.arguments.append(thing)
            elif isinstance(one, Class):
                thing = self.interpreter.make_object(one, given or {})
                self.used |= set(given or {}) & set(thing.fields)
            else:
                thing = Thing("namespace")
            found.append(thing)
        return found
