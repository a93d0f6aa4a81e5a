"""All tables of one trace, as one value that can be printed or written as JSON.

In: a `Trace`. Out: a `Summary`. Figures of a step are means over the trace's steps (ProfilerStep#n); a trace without
steps counts as one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqfit.profile.gpu_time import GpuTime, measure_gpu_time
from seqfit.profile.memory import MemoryTimeline, build_timeline
from seqfit.profile.modules import ModuleRow, rank_modules
from seqfit.profile.syncs import SyncRow, rank_syncs
from seqfit.profile.tables import Row, rank_calls, rank_copies, rank_kernels, rank_operators
from seqfit.profile.trace import Trace


@dataclass(frozen=True)
class Summary:
    """What a trace says."""

    source: str
    kind: str
    on_gpu: bool
    steps: int
    step_seconds: float
    operators_per_step: float
    copied_bytes_per_step: float
    calls: list[Row]
    operators: list[Row]
    kernels: list[Row]
    copies: list[Row]
    gpus: list[GpuTime]
    modules: list[ModuleRow]
    syncs: list[SyncRow]
    memory: MemoryTimeline | None

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return asdict(self)


def summarise(trace: Trace) -> Summary:
    """Compute all tables."""
    steps = trace.step_count
    return Summary(
        source=trace.source,
        kind=trace.kind,
        on_gpu=trace.on_gpu,
        steps=steps,
        step_seconds=trace.span_ns / steps / 1e9,
        operators_per_step=len(trace.ops) / steps,
        copied_bytes_per_step=sum(copy.size_bytes for copy in trace.copies) / steps,
        calls=rank_calls(trace),
        operators=rank_operators(trace),
        kernels=rank_kernels(trace),
        copies=rank_copies(trace),
        gpus=measure_gpu_time(trace),
        modules=rank_modules(trace),
        syncs=rank_syncs(trace),
        memory=build_timeline(trace),
    )
