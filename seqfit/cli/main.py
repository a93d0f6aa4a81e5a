"""`seqfit COMMAND ...`: finds the command, runs it, turns errors into exit codes.

A command's module is imported only when that command is called. The list below has names and help texts, so
`seqfit --help` imports neither typer nor torch and takes a few hundredths of a second.

A command is a module `seqfit/cli/NAME.py` with a function `command` whose parameters are annotated for typer, and
where typer is not enough, a function `rewrite_arguments`. Small ones share a module, each as a function of its name:

    def command(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None: ...

Exit codes: 0 done, 1 a check failed, 2 what was given is wrong, 3 training failed, 4 out of memory, 75 stopped by a
signal after a snapshot, 76 another process of the run was lost, 130 interrupted. Any other exception is a bug of
seqfit's and keeps its traceback.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

from seqfit import __version__
from seqfit.errors import ERROR_FILE, OutOfMemory, SeqfitError, did_you_mean, is_out_of_memory, write_error

INTERRUPTED = 130  # 128 + SIGINT, as shells count
TRUST = "--trust-remote-code"

GROUPS: dict[str, dict[str, str]] = {
    "Train and evaluate": {
        "data": "Inspect data before training: columns, classes, lengths, duplicates, leaks, examples, problems.",
        "plan": "Predict memory and time on any GPU, and choose the fastest strategy that fits.",
        "train": "Fine-tune a model; writes a run directory.",
        "scale": "Measure how training scales over processes here, and predict it for up to hundreds of GPUs.",
        "compare": "Compare training strategies of a recipe fairly; writes tables.",
        "study": "Repeat a published study: published, predicted and measured figures side by side.",
        "audit": "Check whether runs, recipes, scripts or published rows were compared fairly.",
        "profile": "Show where the time and memory of a step go, and what to change.",
        "evaluate": "Score the model of a run; writes metrics and predictions.",
        "predict": "Generate predictions for rows of a file or standard input.",
        "serve": "Serve trained models on this machine: a page to try and compare them, and an HTTP API.",
        "export": "Write the model of a run for others: Hugging Face, CTranslate2 or ONNX, checked.",
        "report": "Write one HTML page about runs or a comparison, or serve it live.",
        "track": "Send runs to TensorBoard, trackio, Weights & Biases or MLflow.",
        "trim": "Write a smaller model whose vocabulary has only the tokens of some data.",
    },
    "Clusters": {
        "submit": "Train on a Slurm cluster: writes one job file and submits it.",
        "status": "Show the status of submitted runs.",
        "logs": "Print the log of a submitted run.",
        "cancel": "Cancel the job of a submitted run.",
        "prefetch": "Download model and data for nodes without a network.",
    },
    "Recipes": {
        "new": "Ask five questions about your data and write a commented recipe.",
        "ls": "List the recipes that come with seqfit.",
        "cp": "Copy one of them to a file.",
        "convert": "Make a recipe from a script for transformers' Trainer.",
        "show": "Print a recipe with its defaults and overrides.",
        "validate": "Check a recipe and report every mistake.",
        "schema": "Print the JSON schema of recipes, for editors.",
    },
    "This machine": {
        "calibration": "Show what was measured about the speed of GPUs; send it, or use others'.",
        "doctor": "Check what this machine has and lacks, and print the commands that fix it.",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
_SHARED = {  # command -> the module that it shares
    **dict.fromkeys(("ls", "cp", "show", "validate", "schema"), "recipes"),
    **dict.fromkeys(("status", "logs", "cancel", "prefetch"), "jobs"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` defaults to sys.argv[1:]."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            # A pipe on Windows takes cp1252, which lacks many characters: escape them instead of failing.
            stream.reconfigure(errors="backslashreplace")
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except SeqfitError as error:
        return _report(error)
    except (MemoryError, RuntimeError) as error:  # torch raises a RuntimeError for a GPU
        if not is_out_of_memory(error):
            raise
        return _report(
            OutOfMemory(
                f"out of memory (OOM): {' '.join(str(error).split()) or type(error).__name__}",
                "the command needs more memory than is free",
                "End other programs, or choose a smaller model or strategy; `seqfit plan` shows what fits",
            )
        )
    except KeyboardInterrupt as stop:
        if str(stop):  # it says how to resume
            print(f"interrupted: {stop}", file=sys.stderr)
        return INTERRUPTED


def _report(error: SeqfitError) -> int:
    print(f"error: {error}", file=sys.stderr)
    if ERROR_FILE in os.environ:
        write_error(error)
    return error.exit_code


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(help_text(), file=sys.stderr)
        return SeqfitError.exit_code
    if TRUST in arguments:  # of any command: lets a model run its own code
        from seqfit.hub import trust_remote_code

        trust_remote_code()
        arguments = [argument for argument in arguments if argument != TRUST]
    name, *rest = arguments or ["--help"]
    if name in ("--help", "-h"):
        print(help_text())
        return 0
    if name == "--version":
        print(f"seqfit {__version__}")
        return 0
    if name not in COMMANDS:
        raise SeqfitError(
            f"'{name}' is not a command of seqfit",
            f"The commands are {', '.join(COMMANDS)}",
            did_you_mean(name, COMMANDS).strip() or "Try 'seqfit --help'",
        )
    return _run(name, rest)


def _run(name: str, arguments: list[str]) -> int:
    import typer
    import typer.main

    module = importlib.import_module(f"seqfit.cli.{_SHARED.get(name, name)}")
    command = getattr(module, name if name in _SHARED else "command")
    arguments = getattr(module, "rewrite_arguments", list)(arguments)
    # Plain help: rich markup would drop '[[ ... ]]' of a template.
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(help=getattr(command, "__doc__", None) or COMMANDS[name])(command)
    parser = typer.main.get_command(app)
    if any(parameter.name == "overrides" for parameter in parser.params):
        from seqfit.cli.arguments import answer_trainer_options

        arguments = answer_trainer_options(arguments, parser.params, name)
    try:
        # Arguments are handed over, because typer would expand '~key' as a home directory on Windows.
        parser.main(args=arguments, prog_name=f"seqfit {name}")
    except SystemExit as end:  # typer ends every command this way, the successful ones too
        interrupt = end.__context__ and end.__context__.__cause__
        if isinstance(interrupt, KeyboardInterrupt):
            raise interrupt from None  # with its message, which typer leaves out
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def help_text() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "Usage: seqfit COMMAND ...",
        "",
        "Fine-tunes text-to-text models (T5, mT5, ByT5, BERT-type classifiers) on the hardware you have.",
    ]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:<{width}}  {text}" for name, text in commands.items())]
    lines += [
        "",
        "'seqfit COMMAND --help' describes a command and its options; 'seqfit --version' prints the version.",
        f"{TRUST} lets a model run the code that comes with it (default: not allowed).",
        "Start with 'seqfit new', 'seqfit data my.csv' or 'seqfit train demo'.",
    ]
    return "\n".join(lines)
