"""The recipes that come with seqfit: their names, what each learns, and a copy to change.

A recipe is the file `library/NAME.yaml`; its comments give the reasons for its values, and a copy keeps them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from seqfit.errors import RecipeError, did_you_mean
from seqfit.yaml_text import read_yaml

LIBRARY = Path(__file__).parent / "library"


@dataclass(frozen=True)
class LibraryEntry:
    name: str
    description: str
    path: Path


def library_names() -> list[str]:
    return sorted(file.stem for file in LIBRARY.glob("*.yaml"))


def list_library() -> list[LibraryEntry]:
    """Sorted by name."""
    paths = [LIBRARY / f"{name}.yaml" for name in library_names()]
    return [LibraryEntry(path.stem, read_yaml(path.read_text("utf-8"))[0]["description"], path) for path in paths]


def copy_recipe(name: str, target: str | Path) -> Path:
    """Copy a recipe with its comments to a file, or into a folder; an existing file is never overwritten."""
    if name not in library_names():
        known = f"The library has {', '.join(library_names())}"
        change = did_you_mean(name, library_names()).strip() or "See 'seqfit ls'"
        raise RecipeError(f"There is no recipe '{name}'", known, change)
    file = Path(target).expanduser()
    file = file / f"{name}.yaml" if file.is_dir() else file
    text = _with_absolute_paths((LIBRARY / f"{name}.yaml").read_text(encoding="utf-8"))
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        rule = "A copy never overwrites"
        raise RecipeError(f"{file} already exists", rule, "Choose another name or remove it first") from error
    except OSError as error:
        rule = "The copy needs a folder it may write to"
        raise RecipeError(f"{file}: {error.strerror}", rule, "Create the folder or choose another") from error
    return file


def _with_absolute_paths(text: str) -> str:
    """Paths relative to the library made absolute, so that a copy elsewhere still means the same files."""

    def absolute(found: re.Match[str]) -> str:
        place = LIBRARY / found["path"]
        return f"{found['key']}{place}" if place.exists() else found[0]

    return re.sub(r"^(?P<key>\s+path: )(?P<path>[^\s#]+)", absolute, text, flags=re.MULTILINE)
