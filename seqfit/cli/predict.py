"""`seqfit predict RUN`: predictions for rows of the command line, a file or standard input."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from seqfit.cli.arguments import check_runs

_ROWS_AT_ONCE = 256  # generated and printed together, so that a long file shows its first predictions soon


def command(
    run: Annotated[
        Path, Argument(metavar="RUN", help="A run directory or a checkpoint folder, for example runs/demo.")
    ],
    fields: Annotated[
        list[str] | None,
        Argument(metavar="[COLUMN=TEXT]...", help="One row, for example question='Who?' context='...'."),
    ] = None,
    file: Annotated[
        Path | None,
        Option(
            "--file",
            "-f",
            metavar="FILE",
            help="File with rows, such as new.csv: .jsonl, .json, .csv, .tsv, .parquet, or text with one row per line "
            "(default: standard input).",
        ),
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Print each row with its prediction as JSON (default: only predictions).")
    ] = False,
) -> None:
    """Generate predictions for rows: given as COLUMN=TEXT, in a file, or on standard input.

    A line of standard input is a JSON object with the template's columns, or their texts, separated by tabs. Example:
    seqfit predict runs/demo question='Who wrote it?' context='Ada wrote it.'
    """
    check_runs([run], "predict", "model")
    from seqfit.errors import DataError
    from seqfit.evaluation import Predictor, rows
    from seqfit.paths import require_file

    if fields and file is not None:
        raise DataError("--file and COLUMN=TEXT are both given", "rows come from one of them", "Omit one")
    if file is not None:
        require_file(file, "--file")  # before torch loads the model
    given = rows.rows_from_fields(fields) if fields else None
    predictor = Predictor(run)
    if given is not None:
        incoming = iter(given)
    else:
        incoming = (
            rows.rows_from_bytes(sys.stdin.buffer) if file is None else rows.rows_from_file(file, predictor.columns)
        )
    while some := list(itertools.islice(incoming, _ROWS_AT_ONCE)):
        for row, prediction in zip(some, predictor.predict(some), strict=True):
            text = prediction.replace("\n", " ")
            if as_json:
                columns = {"source": row} if isinstance(row, str) else dict(row)
                text = json.dumps(columns | {"prediction": prediction}, ensure_ascii=False)
            print(text, flush=True)
