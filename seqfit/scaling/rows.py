"""From what ranks have measured to the rows of a scaling report: medians, and a prediction for each.

In: the figures of every rank of every repeat, for each group of processes. Out: rows, one process first.

    one process: 1.0 s per step, of which 0.1 s are the update; two of them: arithmetic 1.1 times slower when both run,
    a link that takes 0.05 s for the gradients
    predicted, ddp     0.9 / 2 x 1.1 + 0.1 x 1.1 + 0.05 = 0.655 s     efficiency 1.0 / (2 x 0.655) = 76%
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqfit.planning import GpuLayout, Link, RankWork, ScalingFigures, ScalingRow
from seqfit.units import format_share

ONE_PROCESS = ("single", 1)  # the group that all others are compared with
BUFFER_BYTES = 8 * 2**20  # of the all-reduce that measures the link
_BUSY_MACHINE = 0.1  # of a step: longer waits for a core mean that something else was running


@dataclass(frozen=True)
class RankFigures:
    """What one rank has measured; seconds are means per step."""

    step_seconds: float
    busy_seconds: float | None  # computing; None on a GPU
    queued_seconds: float  # waiting for a core
    data_seconds: float  # waiting for the next batch
    update_seconds: float
    tokens: float  # real tokens of the global batch
    examples: float
    planned_imbalance: float
    micro_batches: float  # of this rank
    peak_bytes: int
    weight_bytes: int  # of this rank
    gradient_bytes: int
    blocks: int  # of the model; the rest of it counts as one
    probe_seconds: float  # of arithmetic on all ranks at once; 0 on a GPU, where each has its own
    reduce_seconds: float  # of an all-reduce of BUFFER_BYTES
    exchange_seconds: float  # of an all-reduce of one number


_Repeats = Sequence[Sequence[RankFigures]]  # of one group: by repeat, then by rank
_Found = Mapping[tuple[str, int], _Repeats]  # by strategy and number of processes


@dataclass(frozen=True)
class ScalingPlace:
    """Measured for a number of processes, whatever their strategy."""

    processes: int
    link: Link
    slower: float  # how many times as long arithmetic takes while the others compute, too


def find_places(found: _Found) -> list[ScalingPlace]:
    """For each number of processes above one, from all its groups."""
    places = []
    single_seconds = _median(found[ONE_PROCESS], "probe_seconds")
    for count in sorted({count for _, count in found} - {1}):
        repeats = [ranks for (_, of), group in found.items() if of == count for ranks in group]
        exchange_seconds = _median(repeats, "exchange_seconds")
        link = fit_ring_link(BUFFER_BYTES, count, _median(repeats, "reduce_seconds"), exchange_seconds)
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
