"""All tables of one trace, as one value that can be printed or written as JSON.

In: a `Trace`. Out: a `Diagnosis` (the trace, what the host did, what each GPU did, where the host waited), from which
all findings are computed, and a `TraceSummary`. Counts per step are means over the trace's steps (see steps.py), the
time of a step is their median; a trace without steps counts as one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqfit.profiling.host import COMPUTING, HostTimeline
from seqfit.profiling.syncs import SyncRow, rank_syncs
from seqfit.profiling.tables import (
    GpuTime,
    MemoryTimeline,
    ModuleRow,
    Phases,
    TimeRow,
    build_timeline,
    measure_gpu_time,
    measure_phases,
    rank_calls,
    rank_copies,
    rank_kernels,
    rank_modules,
    rank_operators,
)
from seqfit.profiling.trace import Trace


@dataclass(frozen=True)
class Diagnosis:
    trace: Trace
    host: HostTimeline
    gpus: list[GpuTime]
    syncs: list[SyncRow]

    @property
    def busy_share(self) -> float:
        """Share of the time in which kernels run, on the busiest GPU; without a GPU in which operators do."""
        if self.gpus:
            return max(gpu.computing for gpu in self.gpus)
        return self.host.total(self.trace.window_ns).get(COMPUTING, 0.0)


def diagnose(trace: Trace) -> Diagnosis:
    host = HostTimeline(trace)
    return Diagnosis(trace, host, measure_gpu_time(trace, host), rank_syncs(trace))


@dataclass(frozen=True)
class TraceSummary:
    source: str
    kind: str
    on_gpu: bool
    steps: int
    steps_by: str  # how the steps were found; empty: not at all, and the whole trace counts as one
    step_seconds: float  # the median
    mean_step_seconds: float  # with what happens between steps, such as an evaluation
    operators_per_step: float
    copied_bytes_per_step: float
    calls: list[TimeRow]
    operators: list[TimeRow]
    kernels: list[TimeRow]
    copies: list[TimeRow]
    phases: dict[str, float]  # share of the time by what the host did; on a CPU with forward, backward and optimizer
    gpus: list[GpuTime]
    modules: list[ModuleRow]
    syncs: list[SyncRow]
    memory: MemoryTimeline | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise_trace(diagnosis: Diagnosis) -> TraceSummary:
    trace, steps = diagnosis.trace, diagnosis.trace.step_count
    phases = Phases(trace, diagnosis.host)
    return TraceSummary(
        source=trace.source,
        kind=trace.kind,
        on_gpu=trace.on_gpu,
        steps=steps,
        steps_by=trace.steps_by,
        step_seconds=trace.step_seconds,
        mean_step_seconds=trace.span_ns / steps / 1e9,
        operators_per_step=len(trace.ops) / steps,
        copied_bytes_per_step=sum(copy.size_bytes for copy in trace.copies) / steps,
        calls=rank_calls(trace),
        operators=rank_operators(trace),
        kernels=rank_kernels(trace),
        copies=rank_copies(trace),
        phases=measure_phases(trace, phases, diagnosis.host),
        gpus=diagnosis.gpus,
        modules=rank_modules(trace),
        syncs=diagnosis.syncs,
        memory=build_timeline(trace, phases),
    )
