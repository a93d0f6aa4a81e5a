"""`seqfit new DATA`: five questions, each with a default, and a commented recipe that `seqfit train` runs.

    Data file [my.csv]:                     Which columns are what is guessed from it.
    Task [qa]:
    GPU that will train it [this machine]:  the model has to fit it
    Model [google/flan-t5-base]:
    Epochs [3]:

What an option says is not asked. Without a terminal nothing is asked: the defaults are taken, the options are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from typer import Argument, Option

from seqfit.cli.arguments import OverridesArgument, TaskOption
from seqfit.errors import RecipeError, SeqfitError
from seqfit.system import quote

if TYPE_CHECKING:
    from seqfit.inspection import Given

_Read = TypeVar("_Read")
_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx")
_HERE = "this machine"
_EPOCHS = 3.0
_OPTIONS = "seqfit new DATA --task NAME --gpu NAME --model MODEL --epochs N --out FILE"


def command(
    data: Annotated[
        str | None,
        Argument(metavar="[DATA]", help="Data file or folder, such as my.csv (default: asked)."),
    ] = None,
    overrides: OverridesArgument = None,
    task: TaskOption = None,
    gpu: Annotated[
        str | None,
        Option(metavar="NAME", help="GPU that will train it, such as rtx3060-laptop, or cpu (default: this machine)."),
    ] = None,
    model: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="A Hub name, such as google/mt5-small, or a folder (default: one that suits task and language and "
            "fits the GPU).",
        ),
    ] = None,
    epochs: Annotated[
        float | None, Option(metavar="N", help="Passes over the training rows, such as --epochs 5 (default: 3).")
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FILE", help="Recipe to write, such as mine.yaml (default: DATA's name, .yaml)."),
    ] = None,
) -> None:
    """Ask five questions (data, task, GPU, model, epochs), each with a default, and write a commented recipe.

    An existing file is never overwritten. Examples: seqfit new; seqfit new my.csv; seqfit new my.csv --task qa --gpu t4
    --epochs 5 --out mine.yaml
    """
    from seqfit.inspection import format_commented

    is_asked = sys.stdin.isatty()
    if not is_asked:
        typer.echo(f"standard input is not a terminal, so nothing is asked; options: {_OPTIONS}", err=True)
    ask = _ask if is_asked else _take_default
    data = data if data is not None else ask("Data file or folder", _find_data(), _read_data)
    file = out or Path(f"{Path(data).stem or 'mine'}.yaml")
    _check_new(file)  # before the questions
    argv = list(overrides or [])
    if is_asked and task is None:
        task = ask("Task", _guess_task(data, argv), lambda text: _read_task(data, argv, text))
    if is_asked and gpu is None:
        gpu = ask("GPU that will train it, such as rtx3060-laptop or cpu", _HERE, _read_gpu)
    gpu = None if gpu == _HERE else gpu
    given = _choose(data, argv, task, model, gpu)
    if is_asked and model is None:
        if given.choice is not None:
            typer.echo(f"  {given.choice.describe()}")
        given = ask("Model", str(given.model), lambda text: _choose(data, argv, task, text, gpu, known=given))
    if epochs is None and not any(word.startswith(("train.epochs=", "train.steps=")) for word in argv):
        epochs = ask("Epochs", f"{_EPOCHS:g}", _read_epochs)
    if epochs is not None:
        given = _with_overrides(given, [f"train.epochs={_read_epochs(str(epochs)):g}"])
    text = format_commented(given, str(file))
    _write(file, text)
    for note in given.notes:
        typer.echo(f"guessed: {note}")
    typer.echo(f"recipe: {file}\nnext: seqfit plan {quote(file)}; seqfit train {quote(file)}")


def _choose(
    data: str, overrides: list[str], task: str | None, model: str | None, gpu: str | None, *, known: Given | None = None
) -> Given:
    """`known`: already chosen, if the model is that one."""
    from seqfit.inspection import read_given

    if known is not None and model == known.model:
        return known
    return read_given(
        None, overrides, data=data, task=task, model=model, command="new", gpus=[gpu] if gpu is not None else ()
    )


def _with_overrides(given: Given, overrides: list[str]) -> Given:
    notes = [note for note in given.notes if not note.startswith("training: ")]  # the recipe says it, with the epochs
    return replace(given, overrides=(*given.overrides, *overrides), notes=tuple(notes))


def _ask(question: str, default: str, read: Callable[[str], _Read]) -> _Read:
    """Again until the answer is right; Enter takes the default."""
    while True:
        answer = typer.prompt(question, default=default or None)
        try:
            return read(str(answer).strip())
        except SeqfitError as error:
            typer.echo(f"  {error}", err=True)


def _take_default(question: str, default: str, read: Callable[[str], _Read]) -> _Read:
    if not default:
        raise RecipeError(
            "no data is given, and standard input is not a terminal",
            f"'{question}' has no default here",
            f"Give it as an argument: {_OPTIONS}",
        )
    return read(default)


def _find_data() -> str:
    """The only data file of this folder, or ''."""
    files = [entry.name for entry in Path().iterdir() if entry.is_file() and entry.suffix.lower() in _ENDINGS]
    return files[0] if len(files) == 1 else ""


def _read_data(text: str) -> str:
    from seqfit.recipe import resolve

    resolve(text, ("data", "folder", "hub"), "new")
    return text


def _guess_task(data: str, overrides: list[str]) -> str:
    """'' if it is not certain: the reason is shown, with the readings."""
    from seqfit import guess_recipe

    try:
        return str(guess_recipe(data, None, None, overrides).recipe["task"].get("name", ""))
    except SeqfitError as error:
        typer.echo(f"  {error}", err=True)
        return ""


def _read_task(data: str, overrides: list[str], text: str) -> str:
    from seqfit import guess_recipe

    guess_recipe(data, text, None, overrides)  # raises if the columns don't fit
    return text


def _read_gpu(text: str) -> str:
    from seqfit.hardware import read_gpu

    if text not in (_HERE, "cpu"):
        read_gpu(text)
    return text


def _read_epochs(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise RecipeError(f"epochs is '{text}'", "it is a number above 0", "Give it as 3")
    return number


def _check_new(file: Path) -> None:
    if file.exists():
        raise RecipeError(f"{file} exists already", "A recipe is never overwritten", "Choose another name with --out")
    if not file.parent.is_dir():
        raise RecipeError(f"there is no folder {file.parent}", "A recipe needs one", "Create it, or choose another")


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        _check_new(file)
    except OSError as error:
        rule = "The recipe needs a folder it may write to"
        raise RecipeError(f"{file}: {error.strerror}", rule, "Choose another with --out") from error
