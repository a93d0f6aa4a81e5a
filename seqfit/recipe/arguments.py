"""What a positional argument is: that of `seqfit train demo`, `seqfit report runs/demo` and every other command.

In: the argument and the kinds that a command takes. Out: its kind and path. It is the first of these that it can be and
that the command takes; this precedence is stated only here:

    recipe       a library name ('seqfit ls'); ./demo is a file or folder of that name
    recipe       a file that ends in .yaml or .yml
    script       a file that ends in .py, .ipynb or .sh; `seqfit convert` makes a recipe of one with a Trainer
    data         any other file
    comparison   a folder with a comparison.yaml
    run          a folder with a recipe.yaml, which `seqfit train` and `seqfit submit` write
    model        a folder whose config.json describes a model, in Hugging Face layout; a checkpoint is one
    folder       any other folder: of data files, or of runs
    known        a model whose config comes with seqfit, also without its owner; ./t5-base is a folder of that name
    hub          owner/name, where nothing here has that path: a model or a data set of the Hub

    resolve("demo", RECIPES).kind == "recipe"     resolve("my.csv", ["data"]).path == Path("my.csv")

Where the command does not take an argument's kind, the message names the command that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seqfit.errors import RecipeError, did_you_mean
from seqfit.model_configs import find_known_model, load_known_models
from seqfit.recipe.library import LIBRARY, library_names
from seqfit.system import quote

ArgumentKind = Literal["recipe", "script", "data", "run", "comparison", "model", "folder", "known", "hub"]
RECIPES: tuple[ArgumentKind, ...] = ("recipe", "run")
SCRIPTS = (".py", ".ipynb", ".sh", ".bash", ".sbatch", ".slurm")
RUN_RECIPE = "recipe.yaml"  # what a run directory calls its recipe
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILE_ENDING = re.compile(r"\.[a-z]{2,7}(\.gz)?$")  # not that of gpt-neo-2.7B
_IS: dict[ArgumentKind, str] = {
    "recipe": "a recipe",
    "script": "a script",
    "data": "a data file",
    "run": "a run directory",
    "comparison": "a comparison's folder",
    "model": "a model's folder",
    "folder": f"a folder without a {RUN_RECIPE}",
    "known": "a model",
    "hub": "no path here, but could be a name on the Hub",
}


@dataclass(frozen=True)
class ResolvedArgument:
    """What an argument is. The path of a library recipe is that of its file; a name on the Hub is a path as it is."""

    kind: ArgumentKind
    path: Path


def resolve(
    argument: str | Path, takes: Collection[ArgumentKind], command: str = "", folder: Path = Path()
) -> ResolvedArgument:
    """The first kind that the argument can be and that is taken; paths are relative to `folder`.

    `command` is the subcommand, for the message where there is none.
    """
    kinds = _list_kinds(argument, folder)
    for found in kinds:
        if found.kind in takes:
            return found
    if kinds:
        raise _misfit(argument, kinds[0].kind, takes, command)
    named = {"recipe": "recipe", "data": "data file"} if "recipe" in takes else {"run": "run directory", "data": "file"}
    named |= {"known": "model"}
    what = " or ".join(name for kind, name in named.items() if kind in takes)
    parent = Path(argument).expanduser().parent
    nearby = [str(Path(argument).with_name(entry.name)) for entry in parent.iterdir()] if parent.is_dir() else []
    known = [*(library_names() if "recipe" in takes else []), *(_model_names(argument) if "known" in takes else [])]
    nearest = did_you_mean(str(argument), [*known, *nearby])
    rule = _describe_takes(takes, command, f" ({', '.join(library_names())})")
    raise RecipeError(f"There is no {what} '{argument}'", rule, nearest.strip() or "Check the path, or see 'seqfit ls'")


def _model_names(argument: str | Path) -> list[str]:
    """As the argument is written: with or without the owner."""
    names = list(load_known_models())
    return names if "/" in str(argument) else [name.partition("/")[2] for name in names]


def check_kind(argument: str | Path, takes: Collection[ArgumentKind], command: str) -> None:
    """As `resolve`, but an argument that is nothing here passes: whoever reads it has a better message."""
    kinds = [found.kind for found in _list_kinds(argument, Path()) if found.kind not in ("known", "hub")]
    if kinds and not set(kinds) & set(takes):
        raise _misfit(argument, kinds[0], takes, command)


def is_script(argument: str | Path) -> bool:
    """Also what the Trainer stores of its arguments, which is then refused by name: no data has that name."""
    path = Path(argument).expanduser()
    return (path.suffix.lower() in SCRIPTS or path.name == "training_args.bin") and path.is_file()


def _list_kinds(argument: str | Path, folder: Path) -> list[ResolvedArgument]:
    found: list[ResolvedArgument] = []
    if isinstance(argument, str) and argument in library_names():
        found.append(ResolvedArgument("recipe", LIBRARY / f"{argument}.yaml"))
    path = folder / Path(argument).expanduser()
    if path.is_file():
        ending = path.suffix.lower()
        kind: ArgumentKind = "recipe" if ending in (".yaml", ".yml") else "script" if is_script(path) else "data"
        found.append(ResolvedArgument(kind, path))
    elif path.is_dir():
        marks: dict[ArgumentKind, bool] = {
            "comparison": (path / "comparison.yaml").is_file(),
            "run": (path / RUN_RECIPE).is_file(),
            "model": _describes_model(path / "config.json"),
        }
        kinds = [kind for kind, is_there in marks.items() if is_there]
        found += [ResolvedArgument(kind, path) for kind in kinds] or [ResolvedArgument("folder", path)]
    else:
        known = find_known_model(str(argument))
        if known is not None:
            found.append(ResolvedArgument("known", Path(known.name)))
        if _is_hub_name(str(argument)):
            found.append(ResolvedArgument("hub", Path(argument)))
    return found


def _describes_model(config: Path) -> bool:
    """Not every config.json is a model's: some folders of data have one."""
    try:
        values = json.loads(config.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and bool({"model_type", "architectures"} & set(values))


def _is_hub_name(argument: str) -> bool:
    """owner/name; where the owner is a folder here, or the name has a file extension, it is a misspelt path."""
    is_name = _HUB_NAME.fullmatch(argument) is not None and _FILE_ENDING.search(argument) is None
    return is_name and not Path(argument).parent.is_dir()


def _misfit(argument: str | Path, kind: ArgumentKind, takes: Collection[ArgumentKind], command: str) -> RecipeError:
    change = _advise(quote(argument), kind, takes, command)
    return RecipeError(f"'{argument}' is {_IS[kind]}", _describe_takes(takes, command), change)


def _describe_takes(takes: Collection[ArgumentKind], command: str, names: str = "") -> str:
    """'A recipe is a YAML file, a library name or a run directory'; 'seqfit evaluate takes a run directory'."""
    described = {
        "recipe": f"a YAML file, a library name{names}",
        "run": "a run directory",
        "comparison": "a comparison's folder",
        "model": "a model's folder",
        "data": "a data file",
        "script": "a Trainer script",
        "folder": "a folder of runs" if "data" not in takes else "a folder of data files",
        "known": "a model's name",
        "hub": "a data set of the Hub" if "known" not in takes else "",  # a model's name is one of the Hub
    }
    listed = [text for kind, text in described.items() if kind in takes and text]
    joined = " or ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
    return f"seqfit {command} takes {joined}" if command else f"A recipe is {joined}"


def _advise(argument: str, kind: ArgumentKind, takes: Collection[ArgumentKind], command: str) -> str:
    if kind == "script" and "recipe" in takes:
        then = f"seqfit {command or 'train'} mine.yaml"
        return f"If it has a Trainer, convert it: seqfit convert {argument} -o mine.yaml; {then}"
    if kind == "script":
        return "Give a run directory, which 'seqfit train' prints at the end"
    if kind == "comparison":
        return f"Show it, or continue it: seqfit report {argument}; seqfit compare {argument} --resume"
    if "recipe" in takes and kind in ("data", "folder"):
        recipe = f"seqfit new {argument} --out mine.yaml"
        return f"Train on it with 'seqfit train {argument}', or write a recipe for it: {recipe}"
    if "recipe" in takes:
        place = "path" if kind == "model" else "name"
        own = f"on data of your own with 'seqfit train --data FILE --model {argument}'"
        again = f"seqfit {command or 'train'} RECIPE model.{place}={argument}"
        return f"Train it {own}, or give a recipe and set its model: {again}"
    if kind in ("data", "folder") and command == "evaluate":
        return f"Score a run on it: seqfit evaluate RUN --data {argument}"
    if kind == "data" and command == "predict":
        return f"Predict its rows with a run: seqfit predict RUN --file {argument}"
    if kind == "recipe":
        return f"Train it first, then give the run directory that is printed: seqfit train {argument}"
    return "Give a run directory, which 'seqfit train' prints at the end"
