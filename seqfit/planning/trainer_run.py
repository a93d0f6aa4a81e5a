"""A training by transformers' Trainer as somebody published it: settings and lengths come in, memory and time go out.

The prediction is that of a Trainer script as it is (script_prediction.py). What differs is where the rows come from: an
account says how many there were and how long, and no data is read. nn.DataParallel pads the rows of all GPUs to their
longest, so each GPU gets rows of that length:

    lengths 300 900 500 400, batch 1, two GPUs     each GPU: 900 | 500
                                      one GPU      300 | 900 | 500 | 400

How much the allocator's memory is fragmented depends on the order of the lengths, which no account gives: the rows are
shuffled several times, and the mean counts: the draws often fall into two groups, between which a median would jump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import numpy.typing as npt

from seqfit.conversion import ScriptSettings
from seqfit.hardware import read_gpu
from seqfit.planning.cluster import DATAPARALLEL
from seqfit.planning.device_rules import rules_for
from seqfit.planning.layout_memory import ModelState
from seqfit.planning.report import AssumedLengths
from seqfit.planning.request import build_request
from seqfit.planning.script_prediction import ScriptTraces, find_script_layout, predict_script
from seqfit.planning.shape import Workload
from seqfit.planning.target import find_target
from seqfit.recipe import Recipe

_Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TrainerPlace:
    """Where a published training ran."""

    gpu: str
    gpus: int = 1
    torch_version: str | None = None  # None: the present one
    context_bytes: int | None = None  # None: the planner's own


@dataclass(frozen=True)
class TrainerPrediction:
    """The mean of the draws, and the lowest and highest."""

    predicted_bytes: int  # over all GPUs
    low_bytes: int
    high_bytes: int
    gpu_bytes: tuple[int, ...]  # of each GPU, in the draw next to the mean
    step_seconds: float
    examples_per_step: int
    fits: bool
    layout: str
    cause: str
    terms: dict[str, int]  # what the memory of one GPU that does all the work consists of, the largest first


def predict_trainer(
    settings: ScriptSettings,
    recipe: Recipe,
    place: TrainerPlace,
    draws: Sequence[tuple[_Lengths, _Lengths]],
    known: dict[ScriptSettings, ScriptTraces] | None = None,
) -> TrainerPrediction:
    """`draws`: source and target lengths of the rows, in several orders. The recipe names model, task and optimizer.

    `known`: traces of other rows of the same account, found there and added.
    """
    target = find_target(read_gpu(place.gpu).card.key, place.gpus)
    if place.torch_version is not None:
        target = replace(target, rules=rules_for("gpu", torch_version=place.torch_version))
    if place.context_bytes is not None:
        target = replace(target, context_bytes=place.context_bytes)
    longest = max(int(sources.max()) for sources, _ in draws)
    most = max(int(targets.max()) for _, targets in draws)
    request = build_request(recipe, target, AssumedLengths(longest, most or None, without_data=True))
    traces = ({} if known is None else known).setdefault(_find_alike(settings), ScriptTraces())
    plans = []
    for sources, targets in draws:
        workload = _build_workload(settings, sources, targets, target.count, request.workload)
        drawn = replace(request, workload=workload)
        plans.append(predict_script(settings, recipe, drawn, traces, is_assumed=False, is_whole=True))
    totals = [sum(plan.predicted_bytes) for plan in plans]
    expected = fmean(totals)
    middle = min(plans, key=lambda plan: abs(sum(plan.predicted_bytes) - expected))
    return TrainerPrediction(
        predicted_bytes=int(expected),
        low_bytes=min(totals),
        high_bytes=max(totals),
        gpu_bytes=tuple(middle.predicted_bytes),
        step_seconds=fmean(plan.predicted_step_seconds for plan in plans),
        examples_per_step=middle.examples_per_step,
        fits=middle.fits,
        layout=middle.layout,
        cause=middle.cause_sentence,
        terms=dict(middle.peak.list_terms()),
    )


def _find_alike(settings: ScriptSettings) -> ScriptSettings:
    """Settings whose step on one GPU has the same trace: both half precisions have, and so have all layouts."""
    precision = "fp32" if settings.precision == "fp32" else "half"
    return replace(settings, name="", precision=precision, visible_gpus=None, naive_pipeline=False, arguments={})


def _build_workload(
    settings: ScriptSettings, sources: _Lengths, targets: _Lengths, gpus: int, assumed: Workload
) -> Workload:
    """The rows of one GPU, in the Trainer's batches."""
    layout = find_script_layout(settings, gpus)
    if layout.parallel == DATAPARALLEL:
        sources, targets = (
            _pad_together(one, settings.per_device_examples, layout.count) for one in (sources, targets)
        )
    batch = settings.per_device_examples
    steps = tuple(np.arange(start, min(start + batch, len(sources))) for start in range(0, len(sources), batch))
    return Workload(sources, targets, steps, assumed.is_classifier, len(steps))


def _pad_together(lengths: _Lengths, batch: int, gpus: int) -> _Lengths:
    """What one GPU gets of batches that are padded as a whole: 3 9 5 4, batch 1, two GPUs -> 9 5."""
    together = batch * gpus
    whole = lengths[: len(lengths) // together * together].reshape(-1, together)
    return np.repeat(whole.max(axis=1), batch).astype(np.int32)


def split_model_state(parameters: float, optimizer_bytes: float, gpus: int) -> list[float]:
    """Bytes per GPU by ZeRO's stages 0 to 3, with weights and gradients in 16 bits; activations come on top."""
    state = ModelState(2 * parameters, 2 * parameters, optimizer_bytes * parameters)
    return [state.shard(stage, gpus).bytes for stage in range(4)]
