"""YAML 1.2: text -> plain values, plain values -> text; and plain values by dotted names.

PyYAML reads YAML 1.1, where a learning rate of 3e-4 is a string and PubMedQA's labels yes, no, maybe are true, false
and a string. YAML 1.2 has none of this:

    {rate: 3e-4, labels: [yes, no], size: 010}   ->   {"rate": 0.0003, "labels": ["yes", "no"], "size": 10}

Strings are quoted on writing so that readers of both versions get the same values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
# The core schema of YAML 1.2.2, section 10.3.2. Dates stay text: no field of ours is one.
_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    "merge": (r"<<", ["<"]),
}


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.2 and notes repeated keys, of which PyYAML silently keeps the last."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                self.repeated.append(f"line {line}: '{name}' is given already in line {lines[name]}. Keep one of them.")
            lines[name] = line
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes a string that either version of YAML would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


_Loader.yaml_implicit_resolvers = {}  # PyYAML's own are those of YAML 1.1; the dumper keeps them
for _kind, (_pattern, _firsts) in _SCALARS.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})$"), _firsts)
_Loader.add_constructor(_TAG + "int", _construct_int)


def read_yaml(text: str) -> tuple[Any, list[str]]:
    """The values, and a sentence for each repeated key. Raises yaml.YAMLError where the text is not YAML."""
    loader = _Loader(text)
    try:
        return loader.get_single_data(), loader.repeated
    finally:
        loader.dispose()


def write_yaml(values: Any) -> str:
    text = _dump(values, allow_unicode=True)
    # Unescaped, these three end a line, and a key or text that has one would be read back differently.
    return _dump(values, allow_unicode=False) if any(char in text for char in "\x85\u2028\u2029") else text


def write_flow(value: Any) -> str:
    """In one line: {'epochs': 3} -> '{epochs: 3}', 0.0003 -> '0.0003', 'a: b' -> 'a: b', None -> 'null'."""
    if isinstance(value, str):
        return value
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6, default_flow_style=True)
    return text.removesuffix("...\n").strip()


def _dump(values: Any, *, allow_unicode: bool) -> str:
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=allow_unicode, width=120)


def flatten(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """{'train': {'steps': 3}} -> {'train.steps': 3}; a list is one value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{above}.{key}" if above else key
        flat |= flatten(value, path) if isinstance(value, Mapping) else {path: value}
    return flat
