"""docs/records.md: the files of a run directory, every field and every event, from the dataclasses and their comments.

python -m seqfit.rundir.records_page > docs/records.md
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from types import ModuleType
from typing import Any

from seqfit.rundir import files, records

_UNITS = {  # the end of a field's name -> its unit
    "_bytes_per_second": "bytes/s",
    "tokens_per_second": "tokens/s",
    "flops_per_second": "FLOP/s",
    "seconds": "s",
    "bytes": "bytes",
    "tokens": "tokens",
    "share": "0 to 1",
    "shares": "0 to 1",
    "mfu": "0 to 1",
    "celsius": "°C",
    "watts": "W",
    "joules": "J",
    "hz": "Hz",
    "time": "s",
    "began": "s",
    "ended": "s",
}
_RECORDS = {
    files.STEPS: (records.StepRecord,),
    files.EVALUATIONS: (records.EvaluationRecord,),
    files.TELEMETRY: (records.TelemetryRecord, records.HostReading, records.GpuReading),
    files.EVENTS: (records.EventRecord,),
}
_MANIFEST = {
    "status": "running, finished, failed or interrupted",
    "started, ended": "Unix time; `ended` is null while it runs",
    "resumed": "Unix times at which it was resumed",
    "launch, processes": "what identifies the launch, and how many processes train together",
    "command, commit, versions, hardware": "where the run comes from",
    "precision, parameters, total_steps, steps": "what was trained, and how far",
    "data": "fingerprint, rows and token lengths of the splits, rows that were left out",
    "prediction": "predicted and measured peak memory (bytes), time per step and time of an evaluation (s)",
    "guessed": "what was guessed about data without a recipe",
    "phase_seconds": "seconds of each phase, from the last start of the run",
    "absent": "fields of the records that can't be computed here, and why",
}


def describe_records() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# Records of a run",
        "",
        "Made by `python -m seqfit.rundir.records_page` from the dataclasses; a test keeps it up to date.",
        "",
        "A run directory is the only connection between training and everything after it. Record files have one JSON",
        "object per line and are appended while training; other files are replaced as a whole. A value that is not",
        "known is null, never 0. Times are Unix time of one machine.",
        "",
        "```",
        inspect.cleandoc(files.__doc__ or "").partition("\n\n")[2].rstrip(),
        "```",
        "",
        f"## {files.MANIFEST}",
        "",
        *_table(["key", "meaning"], [[_code(key), meaning] for key, meaning in _MANIFEST.items()]),
    )
    for name, kinds in _RECORDS.items():
        yield from ("", f"## {name}")
        for kind in kinds:
            yield from ("", *(f"### {kind.__name__}" for _ in kinds[1:2]), *([""] if kinds[1:] else []))
            yield from (inspect.getdoc(kind) or "", "", *_table(["field", "type", "unit", "meaning"], _fields(kind)))
    yield from ("", "## Phases", "", "The keys of `phase_seconds`, in the order of a step:")
    yield from (", ".join(_code(phase) for phase in records.PHASES) + ".", "")
    yield from ("## Events", "", "Programs read `kind` and `data`; `message` is for people.", "")
    comments = _comments(records, records.EventKind)
    yield from _table(["kind", "meaning"], [[_code(kind), comments.get(kind.name, "")] for kind in records.EventKind])
    for event in records.EVENT_TYPES:
        yield from ("", f"### {event.kind}", "", *_table(["data", "type", "unit", "meaning"], _fields(event)))


def _fields(kind: type[Any]) -> Iterator[list[str]]:
    comments = _comments(inspect.getmodule(kind) or records, kind)
    for one in fields(kind):
        unit = next((unit for end, unit in _UNITS.items() if one.name.endswith(end)), "")
        yield [_code(one.name), _code(str(one.type).replace(" | ", " \\| ")), unit, comments.get(one.name, "")]


def _comments(module: ModuleType, kind: type[Any]) -> dict[str, str]:
    """Name of a field or member -> the comment on its line."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    classes = {node.name: node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    found = {}
    for node in classes[kind.__name__]:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            assert isinstance(target, ast.Name)
            assert node.end_lineno is not None
            found[target.id] = lines[node.end_lineno - 1].partition("  # ")[2].replace("|", "\\|")
    return found


def _code(text: str) -> str:
    return f"`{text}`"


def _table(heads: list[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    yield from (f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(describe_records(), end="")
