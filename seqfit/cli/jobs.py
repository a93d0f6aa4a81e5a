"""`seqfit status`, `logs`, `cancel`: submitted runs; `seqfit prefetch`: what a node without a network needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe, check_runs, progress_bar
from seqfit.system import quote


def status(
    runs: Annotated[
        list[Path] | None,
        Argument(
            metavar="[RUN]...",
            help="Directories of runs, of an array or of a comparison (default: all in runs/ and comparisons/).",
        ),
    ] = None,
) -> None:
    """Show the queue state, the step, the last loss and the restarts of submitted runs.

    Example: seqfit status runs/demo
    """
    check_runs(runs or [], "status", "comparison", "folder")
    from seqfit.comparison import find_comparison, records
    from seqfit.launch import find_submitted, read_statuses

    given = runs or [*sorted(records.PLACE.glob("*")), *find_submitted()]
    found = {place: find_comparison(place) for place in given}
    compared = dict.fromkeys(folder for folder in found.values() if folder is not None)
    for folder in compared:
        _show_comparison(folder)
    others = [place for place in given if found[place] is None and (runs or place.parent != records.PLACE)]
    statuses = read_statuses(others)
    if not statuses:
        if not compared:
            print("nothing in runs/ and comparisons/ was submitted; submit with: seqfit submit RECIPE")
        return
    rows = [
        (
            str(one.run),
            one.submission.job,
            one.queue,
            one.status or "not started",
            "" if one.step is None else f"{one.step}/{one.total_steps}",
            "" if one.loss is None else f"{one.loss:.4f}",
            str(one.restarts),
        )
        for one in statuses
    ]
    _print_table([("run", "job", "queue", "status", "step", "loss", "restarts"), *rows])
    if len(statuses) == 1:
        print(f"log: {statuses[0].submission.log}\nnext: {statuses[0].next_step}")


def _show_comparison(folder: Path) -> None:
    from seqfit.comparison import read_repeats

    repeats = read_repeats(folder)
    rows = [(str(one.place), one.job, one.queue, f"{one.ended} of {one.trials}", str(one.restarts)) for one in repeats]
    _print_table([("repeat", "job", "queue", "trials", "restarts"), *rows])
    going = [one.place for one in repeats if not one.is_over]
    left = any(one.ended < one.trials for one in repeats)
    what_is_left = f"seqfit submit {quote(folder)}" if left else f"seqfit report {quote(folder)}"
    print(f"next: {f'seqfit logs {quote(going[0])} --follow' if going else what_is_left}")


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def logs(
    run: Annotated[Path, Argument(metavar="RUN", help="Directory of a submitted run, for example runs/demo.")],
    follow: Annotated[bool, Option("--follow", "-f", help="Keep printing until the job is over, or Ctrl-C.")] = False,
    lines: Annotated[
        int | None,
        Option("--lines", "-n", min=1, help="Start with the last N lines, such as -n 20 (default: all).", metavar="N"),
    ] = None,
) -> None:
    """Print the log of the newest job of a run, over all its restarts.

    Example: seqfit logs runs/demo --follow
    """
    check_runs([run], "logs", "comparison", "folder")
    from seqfit.launch import read_log

    for text in read_log(run, lines, follow=follow, report=lambda message: print(message, file=sys.stderr)):
        print(text, end="", flush=True)


def cancel(
    runs: Annotated[
        list[Path], Argument(metavar="RUN...", help="Directories of submitted runs, of an array or a comparison.")
    ],
) -> None:
    """Cancel the jobs of runs. A run that is training stops after its step with a snapshot, and can be resumed.

    Example: seqfit cancel runs/demo
    """
    check_runs(runs, "cancel", "comparison", "folder")
    from seqfit.launch import cancel_runs

    for line in cancel_runs(runs):
        print(line)


def prefetch(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    no_tokenize: Annotated[
        bool, Option("--no-tokenize", help="Only download; the job tokenizes the data itself (default: tokenize now).")
    ] = False,
) -> None:
    """Download model, tokenizer and data on a login node, and tokenize the data, for nodes without a network.

    Then submit with a profile that has offline: true. Weights are not loaded, so it takes little memory. Example:
    seqfit prefetch t5-gsm8k
    """
    from seqfit.launch.download import download

    check_recipe(recipe, "prefetch")
    with progress_bar() as progress:
        for line in download(recipe, overrides or (), tokenize=not no_tokenize, progress=progress):
            echo(line)
