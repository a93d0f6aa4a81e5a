"""From what ranks have measured to the rows of a scaling report: medians, and a prediction beside each.

In: the figures of every rank of every repeat, for each group of processes. Out: rows, one process first.

    one process 1.0 s a step, of which 0.1 s are the update; two of them: arithmetic 1.1 times slower side by side,
    a link that takes 0.05 s for the gradients
    predicted, ddp     0.9 / 2 x 1.1 + 0.1 x 1.1 + 0.05 = 0.655 s     efficiency 1.0 / (2 x 0.655) = 76%
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqfit.planning.cluster import (
    GpuLayout,
    Link,
    ParallelKind,
    RankWork,
    ScalingFigures,
    ScalingRow,
    compute_efficiency,
    fit_ring_link,
    predict_step,
)
from seqfit.units import format_share

_ONE_PROCESS = ("one", 1)  # the group that all others are compared with
BUFFER_BYTES = 8 * 2**20  # of the all-reduce that shows the link
_BUSY_MACHINE = 0.1  # of a step: longer waits for a core mean that something else was running


@dataclass(frozen=True)
class RankFigures:
    """What one rank has measured; seconds are of a step, on average."""

    step_seconds: float
    busy_seconds: float | None  # its thread computed; None on a GPU
    queued_seconds: float  # its thread waited for a core
    data_seconds: float  # it waited for the next batch
    update_seconds: float
    tokens: float  # real ones, of the global batch
    examples: float
    planned_imbalance: float
    micro_batches: float  # of this rank
    peak_bytes: int
    weight_bytes: int  # of what this rank holds
    gradient_bytes: int
    blocks: int  # of the model, and the rest of it as one
    probe_seconds: float  # of some arithmetic that all ranks do at once; 0 on a GPU, where each has its own
    reduce_seconds: float  # of an all-reduce of BUFFER_BYTES
    exchange_seconds: float  # of an all-reduce of one number


_Repeats = Sequence[Sequence[RankFigures]]  # of one group: by repeat, then by rank
_Found = Mapping[tuple[str, int], _Repeats]  # by way and number of processes


@dataclass(frozen=True)
class ScalingPlace:
    """What a number of processes finds on this machine, whatever they do together. Measured."""

    processes: int
    link: Link
    slower: float  # arithmetic beside the others takes so many times as long as alone


def find_places(found: _Found) -> list[ScalingPlace]:
    """For each number of processes above one, from all its groups."""
    places = []
    alone_seconds = _middle(found[_ONE_PROCESS], "probe_seconds")
    for count in sorted({count for _, count in found} - {1}):
        repeats = [ranks for (_, of), group in found.items() if of == count for ranks in group]
        exchange_seconds = _middle(repeats, "exchange_seconds")
        link = fit_ring_link(BUFFER_BYTES, count, _middle(repeats, "reduce_seconds"), exchange_seconds)
        slower = _middle(repeats, "probe_seconds") / alone_seconds if alone_seconds else 1.0
        places.append(ScalingPlace(count, link, slower))
    return places


def build_rows(
    found: _Found, places: Sequence[ScalingPlace], kind: ParallelKind, *, cores: int, on_gpus: bool
) -> list[ScalingRow]:
    """In the order of the groups."""
    alone = found[_ONE_PROCESS]
    alone_rate = statistics.median(map(_rate, alone))
    at = {place.processes: place for place in places}
    return [
        ScalingRow(
            strategy=way,
            processes=count,
            kind=kind,
            examples=statistics.fmean(ranks[0].examples for ranks in repeats),
            measured=summarise_repeats(repeats, alone_rate),
            predicted=None if count == 1 else predict_group(way, repeats, alone, at[count], hides=on_gpus),
            note=find_note(way, repeats, cores=None if on_gpus else cores),
        )
        for (way, count), repeats in found.items()
    ]


def summarise_repeats(repeats: _Repeats, alone_rate: float) -> ScalingFigures:
    """Medians over repeats. A group is as slow as its slowest rank; memory is the highest and lowest of any rank."""
    rate = statistics.median(map(_rate, repeats))
    busy = [[rank.busy_seconds for rank in ranks if rank.busy_seconds is not None] for ranks in repeats]
    peaks = [rank.peak_bytes for ranks in repeats for rank in ranks]
    return ScalingFigures(
        step_seconds=statistics.median(map(_step_seconds, repeats)),
        tokens_per_second=rate,
        efficiency=compute_efficiency(rate, len(repeats[0]), alone_rate),
        communication_share=statistics.median(map(_share_of_others, repeats)) if all(busy) else None,
        imbalance=statistics.median(max(each) / statistics.fmean(each) - 1 for each in busy) if all(busy) else None,
        highest_bytes=max(peaks),
        lowest_bytes=min(peaks),
    )


def predict_group(way: str, repeats: _Repeats, alone: _Repeats, place: ScalingPlace, *, hides: bool) -> ScalingFigures:
    """From one process's steps and the place; of the group itself only its batches are used, which are no secret."""
    count, one = place.processes, alone[0][0]
    tokens, alone_tokens = _middle(repeats, "tokens"), _middle(alone, "tokens")
    step_seconds, update_seconds = _middle(alone, "step_seconds"), _middle(alone, "update_seconds")
    planned = statistics.fmean(ranks[0].planned_imbalance for ranks in repeats)
    work = RankWork(
        batch_seconds=(step_seconds - update_seconds) * place.slower * tokens / alone_tokens / count * (1 + planned),
        update_seconds=update_seconds * place.slower,
        micro_batches=_middle(repeats, "micro_batches"),
        weight_bytes=one.weight_bytes,
        gradient_bytes=one.gradient_bytes,
        blocks=one.blocks,
    )
    predicted_seconds, waiting = predict_step(GpuLayout(way, count), work, place.link, overlaps=hides)
    rate = tokens / predicted_seconds
    efficiency = compute_efficiency(rate, count, alone_tokens / step_seconds)
    return ScalingFigures(predicted_seconds, rate, efficiency, waiting / predicted_seconds, planned)


def find_note(way: str, repeats: _Repeats, *, cores: int | None) -> str:
    """What a reader must know of a row; `cores` are None where GPUs compute."""
    count, examples = len(repeats[0]), min(ranks[0].examples for ranks in repeats)
    if way != "pipeline" and examples < count:
        return f"only {examples:.0f} examples"
    if cores is not None and count > cores:
        return f"{count} processes share {cores} cores"
    queued = statistics.median(max(rank.queued_seconds / rank.step_seconds for rank in ranks) for ranks in repeats)
    if queued > _BUSY_MACHINE:
        return f"no core for {format_share(queued)} of it"
    return ""


def _share_of_others(ranks: Sequence[RankFigures]) -> float:
    """Of the ranks' time, what they spent on each other: neither computing nor waiting for a core or a batch."""
    if len(ranks) == 1:
        return 0.0
    own = [(rank.busy_seconds or 0.0) + rank.queued_seconds + rank.data_seconds for rank in ranks]
    shares = [1 - seconds / rank.step_seconds for seconds, rank in zip(own, ranks, strict=True)]
    return max(0.0, statistics.fmean(shares))


def _step_seconds(ranks: Sequence[RankFigures]) -> float:
    return max(rank.step_seconds for rank in ranks)


def _rate(ranks: Sequence[RankFigures]) -> float:
    return ranks[0].tokens / _step_seconds(ranks)


def _middle(repeats: _Repeats, name: str) -> float:
    """Median over all ranks and repeats."""
    return float(statistics.median(getattr(rank, name) for ranks in repeats for rank in ranks))
