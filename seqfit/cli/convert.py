"""`seqfit convert SCRIPT`: a script for transformers' Trainer as a recipe, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from seqfit.conversion import convert, format_conversion, write_conversion


def command(
    script: Annotated[
        str,
        Argument(
            metavar="SCRIPT",
            help="Python script, notebook, shell script, JSON or YAML file of arguments, or a command line in quotes.",
        ),
    ],
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Recipe to write, such as mine.yaml (default: SCRIPT's name with .yaml).",
        ),
    ] = None,
) -> None:
    """Write a recipe that does what a Trainer script does. The script is read, never executed.

    Prints every setting with the field it becomes, and lists what could not be read, with its line. The exit code is 1
    if the recipe lacks a field that the script does not say, such as the columns.

    Examples: seqfit convert train.py -o mine.yaml; seqfit convert run.sh;
    seqfit convert 'torchrun --nproc_per_node 2 run_summarization.py --model_name_or_path t5-small --fp16 ...'
    """
    conversion = convert(script)
    file = out or Path(f"{Path(conversion.name).stem if conversion.is_file else 'converted'}.yaml")
    write_conversion(conversion, file)
    print(format_conversion(conversion, str(file)))
    if conversion.missing:
        raise typer.Exit(1)
