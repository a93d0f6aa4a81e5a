"""Plans that were made before, found without torch: a key from everything that a plan depends on, and a JSON file.

In: a recipe and the target's options. Out: a stored `Answer`, or None. The key holds the recipe, the model's config,
size and time of the data files, the card, the options, and the versions of seqfit, torch and transformers.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from seqfit.data.cache import cache_root
from seqfit.plan.answer import Answer
from seqfit.recipe.schema import Recipe

_CONFIG = "config.json"


def plan_key(recipe: Recipe, options: dict[str, Any]) -> str:
    """A hash; another one whenever the plan might differ."""
    facts = {
        "recipe": recipe.model_dump(mode="json"),
        "options": options,
        "versions": [_version(package) for package in ("seqfit", "torch", "transformers", "peft")],
        "files": [_stamp(Path(place)) for place in _places(recipe)],
        "rates": [_stamp(path) for path in sorted((cache_root() / "rates").glob("*.json"))],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def stamp_experience() -> list[Any]:
    """Of what runs on this machine have shown: a plan from before knows less."""
    return _stamp(cache_root() / "experience")


def find_plan(key: str) -> Answer | None:
    """What was stored under a key; a damaged file counts as none."""
    path = _place(key)
    try:
        return Answer.from_json(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store_plan(key: str, answer: Answer) -> None:
    """Whole or not at all."""
    path = _place(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(answer.to_json()), "utf-8")
    draft.replace(path)


def _place(key: str) -> Path:
    return cache_root() / "plans" / f"{key}.json"


def _places(recipe: Recipe) -> list[str]:
    places = [source.path for source in recipe.sources if source.path is not None]
    if recipe.model.path is not None:
        places.append(str(Path(recipe.model.path) / _CONFIG))
    return places


def _stamp(path: Path) -> list[Any]:
    """Name, size and time of a file, or of all files of a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
