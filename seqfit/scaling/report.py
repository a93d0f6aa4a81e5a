"""The scaling report: what was measured and what is predicted, as tables for a terminal, Markdown and JSON.

In: groups to measure, a cluster to predict for, or both. Out: a `Scaling`. Every line of a table says whether it is
measured or predicted:

    way   processes   scaling                step     tokens/s   efficiency   on others   imbalance   memory
    ddp   2           strong     measured    130 ms   25.1K      90.4%        6.1%        1.2%        0.6 GiB
    ddp   2           strong     predicted   124 ms   26.3K      94.8%        4.0%        0.2%        -
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.errors import RunError
from seqfit.planning.cluster import Cluster, ScalingFigures, ScalingRow, describe_scaling_limits
from seqfit.recipe.schema import Recipe
from seqfit.scaling.measure import (
    Group,
    ScalingOptions,
    _ScalingProgress,
    choose_cluster,
    choose_options,
    list_groups,
    measure_scaling,
    read_strategies,
)
from seqfit.scaling.rows import ScalingPlace
from seqfit.strategy.load import load_strategy
from seqfit.units import format_bytes, format_count, format_seconds, format_share
from seqfit.validation import load_checked_recipe, runs_on_cpu

if TYPE_CHECKING:
    from seqfit.planning.cluster_prediction import ClusterPrediction

JSON_FILE, MARKDOWN_FILE = "scaling.json", "scaling.md"
HEADINGS = ["way", "processes", "scaling", "", "step", "tokens/s", "efficiency", "on others", "imbalance", "memory", ""]


@dataclass(frozen=True)
class ScalingTable:
    """Cells of text."""

    title: str
    headings: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class ScalingReport:
    """A report: what was measured here, and what is predicted for cards; either may be missing."""

    rows: list[ScalingRow]  # of this machine
    places: list[ScalingPlace]
    conditions: str  # of the measurement
    cards: ClusterPrediction | None
    sentences: list[str]

    def tables(self) -> list[ScalingTable]:
        """For reading."""
        tables = [_build_table(f"This machine: {self.conditions}", self.rows)] if self.rows else []
        if self.cards is not None:
            tables.append(_build_table(f"Predicted: {self.cards.card}, {self.cards.strategy}", self.cards.rows))
        return tables

    def to_markdown(self) -> str:
        """All tables, and what they say."""
        parts = [f"## {table.title}\n\n{_to_markdown(table)}" for table in self.tables()]
        said = "\n".join(f"- {sentence}" for sentence in self.sentences)
        return "\n\n".join(["# How it scales", *parts, said]).rstrip() + "\n"

    def to_json(self) -> dict[str, Any]:
        """Numbers in base units; what is measured and what is predicted of a row lie apart."""
        return asdict(self)


def scale(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    nproc: Sequence[int] | None = None,
    ways: Sequence[str] = ("ddp",),
    weak: bool = False,
    steps: int = 5,
    repeats: int = 3,
    gpu: str | None = None,
    upto: int | None = None,
    per_node: int | None = None,
    network: str | None = None,
    progress: _ScalingProgress = lambda *_: None,
) -> ScalingReport:
    """How this recipe's steps scale over `nproc` processes here, measured, and over cards of a kind, predicted.

    The parameters are the options of `seqfit scale`. With a `gpu` nothing is measured unless `nproc` is given.
    """
    shared = read_strategies(",".join(ways))
    cluster = choose_cluster(gpu, shared, upto=upto, per_node=per_node, network=network)
    asked = choose_options(
        None if nproc is None else ",".join(map(str, nproc)),
        shared,
        steps=steps,
        repeats=repeats,
        weak=weak,
        only_predicts=cluster is not None,
    )
    return build_scaling(
        recipe,
        overrides,
        ways=shared,
        groups=list_groups(recipe, overrides, asked),
        asked=asked,
        cluster=cluster,
        progress=progress,
    )


def build_scaling(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    *,
    ways: Sequence[str],
    groups: Sequence[Group] = (),
    asked: ScalingOptions | None = None,
    cluster: Cluster | None = None,
    progress: _ScalingProgress = lambda *_: None,
) -> ScalingReport:
    """Measure the groups here, and predict for the cluster; what is not given is left out."""
    rows: list[ScalingRow] = []
    places: list[ScalingPlace] = []
    sentences: list[str] = []
    conditions, cards = "", None
    if cluster is not None:
        from seqfit.planning.cluster_prediction import predict_cluster  # imports torch

        cards = predict_cluster(load_checked_recipe(recipe, overrides), cluster, ways, progress)
        sentences += [*_say_cluster(cluster, cards), *describe_scaling_limits(cards.rows)]
    if asked is not None:
        rows, places = measure_scaling(groups, asked, progress)
        conditions = describe_conditions(groups[0].recipe, asked)
        sentences = [*map(_say_place, places), *sentences]
    return ScalingReport(rows, places, conditions, cards, sentences)


def describe_conditions(recipe: Recipe, asked: ScalingOptions) -> str:
    """What was run, in a line."""
    threads = load_strategy(recipe).threads or 1
    where = f"on a CPU, {threads} thread{'s' if threads > 1 else ''} a process" if runs_on_cpu(recipe) else "on GPUs"
    batch = "the global batch grows with the processes" if asked.kind == "weak" else "the same global batch"
    model = "/".join(Path(recipe.model.location).parts[-2:])
    counted = f"medians of {asked.repeats} x {asked.steps} steps"
    return f"{model} {where}; {asked.kind} scaling: {batch}; {counted}"


def check_place(folder: Path) -> None:
    """Before minutes are spent: nothing is overwritten, and the place can be made."""
    if folder.exists() and not folder.is_dir():
        raise RunError(
            f"--out is '{folder}', which is a file", "reports are written into a folder", "Give another name"
        )
    if (folder / JSON_FILE).exists():
        raise RunError(f"'{folder / JSON_FILE}' is there already", "no report is overwritten", "Give another --out")


def write_scaling(scaling: ScalingReport, folder: Path) -> list[Path]:
    """Both files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        JSON_FILE: json.dumps(scaling.to_json(), indent=2) + "\n",
        MARKDOWN_FILE: scaling.to_markdown(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in texts]


def _build_table(title: str, rows: Sequence[ScalingRow]) -> ScalingTable:
    """A line for what was measured, and one below it for what is predicted of the same row."""
    lines = []
    for row in rows:
        known = {"measured": row.measured, "predicted": row.predicted}
        for origin, figures in known.items():
            if figures is not None:
                note = "" if origin == "predicted" and row.measured is not None else row.note
                lines.append([row.strategy, str(row.processes), row.kind, origin, *_build_cells(figures), note])
    return ScalingTable(title, HEADINGS, lines)


def _build_cells(figures: ScalingFigures) -> list[str]:
    return [
        format_seconds(figures.step_seconds),
        format_count(figures.tokens_per_second),
        format_share(figures.efficiency),
        *("-" if share is None else format_share(share) for share in (figures.communication_share, figures.imbalance)),
        _format_memory(figures),
    ]


def _say_place(place: ScalingPlace) -> str:
    return (
        f"measured between {place.processes} processes: {format_bytes(place.link.bytes_per_second)}/s on a link, "
        f"{place.link.latency_seconds * 1e3:.2f} ms for the smallest exchange; arithmetic takes {place.slower:.2f} "
        "times as long beside the others."
    )


def _say_cluster(cluster: Cluster, cards: ClusterPrediction) -> list[str]:
    link, network = cluster.card.link_bytes_per_second / 1e9, cluster.network_bytes_per_second / 1e9
    return [
        f"predicted from: {cards.rates_source}; {link:.0f} GB/s between the {cluster.per_machine} GPUs of a machine "
        f"(data sheet), {network:g} GB/s from machine to machine ({cluster.network_source}).",
        f"predicted: a global batch has {cards.examples:.0f} examples on average, so by strong scaling more than "
        f"{cards.examples:.0f} GPUs can't help.",
    ]


def _format_memory(figures: ScalingFigures) -> str:
    """'-' where it is not known; otherwise of the rank that takes least and most, where they differ."""
    if figures.highest_bytes is None:
        return "-"
    highest = format_bytes(figures.highest_bytes)
    lowest = highest if figures.lowest_bytes is None else format_bytes(figures.lowest_bytes)
    return highest if lowest == highest else f"{lowest} to {highest}"


def _to_markdown(table: ScalingTable) -> str:
    rule = ["---"] * len(table.headings)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (table.headings, rule, *table.lines))
