"""`seqfit trim MODEL OUT`: write a model that has only the tokens of some data, and report what that saves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from seqfit.cli.arguments import OverridesArgument
from seqfit.errors import RecipeError
from seqfit.system import quote
from seqfit.units import format_bytes, format_count, format_share

if TYPE_CHECKING:
    from seqfit.trimming import Mode, TrimReport

_MEANINGS = {
    "special": "pad, end, unknown, sentinels, added tokens",
    "data": "occur in the data or in the task of a checkpoint",
    "fallback": "single characters, bytes, parts of kept tokens",
    "more": "additional tokens of the same writing systems",
}


def command(
    model: Annotated[str, Argument(metavar="MODEL", help="A model's folder or Hub name.")],
    out: Annotated[Path, Argument(metavar="OUT", help="The folder to write; it must not exist yet.")],
    overrides: OverridesArgument = None,
    data: Annotated[
        list[Path] | None,
        Option(
            metavar="FILE",
            help="Keep the tokens of this data or text file, such as train.json; may be repeated (default: those of "
            "--recipe).",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        Option(
            metavar="RECIPE",
            help="Keep the tokens of all splits of this recipe's data, such as mine.yaml, instead of --data (default: "
            "none).",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        Option(
            metavar="data|language|N",
            help="Which tokens to keep. data: those that occur in the data; language: all of the data's writing "
            "systems; N: those that occur and the N most frequent others. Default: the recipe's "
            "model.trim_vocabulary, or data. Example: --mode 5000",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Folder or Hub name of the tokenizer, such as google/mt5-small (default: the model's own).",
        ),
    ] = None,
) -> None:
    """Write a smaller model that has only the tokens that some data uses; plain transformers loads the folder.

    Examples: seqfit trim google/mt5-small mt5-es --data train.json; seqfit trim ./mt5 ./mt5-es --recipe mine.yaml
    --mode 5000
    """
    from seqfit.cli.arguments import progress_bar
    from seqfit.trimming.trim import trim

    chosen = None if mode is None else _read_mode(mode)
    with progress_bar() as progress:
        report = trim(
            model,
            out,
            data=data or (),
            recipe=recipe,
            overrides=overrides or (),
            mode=chosen,
            tokenizer=tokenizer,
            progress=progress,
        )
    _print_report(report)
    print(f"model: {out}\nnext: seqfit train RECIPE model.path={quote(out)}")


def _read_mode(text: str) -> Mode:
    if text == "data":
        return "data"
    if text == "language":
        return "language"
    if text.isdecimal():
        return int(text)
    rule = "It must be data, language or a number of additional tokens"
    raise RecipeError(f"--mode is '{text}'", rule, "Try --mode data")


def _print_report(report: TrimReport) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    kept = Table("tokens", "share", "kept", title=f"{report.tokens_after:,} of {report.tokens_before:,} tokens kept")
    for reason, count in report.reasons.items():
        kept.add_row(f"{count:,}", format_share(count / report.tokens_before), f"{reason}: {_MEANINGS[reason]}")
    saved = Table("fp32", "before", "after", "saved", title="savings")
    before, after = report.parameters_before, report.parameters_after
    saved.add_row("parameters", *map(format_count, (before, after, before - after)))
    sizes = {"weights": report.weight_bytes, "weights, gradients, AdamW": report.training_bytes}
    if report.logit_bytes is not None:
        sizes["logits of a target token"] = report.logit_bytes
    for name, (before, after) in sizes.items():
        saved.add_row(name, *map(format_bytes, (before, after, before - after)))
    for table, numbers in ((kept, (0, 1)), (saved, (1, 2, 3))):
        for column in numbers:
            table.columns[column].justify = "right"
    console = Console()
    console.print(kept, saved)
    systems = ", ".join(system.capitalize() for system in report.writing_systems)
    console.print(Text(f"writing systems of the data: {systems or 'none'}"))
    console.print(Text(f"most frequent dropped tokens: {'  '.join(report.dropped_examples) or 'none'}", style="dim"))
