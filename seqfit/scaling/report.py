"""The scaling report: measurements and predictions, as tables for a terminal, Markdown and JSON.

In: groups to measure, a cluster to predict for, or both. Out: a `ScalingReport`. Repeats are interleaved, so that other
load on the machine hits all groups alike; figures are medians over repeats.

    repeat 0    single   ddp x 2   ddp x 4   fsdp x 2   fsdp x 4
    repeat 1    single   ddp x 2   ...                           other batches, the same for all groups

Predictions are made from the steps of one process, the link that the group itself has measured, and how much that many
processes slow each other down by sharing caches, memory and perhaps cores:

    one process: 1.0 s per step, of which 0.1 s are the update; two of them: arithmetic 1.1 times slower when both run,
    a link that takes 0.05 s for the gradients
    predicted, ddp     0.9 / 2 x 1.1 + 0.1 x 1.1 + 0.05 = 0.655 s     efficiency 1.0 / (2 x 0.655) = 76%

Every row of a table states whether it is measured or predicted:

    strategy   processes   scaling               time per step   tokens/s   efficiency   communication   imbalance   ...
    ddp                2   strong    measured           130 ms      25.1K        90.4%            6.1%        1.2%
    ddp                2   strong    predicted          124 ms      26.3K        94.8%            4.0%        0.2%
"""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.errors import RunError
from seqfit.hardware import probe_machine
from seqfit.planning import Cluster, GpuLayout, Link, RankWork, ScalingFigures, ScalingRow
from seqfit.recipe import Recipe
from seqfit.scaling.measure import (
    BUFFER_BYTES,
    ONE_PROCESS,
    UNIT_BYTES,
    WARM_UP,
    Group,
    RankFigures,
    ScalingOptions,
    ScalingProgress,
    choose_cluster,
    choose_options,
    list_groups,
    read_parallel,
    run_group,
)
from seqfit.strategy import load_strategy
from seqfit.tables import Table, TableColumn, shrink, to_markdown_table, to_text
from seqfit.units import format_bytes, format_count, format_seconds, format_share
from seqfit.validation import load_checked_recipe, runs_on_cpu

if TYPE_CHECKING:
    from seqfit.planning import ClusterPrediction

JSON_FILE, MARKDOWN_FILE = "scaling.json", "scaling.md"
LEAST_EFFICIENCY = 0.5  # below this, more processes are reported as not worthwhile
_BUSY_MACHINE = 0.1  # of a step: longer waits for a core mean that something else was running
_FIGURES = ("time per step", "tokens/s", "efficiency", "communication", "imbalance", "peak memory")
_Repeats = Sequence[Sequence[RankFigures]]  # of one group: by repeat, then by rank
_Found = Mapping[tuple[str, int], _Repeats]  # by strategy and number of processes


@dataclass(frozen=True)
class ScalingPlace:
    """Measured for a number of processes, whatever their strategy."""

    processes: int
    link: Link
    slower: float  # how many times as long arithmetic takes while the others compute, too


@dataclass(frozen=True)
class ScalingReport:
    """What was measured here, and what is predicted for GPUs; either may be missing."""

    rows: list[ScalingRow]  # of this machine
    places: list[ScalingPlace]
    conditions: str  # of the measurement
    cards: ClusterPrediction | None
    sentences: list[str]

    def tables(self) -> list[Table]:
        tables = [_build_table(f"This machine: {self.conditions}", "processes", self.rows)] if self.rows else []
        if self.cards is not None:
            title = f"Predicted: {self.cards.card}, {self.cards.strategy}"
            tables.append(_build_table(title, "GPUs", self.cards.rows))
        return tables

    def to_text(self, width: int) -> str:
        """For a terminal: without the columns that don't fit, and with notes below the tables."""
        parts = [self._fit(table, width) for table in self.tables()]
        sentences = [textwrap.fill(sentence, width) for sentence in self.sentences]
        return "\n\n".join([*parts, "\n".join(sentences)]).rstrip()

    def _fit(self, table: Table, width: int) -> str:
        notes: dict[str, list[str]] = {}
        for strategy, count, *_, note in table.rows:
            if note:
                notes.setdefault(note, []).append(f"{strategy} x {count}")
        lines = [f"note: {note} ({', '.join(dict.fromkeys(who))})" for note, who in notes.items()]
        has_one_kind = len({row[2] for row in table.rows}) == 1
        drop = [*([2] if has_one_kind else []), 8, 5, 7, 9]  # scaling, imbalance, tokens/s, communication, memory
        shown = shrink(table.keep(range(len(table.columns) - 1)), width, drop)
        wrapped = [textwrap.fill(line, width) for line in (table.title, *lines)]
        return "\n".join([wrapped[0], to_text(replace(shown, title="")), *wrapped[1:]])

    def to_markdown(self) -> str:
        tables = [to_markdown_table(table) for table in self.tables()]
        sentences = "\n".join(f"- {sentence}" for sentence in self.sentences)
        return "\n\n".join(["# How it scales", *tables, sentences]).rstrip() + "\n"

    def to_json(self) -> dict[str, Any]:
        """Numbers in base units; each row has `measured` and `predicted`."""
        return asdict(self)


def scale(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    nproc: Sequence[int] | None = None,
    parallel: Sequence[str] = ("ddp",),
    weak: bool = False,
    steps: int = 5,
    repeats: int = 3,
    gpu: str | None = None,
    upto: int | None = None,
    per_node: int | None = None,
    network: str | None = None,
    progress: ScalingProgress = lambda *_: None,
) -> ScalingReport:
    """How a recipe's steps scale over `nproc` processes here (measured) and over GPUs of a kind (predicted).

    The parameters are the options of `seqfit scale`. With a `gpu` nothing is measured unless `nproc` is given.
    """
    names = read_parallel(",".join(parallel))
    cluster = choose_cluster(gpu, names, upto=upto, per_node=per_node, network=network)
    counts = None if nproc is None else ",".join(map(str, nproc))
    only_predicts = cluster is not None
    options = choose_options(counts, names, steps=steps, repeats=repeats, weak=weak, only_predicts=only_predicts)
    groups = list_groups(recipe, overrides, options)
    return build_scaling(
        recipe, overrides, parallel=names, groups=groups, options=options, cluster=cluster, progress=progress
    )


def build_scaling(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    *,
    parallel: Sequence[str],
    groups: Sequence[Group] = (),
    options: ScalingOptions | None = None,
    cluster: Cluster | None = None,
    progress: ScalingProgress = lambda *_: None,
) -> ScalingReport:
    """Measures the groups here and predicts for the cluster, where they are given."""
    rows: list[ScalingRow] = []
    places: list[ScalingPlace] = []
    sentences: list[str] = []
    conditions, cards = "", None
    if cluster is not None:
        from seqfit.planning import predict_cluster  # imports torch

        cards = predict_cluster(load_checked_recipe(recipe, overrides), cluster, parallel, progress)
        sentences += [*_describe_cluster(cluster, cards), *describe_scaling_limits(cards.rows)]
    if options is not None:
        rows, places = measure_scaling(groups, options, progress)
        conditions = describe_conditions(groups[0].recipe, options)
        sentences = [*map(_describe_place, places), *sentences]
    return ScalingReport(rows, places, conditions, cards, sentences)


def measure_scaling(
    groups: Sequence[Group], options: ScalingOptions, progress: ScalingProgress = lambda *_: None
) -> tuple[list[ScalingRow], list[ScalingPlace]]:
    """Every group once per repeat; rows in the order of the groups, and what was measured between processes."""
    found: dict[tuple[str, int], list[list[RankFigures]]] = {(group.strategy, group.count): [] for group in groups}
    runs = [(repeat, group) for repeat in range(options.repeats) for group in groups]
    for number, (repeat, group) in enumerate(runs):
        progress("measuring", number, len(runs))
        first = repeat * (WARM_UP + options.steps)
        found[group.strategy, group.count].append(run_group(group, first, options.steps))
    progress("measuring", len(runs), len(runs))
    machine, places = probe_machine(), find_places(found)
    on_gpus = not runs_on_cpu(groups[0].recipe)
    return build_rows(found, places, weak=options.weak, cores=machine.cores, on_gpus=on_gpus), places


def find_places(found: _Found) -> list[ScalingPlace]:
    """For each number of processes above one, from all its groups."""
    places = []
    single_seconds = _median(found[ONE_PROCESS], "probe_seconds")
    for count in sorted({count for _, count in found} - {1}):
        repeats = [ranks for (_, of), group in found.items() if of == count for ranks in group]
        small_reduce_seconds = _median(repeats, "small_reduce_seconds")
        link = fit_ring_link(BUFFER_BYTES, count, _median(repeats, "reduce_seconds"), small_reduce_seconds)
        small, large = (_median(repeats, f"{size}_unit_seconds") for size in ("small", "large"))
        if small:  # a unit's seconds grow with its bytes
            rate = UNIT_BYTES / max(large - small, 0.1 * large)
            link = replace(link, unit_seconds=small, unit_bytes_per_second=rate)
        slower = _median(repeats, "probe_seconds") / single_seconds if single_seconds else 1.0
        places.append(ScalingPlace(count, link, slower))
    return places


def fit_ring_link(buffer_bytes: int, count: int, seconds: float, latency_seconds: float) -> Link:
    """From the time of one all-reduce: 2 (n-1)/n of the buffer pass every link."""
    moving = max(seconds - latency_seconds, 0.1 * seconds)  # a small buffer may take hardly longer than none
    return Link(2 * (count - 1) / count * buffer_bytes / moving, latency_seconds)


def build_rows(
    found: _Found, places: Sequence[ScalingPlace], *, weak: bool, cores: int, on_gpus: bool
) -> list[ScalingRow]:
    """In the order of the groups."""
    single = found[ONE_PROCESS]
    single_rate = statistics.median(map(_rate, single))
    at = {place.processes: place for place in places}
    return [
        ScalingRow(
            strategy=strategy,
            processes=count,
            kind="weak" if weak else "strong",
            examples=statistics.fmean(ranks[0].examples for ranks in repeats),
            measured=summarise_repeats(repeats, single_rate),
            predicted=None if count == 1 else predict_group(strategy, repeats, single, at[count], hides=on_gpus),
            note=find_note(strategy, repeats, cores=None if on_gpus else cores),
        )
        for (strategy, count), repeats in found.items()
    ]


def summarise_repeats(repeats: _Repeats, single_rate: float) -> ScalingFigures:
    """Medians over repeats. A group is as slow as its slowest rank; memory is that of the highest and lowest rank."""
    rate = statistics.median(map(_rate, repeats))
    busy = [[rank.busy_seconds for rank in ranks if rank.busy_seconds is not None] for ranks in repeats]
    peaks = [rank.peak_bytes for ranks in repeats for rank in ranks]
    return ScalingFigures(
        step_seconds=statistics.median(map(_step_seconds, repeats)),
        tokens_per_second=rate,
        efficiency=rate / (len(repeats[0]) * single_rate),
        communication_share=statistics.median(map(_communication_share, repeats)) if all(busy) else None,
        imbalance=statistics.median(max(each) / statistics.fmean(each) - 1 for each in busy) if all(busy) else None,
        highest_bytes=max(peaks),
        lowest_bytes=min(peaks),
    )


def predict_group(
    strategy: str, repeats: _Repeats, single: _Repeats, place: ScalingPlace, *, hides: bool
) -> ScalingFigures:
    """From one process's steps and the place; of the group itself only its batches are used."""
    count, one = place.processes, single[0][0]
    tokens, single_tokens = _median(repeats, "tokens"), _median(single, "tokens")
    step_seconds, update_seconds = _median(single, "step_seconds"), _median(single, "update_seconds")
    planned = statistics.fmean(ranks[0].planned_imbalance for ranks in repeats)
    work = RankWork(
        batch_seconds=(step_seconds - update_seconds) * place.slower * tokens / single_tokens / count * (1 + planned),
        update_seconds=update_seconds * place.slower,
        micro_batches=_median(repeats, "micro_batches"),
        weight_bytes=one.weight_bytes,
        gradient_bytes=one.gradient_bytes,
        blocks=one.blocks,
    )
    predicted_seconds, waiting = work.predict_step(GpuLayout(strategy, count), place.link, overlaps=hides)
    rate = tokens / predicted_seconds
    efficiency = rate / (count * (single_tokens / step_seconds))
    return ScalingFigures(predicted_seconds, rate, efficiency, waiting / predicted_seconds, planned)


def find_note(strategy: str, repeats: _Repeats, *, cores: int | None) -> str:
    """What a reader must know about a row; `cores` is None on GPUs."""
    count, examples = len(repeats[0]), min(ranks[0].examples for ranks in repeats)
    if strategy != "pipeline" and examples < count:
        return f"only {examples:.0f} examples"
    if cores is not None and count > cores:
        return f"{count} processes share {cores} cores"
    queued = statistics.median(max(rank.queued_seconds / rank.step_seconds for rank in ranks) for ranks in repeats)
    if queued > _BUSY_MACHINE:
        return f"busy machine, waits for a core {format_share(queued)} of the time"
    return ""


def _communication_share(ranks: Sequence[RankFigures]) -> float:
    """Of the ranks' time: neither computing nor waiting for a core or a batch."""
    if len(ranks) == 1:
        return 0.0
    own = [(rank.busy_seconds or 0.0) + rank.queued_seconds + rank.data_seconds for rank in ranks]
    shares = [1 - seconds / rank.step_seconds for seconds, rank in zip(own, ranks, strict=True)]
    return max(0.0, statistics.fmean(shares))


def _step_seconds(ranks: Sequence[RankFigures]) -> float:
    return max(rank.step_seconds for rank in ranks)


def _rate(ranks: Sequence[RankFigures]) -> float:
    return ranks[0].tokens / _step_seconds(ranks)


def _median(repeats: _Repeats, name: str) -> float:
    """Median over all ranks and repeats."""
    return float(statistics.median(getattr(rank, name) for ranks in repeats for rank in ranks))


def describe_conditions(recipe: Recipe, options: ScalingOptions) -> str:
    threads = load_strategy(recipe).threads or 1
    where = f"on a CPU, {threads} thread{'s' if threads > 1 else ''} per process" if runs_on_cpu(recipe) else "on GPUs"
    batch = "the global batch grows with the processes" if options.weak else "the same global batch"
    model = "/".join(Path(recipe.model.location).parts[-2:])
    counts = f"medians of {options.repeats} x {options.steps} steps"
    return f"{model} {where}; {'weak' if options.weak else 'strong'} scaling: {batch}; {counts}"


def check_place(folder: Path) -> None:
    """Before anything is measured: no report is overwritten, and the folder can be made."""
    if folder.exists() and not folder.is_dir():
        raise RunError(
            f"--out is '{folder}', which is a file", "a report is written into a folder", "Give another name"
        )
    if (folder / JSON_FILE).exists():
        raise RunError(f"'{folder / JSON_FILE}' exists", "no report is overwritten", "Give another --out")


def write_scaling(scaling: ScalingReport, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    texts = {JSON_FILE: json.dumps(scaling.to_json(), indent=2) + "\n", MARKDOWN_FILE: scaling.to_markdown()}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in texts]


def _build_table(title: str, unit: str, rows: Sequence[ScalingRow]) -> Table:
    """A row for what was measured, and below it one for its prediction."""
    texts = {label: TableColumn("", label, is_number=False) for label in ("strategy", "scaling", "", "note")}
    numbers = [TableColumn("", label) for label in (unit, *_FIGURES)]
    columns = (texts["strategy"], numbers[0], texts["scaling"], texts[""], *numbers[1:], texts["note"])
    lines = []
    for row in rows:
        for origin, figures in {"measured": row.measured, "predicted": row.predicted}.items():
            if figures is not None:
                note = "" if origin == "predicted" and row.measured is not None else row.note
                lines.append((row.strategy, str(row.processes), row.kind, origin, *_build_cells(figures), note))
    return Table(title, columns, tuple(lines))


def _build_cells(figures: ScalingFigures) -> list[str]:
    memory = "-"
    if figures.highest_bytes is not None:  # of the ranks that need least and most, if they differ
        sizes = (figures.lowest_bytes, figures.highest_bytes)
        memory = " to ".join(dict.fromkeys(format_bytes(size) for size in sizes if size is not None))
    return [
        format_seconds(figures.step_seconds),
        format_count(figures.tokens_per_second),
        format_share(figures.efficiency),
        *("-" if share is None else format_share(share) for share in (figures.communication_share, figures.imbalance)),
        memory,
    ]


def _describe_place(place: ScalingPlace) -> str:
    return (
        f"measured between {place.processes} processes: {format_bytes(place.link.bytes_per_second)}/s per link, "
        f"{place.link.latency_seconds * 1e3:.2f} ms for the smallest all-reduce; arithmetic takes {place.slower:.2f} "
        "times as long while all compute."
    )


def _describe_cluster(cluster: Cluster, cards: ClusterPrediction) -> list[str]:
    link, network = cluster.card.link_bytes_per_second / 1e9, cluster.network_bytes_per_second / 1e9
    return [
        f"predicted from: {cards.rates_source}; {link:.0f} GB/s between the {cluster.per_machine} GPUs of a machine "
        f"(data sheet), {network:g} GB/s between machines ({cluster.network_source}).",
        f"predicted: a global batch has {cards.examples:.0f} examples on average, so more than "
        f"{cards.examples:.0f} GPUs can't help with strong scaling.",
    ]


def describe_scaling_limits(rows: Sequence[ScalingRow]) -> list[str]:
    """For each strategy and kind of scaling: the number of GPUs from which more of them are not worthwhile."""
    groups: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        if row.predicted:
            groups.setdefault((row.strategy, row.kind), []).append((row.processes, row.predicted.efficiency))
    sentences: list[str] = []
    for (strategy, kind), found in groups.items():
        where = f"predicted, {strategy}, {kind} scaling"
        poor = [(count, efficiency) for count, efficiency in found if efficiency < LEAST_EFFICIENCY]
        count, efficiency = poor[0] if poor else found[-1]
        share = format_share(efficiency)
        if poor:
            before = max((fewer for fewer, _ in found if fewer < count), default=1)
            sentences.append(f"{where}: efficiency falls to {share} with {count} GPUs; use {before} at most.")
        else:
            sentences.append(f"{where}: efficiency is still {share} with {count} GPUs.")
    return sentences
