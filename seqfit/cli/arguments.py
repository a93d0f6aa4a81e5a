"""What several commands share: arguments with their help, answers to Trainer options, progress, a page's address."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer
from typer import Argument, Option

from seqfit.errors import RecipeError
from seqfit.recipe import check_kind, resolve, trainer_names
from seqfit.system import quote
from seqfit.units import parse_bytes

if TYPE_CHECKING:
    from seqfit.inspection import Given

RecipeArgument = Annotated[
    str, Argument(metavar="RECIPE", help="Library recipe ('seqfit ls'), YAML file or run directory.")
]

OverridesArgument = Annotated[
    list[str] | None,
    Argument(
        metavar="OVERRIDES",
        help="Changes to the recipe: train.learning_rate=3e-4 sets a field, '~eval.early_stopping' removes one (in "
        "quotes, because some shells expand ~). Arguments of transformers' Trainer are answered with ours.",
    ),
]

TaskOption = Annotated[
    str | None,
    Option(
        "--task",
        metavar="NAME",
        help="Task of a data file, such as --task qa: qa, summarize, translate, classify, math, generate, regression, "
        "multilabel or multiple-choice (default: guessed).",
    ),
]

ModelOption = Annotated[
    str | None,
    Option(
        "--model",
        metavar="MODEL",
        help="Model for a data file: a Hub name, such as google/mt5-small, or a folder; of a folder of models one is "
        "chosen (default: chosen from the models in the Hub's cache).",
    ),
]


def print_guess(given: Given, *, error_stream: bool = False) -> None:
    """What was guessed; where the model is chosen, too, in short, and with how to change it."""
    from typer import echo

    if given.choice is None:
        for note in given.notes:
            echo(f"guessed: {note}", err=error_stream)
        return
    chosen = given.choice.describe()
    echo(f"guessed: {'; '.join(note for note in given.notes if chosen not in note)}", err=error_stream)
    change = "--task NAME, --model MODEL, or a field such as train.epochs=5; all of it as a file"
    echo(f"chosen: {chosen}. To change it: {change}: seqfit new {quote(str(given.data))}", err=error_stream)


Kind = Literal["comparison", "folder", "model"]


def check_recipe(word: str, command: str, *more: Kind) -> None:
    """A recipe, a run, or one of `more`; for anything else the message names the command that takes it."""
    resolve(word, ("recipe", "run", *more), command)


def check_runs(words: Iterable[Path], command: str, *more: Kind) -> None:
    """Run directories, or one of `more`; a missing one is reported by whoever reads it."""
    for word in words:
        check_kind(str(word), ("run", *more), command)


def parse_limit(text: str | None) -> int | None:
    try:
        return None if text is None else parse_bytes(text)
    except ValueError as error:
        raise RecipeError(
            f"--memory-limit is '{text}'", "it is a size in bytes", "Write it as 4GiB or 4096MiB"
        ) from error


def answer_trainer_options(argv: list[str], parameters: Sequence[Any], command: str) -> list[str]:
    """Options of the Trainer as overrides: reading the recipe answers them, together with its other mistakes.

    Without a recipe they are answered here.
    """
    if not any(word.startswith("--") for word in argv):
        return argv
    options = {option: parameter for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    rest, overrides = trainer_names.take_options(argv, options)
    if not overrides:
        return argv
    takes_value = {option for option, parameter in options.items() if not getattr(parameter, "is_flag", True)}
    before = ["", *rest]
    has_recipe = any(
        not word.startswith("-") and earlier not in takes_value for earlier, word in zip(before, rest, strict=False)
    )
    if has_recipe or "--data" in rest:
        return [*rest, *overrides]
    raise RecipeError(
        f"{trainer_names.explain_options(overrides, 'The command')}\nNo recipe is given either: name one before these "
        f"(seqfit {command} RECIPE ...), or train on a file of your own (seqfit train --data FILE --model MODEL ...)"
    )


def announce_address(what: str, url: str, *, opens: bool) -> None:
    """Without a screen no browser is opened, because it would be a text one in this terminal."""
    has_screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    typer.echo(f"{what}: {url}  (stop with Ctrl-C)")
    if not has_screen:
        port = urlsplit(url).port
        typer.echo(
            f"from another machine: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE, then open the same address there"
        )
    elif opens:
        import webbrowser

        webbrowser.open(url)


Show = Callable[[str, int, int | None], None]


@contextmanager
def progress_bar() -> Iterator[Show]:
    """Gives `show(what, done, total)`: a bar that appears after a second, or without a terminal a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    if not console.is_terminal:
        from seqfit.progress import ProgressLines

        yield ProgressLines(console.print)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, tuple[TaskID, float]] = {}
    with Progress(*columns, console=console, transient=True) as bars:

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = (bars.add_task(what, total=total, visible=False), time.monotonic())
            task, since = tasks[what]
            bars.update(task, completed=done, total=total, visible=time.monotonic() - since > 1)

        yield show
