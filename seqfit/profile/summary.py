"""All tables of one trace, as one value that can be printed or written as JSON.

In: a `Diagnosis`. Out: a `Summary`. Counts of a step are means over the trace's steps (see steps.py), its time is their
median; a trace without steps counts as one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqfit.profile.diagnosis import Diagnosis
from seqfit.profile.gpu_time import GpuTime
from seqfit.profile.memory import MemoryTimeline, build_timeline
from seqfit.profile.modules import ModuleRow, rank_modules
from seqfit.profile.phases import Phases, measure_phases
from seqfit.profile.syncs import SyncRow
from seqfit.profile.tables import Row, rank_calls, rank_copies, rank_kernels, rank_operators


@dataclass(frozen=True)
class Summary:
    """What a trace says."""

    source: str
    kind: str
    on_gpu: bool
    steps: int
    steps_by: str  # how the steps were found; empty: not at all, and the whole trace counts as one
    step_seconds: float  # the median
    mean_step_seconds: float  # with what happens between steps, such as an evaluation
    operators_per_step: float
    copied_bytes_per_step: float
    calls: list[Row]
    operators: list[Row]
    kernels: list[Row]
    copies: list[Row]
    phases: dict[str, float]  # share of the time by what the host did; on a CPU with forward, backward and optimizer
    gpus: list[GpuTime]
    modules: list[ModuleRow]
    syncs: list[SyncRow]
    memory: MemoryTimeline | None

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return asdict(self)


def summarise(diagnosis: Diagnosis) -> Summary:
    """Compute all tables."""
    trace, steps = diagnosis.trace, diagnosis.trace.step_count
    phases = Phases(trace, diagnosis.host)
    return Summary(
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
