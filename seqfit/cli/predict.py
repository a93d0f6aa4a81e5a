"""`seqfit predict RUN`: answers from a run's model to what the command line, a file or standard input asks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory or a checkpoint folder.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COLUMN=TEXT]...", help="One row on the command line: question='Who?' context='...'."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Rows: .jsonl, .json, .csv, .tsv, .parquet, or plain text, one a line."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each row with its prediction as JSON.")] = False,
) -> None:
    """Answer rows with a run's model: given as COLUMN=TEXT, in a file, or on standard input.

    On standard input a line is a JSON object with the template's columns, or the texts themselves, by tabs.
    """
    import json

    from seqfit.evaluate.asked import rows_from_fields, rows_from_file, rows_from_lines
    from seqfit.evaluate.run import predict

    if fields:
        rows = rows_from_fields(fields)
    else:
        rows = rows_from_file(file) if file is not None else rows_from_lines(sys.stdin)
    for row, prediction in zip(rows, predict(run, rows), strict=True):
        if as_json:
            given = {"source": row} if isinstance(row, str) else dict(row)
            print(json.dumps(given | {"prediction": prediction}, ensure_ascii=False))
        else:
            print(prediction.replace("\n", " "))
