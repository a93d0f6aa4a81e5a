"""What one rank of several does in a step and holds at its peak, from a model of one GPU's step.

In: the step model, the data's rows, layouts. Out: for each layout a `RankPrediction` with the parts of the peak and the
seconds of a step. A rank has its own rows, as training assigns them, so what does not shrink with them stays: launches,
the update, one long example. All strategies but the pipeline divide the rows:

    global batch of 16 rows, micro-batches of 8     one GPU 8 + 8     ddp x 2: 8     ddp x 4: 4     pipeline x 2: 8 + 8
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from seqfit.data import CostModel
from seqfit.model import ModelConfig, read_model_shape
from seqfit.planning.cluster import DATAPARALLEL, ONE_GPU, GpuLayout, Link, RankWork
from seqfit.planning.layout_memory import COMMUNICATION, MemoryCurves, find_peak, find_peak_event, lay_out
from seqfit.planning.report import MemoryPart, PeakBreakdown
from seqfit.planning.shape import Shape, Workload
from seqfit.planning.step_model import StepModel
from seqfit.planning.timing import Rates

# What NCCL allocates for its channels. Published pairs of one GPU and eight in the same run: 0.4 GiB (t5-small), 0.4
# (distilbert), both without the gradients that DDP keeps; a channel's buffers are 10 MiB (NVIDIA/nccl 1685).
NCCL_BYTES = 400 * 2**20

_PHASE_NAMES = ("forward", "backward", "backward", "update")
_Rows = npt.NDArray[np.int64]


class RankRows:
    """The rows of each step's busiest rank, for any number of ranks."""

    def __init__(self, workload: Workload, config: ModelConfig, steps: Sequence[_Rows]) -> None:
        shape, _ = read_model_shape(config.config.to_dict())
        self._cost = CostModel() if shape is None else shape.cost_model()
        self._workload, self._steps = workload, steps
        self._known: dict[int, tuple[list[_Rows], float]] = {1: (list(steps), 0.0)}

    def find(self, count: int) -> tuple[list[_Rows], float]:
        """And by how much the busiest rank's cost exceeds the mean, on average over the steps."""
        if count not in self._known:
            busiest, imbalances = [], []
            sources, targets = self._workload.source_lengths, self._workload.target_lengths
            for rows in self._steps:
                assigned = self._cost.assign(rows, sources, targets, count)
                loads = [float(self._cost.costs(sources[part], targets[part]).sum()) for part in assigned]
                busiest.append(assigned[int(np.argmax(loads))])
                imbalances.append(max(loads) / (sum(loads) / count) - 1)
            self._known[count] = busiest, float(np.mean(imbalances))
        return self._known[count]


@dataclass(frozen=True)
class RankPrediction:
    layout: GpuLayout
    parts: dict[str, int]  # of the peak, as allocated
    step_seconds: float
    waiting_seconds: float
    micro_batches: float  # of the rank, per step

    @property
    def peak_bytes(self) -> int:
        return sum(self.parts.values())


def predict_ranks(
    model: StepModel,
    rates: Rates,
    rows: RankRows,
    split: Callable[[Sequence[_Rows]], list[list[Shape]]],
    layouts: Sequence[GpuLayout],
    find_link: Callable[[int], Link],
) -> Iterator[RankPrediction]:
    """In the order of the layouts, which are sorted by their number of GPUs. `split`: rows into micro-batches."""
    known: dict[int, RankShare] = {}
    slowest = inf
    for layout in layouts:
        count = count_shares(layout)
        if count not in known:
            known[count] = RankShare(model, rates, split(rows.find(count)[0]), slowest)
            slowest = min(slowest, known[count].seconds)
        share = known[count]
        work = share.work(layout)
        seconds, waiting = work.predict_step(layout, find_link(layout.count))
        yield RankPrediction(layout, share.find_parts(layout), seconds, waiting, work.micro_batches)


def count_shares(layout: GpuLayout) -> int:
    """Into how many shares a step's rows are divided."""
    return 1 if layout.parallel == "pipeline" else layout.count


class RankShare:
    """A rank's micro-batches, on any layout that divides the rows alike.

    `slowest`: what a larger share takes. Polynomials that were fitted to several examples are a few per cent off where
    only kernel launches count, and one example would take longer than two.
    """

    def __init__(self, model: StepModel, rates: Rates, steps: list[list[Shape]], slowest: float = inf) -> None:
        self._model, self._rates, self._steps = model, rates, steps
        self.shape, self.is_single = model.largest(steps)
        self.seconds = min(slowest, float(model.step_seconds(steps, rates).mean()))
        self._work: RankWork | None = None
        self._curves: MemoryCurves | None = None

    def work(self, layout: GpuLayout) -> RankWork:
        if self._work is None:
            self._work = self._model.rank_work(self._steps, self.seconds, self._rates)
        return self._work.share(layout) if layout.parallel == "pipeline" else self._work

    @property
    def curves(self) -> MemoryCurves:
        if self._curves is None:
            self._curves = self._model.curves(self.shape, single=self.is_single)
        return self._curves

    def find_parts(self, layout: GpuLayout) -> dict[str, int]:
        """Of the peak."""
        if layout.parallel in (ONE_GPU.parallel, DATAPARALLEL):
            return self._model.parts(self.shape, single=self.is_single)
        return find_peak(self.curves, layout, self.micro_batches)

    @property
    def micro_batches(self) -> float:
        return sum(map(len, self._steps)) / len(self._steps)


def explain_rank(
    share: RankShare, layout: GpuLayout, *, label: str, total_bytes: int, context_bytes: int, fits: bool
) -> PeakBreakdown:
    """What each GPU's peak consists of; `total_bytes` is what was predicted of it, with context and NCCL."""
    curves = share.curves
    held = lay_out(curves, layout, share.micro_batches)
    held[COMMUNICATION] = held.get(COMMUNICATION, np.zeros(len(curves.phase))) + NCCL_BYTES
    event = find_peak_event(held)
    points = np.union1d(np.linspace(0, len(curves.phase) - 1, 400).astype(int), [event])
    parts = [MemoryPart(name, round(float(curve[event]))) for name, curve in held.items() if curve[event] >= 1]
    allocated_bytes = sum(part.bytes for part in parts)
    largest = max(parts, key=lambda part: part.bytes)
    return PeakBreakdown(
        label=f"{label} on {layout}",
        allocated_bytes=allocated_bytes,
        reserved_bytes=max(allocated_bytes, total_bytes - context_bytes),
        context_bytes=context_bytes,
        fits=fits,
        cause=f"{largest.name} ({largest.bytes / max(allocated_bytes, 1):.0%} of the peak of each GPU)",
        parts=sorted(parts, key=lambda part: -part.bytes),
        phases=[_PHASE_NAMES[phase] for phase in curves.phase[points].tolist()],
        timeline={name: [round(float(size)) for size in curve[points]] for name, curve in held.items()},
    )
