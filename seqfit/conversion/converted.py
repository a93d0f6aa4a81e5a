"""What comes out of a script: a recipe, where each field comes from, and what was not read; as text, and as a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.conversion.reading import ScriptSettings
from seqfit.errors import RecipeError
from seqfit.system import quote
from seqfit.yaml_text import write_flow, write_yaml


@dataclass(frozen=True)
class Taken:
    """One setting of the script: where, what it says, and what to write, or why nothing has to be."""

    place: str
    said: str
    changes: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True)
class NotRead:
    place: str
    what: str
    why: str


@dataclass(frozen=True)
class Conversion:
    name: str
    recipe: dict[str, Any]
    options: dict[str, Any]  # of `seqfit train`, such as --out
    taken: list[Taken]
    not_needed: list[Taken]
    not_read: list[NotRead]
    missing: list[str]
    script: ScriptSettings
    is_file: bool = True

    def describe(self) -> str:
        """One sentence for whoever uses the recipe at once."""
        counts = f"{len(self.taken)} settings taken, {len(self.not_read)} not read or not carried over"
        return f"the recipe, from {self.name}: {counts}; they are listed by: seqfit convert {quote(self.name)}"


def format_conversion(conversion: Conversion, file: str = "") -> str:
    """The whole report: what was taken, what is not needed, what was not read, what is missing, and what comes next."""
    lines = [f"{conversion.name} -> {file}" if file else conversion.name, "", "taken:"]
    for one in conversion.taken:
        written = ", ".join(
            f"{path}: {_shown(value)}" if not path.startswith("--") else f"{path} {value}"
            for path, value in one.changes.items()
        )
        lines.append(f"  {_said(one.place, one.said)}  ->  {written}{f'  ({one.note})' if one.note else ''}")
    rows = {
        "no field needed:": [(one.place, one.said, one.note) for one in conversion.not_needed],
        "not read, or not carried over:": [(one.place, one.what, one.why) for one in conversion.not_read],
    }
    for title, listed in rows.items():
        lines += ["", title, *(f"  {_said(place, what)}: {why}" for place, what, why in listed)] if listed else []
    if conversion.missing:
        lines += ["", "missing, to be written into the recipe:", *(f"  {one}" for one in conversion.missing)]
    if file and conversion.missing:
        lines += ["", f"next: write what is missing into {file}, then: seqfit validate {quote(file)}"]
    elif file:
        shown = quote(file)
        options = "".join(
            f" {name} {quote(str(value))}" if value is not True else f" {name}"
            for name, value in conversion.options.items()
            if name != "--resume"
        )
        lines += [
            "",
            f"next: seqfit validate {shown}; seqfit plan {shown} --gpu rtx3090; seqfit train {shown}{options}",
        ]
        if "strategy" in conversion.recipe:
            lines.append("'~strategy' after the recipe leaves precision, micro-batches and padding to the plan")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) and ("\n" in value or value != value.strip()) else write_flow(value)


def _said(place: str, said: str) -> str:
    return f"{place}: {said}" if place else said


def write_conversion(conversion: Conversion, file: Path) -> None:
    """The recipe as a file, with what it lacks as comments; an existing file is never overwritten."""
    comments = [
        f"# Converted from {conversion.name} by 'seqfit convert'.",
        *(f"# missing: {one}" for one in conversion.missing),
    ]
    comments += [
        f"# not read: {_said(one.place, one.what)}: {one.why}".replace("\n", " ") for one in conversion.not_read
    ]
    text = "\n".join([*comments, write_yaml(conversion.recipe)])
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise RecipeError(f"'{file}' exists", "a file is never overwritten", "Name another with -o NEW.yaml") from error
    except OSError as error:
        raise RecipeError(
            f"'{file}': {error.strerror}", "the recipe is written there", "Name another place with -o"
        ) from error
