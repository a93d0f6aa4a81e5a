"""`seqfit predict RUN`: predictions for rows of the command line, a file or standard input."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from seqfit.cli.arguments import check_runs

if TYPE_CHECKING:
    from seqfit.evaluation import PredictionRows
    from seqfit.generation import Candidate

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
        bool,
        Option("--json", help="Print each row with its prediction and confidence as JSON (default: only predictions)."),
    ] = False,
    stream: Annotated[
        bool, Option("--stream", help="Print a text while it is generated (default: when it is complete).")
    ] = False,
    beams: Annotated[
        int | None, Option(metavar="N", help="Beam search, such as --beams 4; 1 is greedy (default: as trained).")
    ] = None,
    n_best: Annotated[
        int,
        Option(
            "--n-best",
            metavar="N",
            help="Print the best N texts per row with their confidence, such as --n-best 3 (default: 1).",
        ),
    ] = 1,
    max_new_tokens: Annotated[
        int | None, Option(metavar="N", help="Length limit of a text, such as 60 (default: as trained).")
    ] = None,
    min_new_tokens: Annotated[
        int | None, Option(metavar="N", help="Least tokens of a text, such as 5 (default: as trained).")
    ] = None,
    length_penalty: Annotated[
        float | None,
        Option(metavar="X", help="Beam search: above 0 favours long texts, such as 2 (default: as trained)."),
    ] = None,
    no_repeat_ngrams: Annotated[
        int | None, Option(metavar="N", help="No sequence of N tokens occurs twice, such as 3 (default: as trained).")
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        Option(metavar="X", help="Above 1, such as 1.2: tokens are less likely to be repeated (default: as trained)."),
    ] = None,
    sample: Annotated[
        bool, Option("--sample", help="Draw tokens by their probability (default: the likeliest).")
    ] = False,
    temperature: Annotated[
        float | None,
        Option(metavar="X", help="Sampling: below 1, such as 0.7, draws likely tokens more often (default: 1)."),
    ] = None,
    top_k: Annotated[
        int | None, Option(metavar="N", help="Sampling: among the N likeliest tokens, such as 50 (default: all).")
    ] = None,
    top_p: Annotated[
        float | None,
        Option(
            metavar="P",
            help="Sampling: among the likeliest tokens with probability P together, such as 0.9 (default: all).",
        ),
    ] = None,
    seed: Annotated[
        int, Option(metavar="N", help="Sampling: another seed, such as 1, draws other texts (default: 0).")
    ] = 0,
    label: Annotated[
        list[str] | None,
        Option(
            "--label",
            metavar="TEXT",
            help="Answer with one of these, such as --label yes --label no (default: any text).",
        ),
    ] = None,
    spans_of: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Answer with a part of this column, such as context (default: any text)."),
    ] = None,
    lookup: Annotated[
        bool,
        Option("--lookup", help="Look tokens up in the source: the same greedy text, faster where it copies much."),
    ] = False,
) -> None:
    """Generate predictions for rows: given as COLUMN=TEXT, in a file, or on standard input.

    A line of standard input is a JSON object with the template's columns, or their texts, separated by tabs. Example:
    seqfit predict runs/demo question='Who wrote it?' context='Ada wrote it.'
    """
    check_runs([run], "predict", "model")
    from seqfit.errors import DataError
    from seqfit.evaluation import Predictor, rows_from_bytes, rows_from_fields, rows_from_file
    from seqfit.generation import GenerationOptions
    from seqfit.paths import require_file

    options = GenerationOptions(
        beams=beams,
        n_best=n_best,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        length_penalty=length_penalty,
        no_repeat_ngrams=no_repeat_ngrams,
        repetition_penalty=repetition_penalty,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        labels=tuple(label or ()),
        spans_of=spans_of,
        lookup=lookup,
    )
    if fields and file is not None:
        raise DataError("--file and COLUMN=TEXT are both given", "rows come from one of them", "Omit one")
    if stream and (as_json or n_best > 1):
        other = "--json" if as_json else "--n-best"
        raise DataError(f"--stream and {other} are both given", "what is streamed is one plain text", "Omit one")
    if file is not None:
        require_file(file, "--file")  # before torch loads the model
    given = rows_from_fields(fields) if fields else None
    predictor = Predictor(run)
    reason = predictor.explain_fallback(options)
    if reason is not None:
        print(reason, file=sys.stderr)
    if given is not None:
        rows = iter(given)
    else:
        rows = rows_from_bytes(sys.stdin.buffer) if file is None else rows_from_file(file, predictor.columns)
    if stream:
        for row in rows:
            for piece in predictor.stream(row, options):
                print(piece, end="", flush=True)
            print(flush=True)
        return
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        for row, candidates in zip(some, predictor.generate(some, options), strict=True):
            print(_format(row, candidates, n_best, as_json=as_json), flush=True)


def _format(row: PredictionRows, candidates: list[Candidate], n_best: int, *, as_json: bool) -> str:
    """With several candidates: a line for each, with its confidence before it."""
    best = candidates[0]
    if as_json:
        columns = {"source": row} if isinstance(row, str) else dict(row)
        found: dict[str, Any] = {"prediction": best.text, "confidence": best.confidence}
        if n_best > 1:
            found["candidates"] = [asdict(candidate) for candidate in candidates]
        return json.dumps(columns | found, ensure_ascii=False)
    texts = [candidate.text.replace("\n", " ") for candidate in candidates]
    if n_best == 1:
        return texts[0]
    shown = ["" if one.confidence is None else f"{one.confidence:.3f}" for one in candidates]
    return "\n".join(f"{share}\t{text}" for share, text in zip(shown, texts, strict=True))
