"""`seqfit train RECIPE`: fine-tune, and print where the run is."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from seqfit.cli.arguments import ModelOption, OverridesArgument, TaskOption, parse_limit, print_guess
from seqfit.cli.track import ProjectOption, Tool
from seqfit.errors import RecipeError, SeqfitError
from seqfit.rundir import files
from seqfit.system import quiet_torch, quote

if TYPE_CHECKING:
    from seqfit.inspection import Given
    from seqfit.launch import LaunchSpec


def command(
    recipe: Annotated[
        str | None,
        Argument(metavar="[RECIPE]", help="Library name, YAML file, run directory or data file; omit it with --data."),
    ] = None,
    overrides: OverridesArgument = None,
    out: Annotated[
        Path | None,
        Option(
            "--out", "-o", metavar="DIR", help="Run directory to write, such as runs/mine (default: runs/NAME-TIME)."
        ),
    ] = None,
    data: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Train on a data file or folder, such as my.csv, without a recipe: task and columns are guessed "
            "(default: the recipe's data).",
        ),
    ] = None,
    task: TaskOption = None,
    model: ModelOption = None,
    gpu: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="For data without --model: choose a model that fits this GPU, such as rtx3060-laptop (default: this "
            "machine).",
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        Option(metavar="SIZE", help="On a CPU: memory limit of this process, such as 4GiB (default: no limit)."),
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Continue an unfinished run bit-exactly: RECIPE or --out is its directory.")
    ] = False,
    track: Annotated[
        Tool | None,
        Option(
            metavar="tensorboard|trackio|wandb|mlflow",
            help="Send the run to this tracker while it trains, from a separate process, such as --track tensorboard "
            "(default: none).",
        ),
    ] = None,
    project: ProjectOption = "seqfit",
    nproc: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Processes on this machine, one per GPU, such as 2; not inside torchrun or srun (default: a single "
            "process).",
        ),
    ] = None,
    accelerate_config: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="File of `accelerate config`, such as two.yaml, that states processes and precision (default: none).",
        ),
    ] = None,
    max_restarts: Annotated[
        int,
        Option(
            min=0,
            metavar="N",
            help="With --nproc: maximum number of restarts after a process died, such as 0 for none (default: 3).",
            show_default=False,
        ),
    ] = 3,
    grace: Annotated[
        int,
        Option(
            min=1,
            metavar="SECONDS",
            help="With --nproc: time to finish the step after a signal, such as --grace 60 (default: 25).",
            show_default=False,
        ),
    ] = 25,
) -> None:
    """Fine-tune a model by a recipe, or on a data file by one guessed from its columns; writes a run directory.

    Examples: seqfit train demo; seqfit train my.csv; seqfit train t5-gsm8k train.steps=500 model.path=./t5;
    seqfit train my.csv --task qa --model google/mt5-small; seqfit train runs/demo-20260102-030405 --resume;
    seqfit train t5-gsm8k --nproc 2

    SIGTERM, SIGUSR1 and Ctrl-C finish the step and take a snapshot (exit codes 75, 75 and 130); --resume continues.
    """
    from seqfit.inspection import read_given
    from seqfit.launch import is_first_rank, is_launched
    from seqfit.validation import check_model_available, load_checked_recipe

    argv = list(overrides or [])
    if data is not None and recipe is not None and ("=" in recipe or recipe.startswith("~")):
        argv = [recipe, *argv]  # there is no recipe to name
        recipe = None
    given = read_given(recipe, argv, data=data, task=task, model=model, gpus=[gpu] if gpu is not None else ())
    if gpu is not None and given.choice is None:
        raise RecipeError(
            f"--gpu is {gpu}, and the model is given",
            "--gpu chooses a model; training uses the devices of this machine",
            "Leave --gpu out, or plan for that GPU with 'seqfit plan'",
        )
    if given.choice is not None and is_launched():
        raise RecipeError(
            "several processes are running, and no model is given",
            "each would choose by the memory that it finds free",
            f"Name it: --model {quote(str(given.model))}",
        )
    if is_first_rank() and given.data is not None:
        print_guess(given)
    checked = load_checked_recipe(given.recipe, given.overrides)  # mistakes are reported before torch is imported
    check_model_available(checked)
    quiet_torch()
    earlier = None
    if resume:
        from seqfit.training import find_earlier

        earlier = find_earlier(given.name, out, given.place)
    folder = earlier.path if earlier is not None else out or files.new_run(given.name)
    place, more = _choose_place(nproc, accelerate_config)
    if place is not None:
        from seqfit.launch import launch_local

        argv_of_each = _repeat(given, more, folder, memory_limit, resume=resume)
        with _follow(folder, track if place.number == 0 else None, project):  # only on the first machine
            launch_local(argv_of_each, folder, place, max_restarts=max_restarts, grace_seconds=grace)
        return
    from seqfit.training import choose_training_view
    from seqfit.training.train import train  # imports torch: after the recipe's mistakes are reported

    with _follow(folder, track, project):
        run = train(
            given,
            out=folder,
            resume=resume,
            memory_limit_bytes=parse_limit(memory_limit),
            view=choose_training_view(),
            is_guessed=given.data is not None,
        )
    if not is_first_rank():
        return
    if given.data is not None:
        print(f"recipe: {run.path / files.RECIPE}, to change and train again")
    print(f"run: {run.path}\nsummary: {_report(run.path)}\nnext: seqfit evaluate {quote(run.path)}")


def _report(run: Path) -> str:
    """The path of the page; if it can't be built, why, and how to try again: the run is trained all the same."""
    from seqfit.errors import describe_error
    from seqfit.reporting import report
    from seqfit.rundir import EventKind, RunWriter

    try:
        return str(report(run))
    except Exception as error:  # of any kind: a page is not part of training
        message = f"the page could not be built: {describe_error(error)}; try again: seqfit report {quote(run)}"
        with suppress(SeqfitError):  # a full disk: the message is printed all the same
            RunWriter.add_event(run, EventKind.REPORT, message)
        return message


def _choose_place(nproc: int | None, accelerate_config: Path | None) -> tuple[LaunchSpec | None, list[str]]:
    """The processes to start, None for a single process, and the overrides that come with them."""
    from seqfit.launch import LaunchSpec, read_accelerate_file

    if accelerate_config is None:
        return (None if nproc is None else LaunchSpec(nproc)), []
    if nproc is not None:
        raise RecipeError(
            "--nproc and --accelerate-config are given", "both state the number of processes", "Remove one of them"
        )
    file = read_accelerate_file(accelerate_config)
    for text in file.ignored:
        print(f"ignored of {accelerate_config}: {text}", file=sys.stderr)
    if file.overrides:
        print(f"from {accelerate_config}: {' '.join(file.overrides)}", file=sys.stderr)
    return file.place, file.overrides


def _repeat(given: Given, more: list[str], folder: Path, memory_limit: str | None, *, resume: bool) -> list[str]:
    """argv of each process, with the run directory that is now known."""
    from seqfit.cli.main import TRUST
    from seqfit.hub import is_remote_code_trusted

    options = {
        "--out": str(folder),
        "--data": given.data,
        "--task": given.task if given.data is not None else None,
        "--model": given.model,
        "--memory-limit": memory_limit,
    }
    argv = [text for name, value in options.items() if value is not None for text in (name, value)]
    recipe = [] if given.data is not None else [str(given.recipe)]
    trust = [TRUST] if is_remote_code_trusted() else []
    return ["train", *recipe, *given.overrides, *more, *argv, *(["--resume"] if resume else []), *trust]


def _follow(folder: Path, tool: Tool | None, project: str) -> AbstractContextManager[object]:
    from seqfit.launch import is_first_rank

    if tool is None:
        return nullcontext()
    from seqfit.tracking import TrackerProcess, check_tool

    check_tool(tool)  # in every process, or the others would wait for the first one forever
    if not is_first_rank():
        return nullcontext()
    return TrackerProcess(folder, tool, project, report=lambda message: print(f"tracking: {message}", file=sys.stderr))
