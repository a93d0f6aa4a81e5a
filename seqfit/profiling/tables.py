"""The tables of a trace: GPU time, time by module, by name and by phase, memory.

In: a `Trace`. Out: a `Diagnosis` (what the host did, what each GPU did, where the host waited), from which all findings
are computed, and a `TraceSummary` that can be printed or written as JSON. Counts per step are means over the trace's
steps (see steps.py), the time of a step is their median; a trace without steps counts as one.

**GPU time**: how long each GPU computed, only communicated, only copied, or was idle; the shares add up to 1. An idle
interval is charged to what the host was doing during it (see host.py), not to what came before. Work that was launched
before the interval and did not start is charged to the device: a dependency between streams, or latency.

    kernel |----|                         |----|        20 of it loading data, 5 launching; that a sync ended when the
    host   [sync...]   loading 20   launch 5            interval began is no reason for it

**Modules**, such as encoder.block.3.SelfAttention, forward and backward. A kernel (on a CPU: an operator's self time)
belongs to the module in whose range it was launched. In the backward nothing is inside a range, but a node has the
sequence number of the operator that made it. Without our ranges, torch's own (nn.Module: T5Attention_3, with_stack) or
NVTX's are used.

    forward   |module: encoder.block.0 ... aten::mm (sequence 7) ...|
    backward  MmBackward0 (sequence 7) launches two kernels   ->   encoder.block.0, backward

**Names** of CUDA calls, operators and kernels. Shares are of the table's own total, as in nsys' `cuda_api_sum`; an
operator's time is its self time, a kernel's the time on the device.

    cudaStreamSynchronize  499 us in 1 call          share  calls  average  total
    cudaLaunchKernel       274 us in 3 calls    ->   49.9%      1   499 us  499 us  cudaStreamSynchronize
    cudaMemcpyAsync        227 us in 2 calls         27.4%      3    91 us  274 us  cudaLaunchKernel  ...

**Phases**, by our ranges or torch's own. On a GPU a kernel belongs to the phase that launched it, and shares are of the
device's time.

    optimizer   inside Optimizer.step#AdamW.step, or a range named optimizer
    backward    inside autograd::engine::evaluate_function: MmBackward0, or a range named backward
    forward     inside any other operator or module, unless a batch is being loaded, or a range named forward

**Memory** over the time of a step, from a trace with profile_memory. What a block was for follows from when it was
allocated and freed. What existed before the first event (weights, optimizer state) is not in the trace of a CPU, and a
constant in that of a GPU (`kept_bytes`).

    allocated in   freed in               category
    forward        backward or later      activations
    backward       later than backward    gradients
    optimizer      never, or later        optimizer state
    anywhere       the same phase         temporaries
    outside        -                      batches and other
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from seqfit.profiling.host import ACTIVITIES, COMPUTING, LOADING, HostTimeline, SyncRow, rank_syncs
from seqfit.profiling.trace import (
    BACKWARD_PREFIX,
    MODULE_PREFIX,
    OPTIMIZER_RANGE,
    Allocation,
    Call,
    HostSpan,
    Interval,
    KernelSpan,
    Nesting,
    Op,
    Span,
    Trace,
    between,
    clip,
    gaps,
    group_by,
    intervals_of,
    length,
    merge,
    overlap,
    self_times,
)

_SLACK_NS = 1000  # host and device have clocks of their own, which a profiler aligns to about a microsecond
DEVICE, NO_WORK = "device", "no work"
IDLE_CAUSES = (*ACTIVITIES, DEVICE, NO_WORK)
_COLLECTIVES = ("nccl", "rccl")


@dataclass(frozen=True)
class GpuTime:
    """Shares of the window of one device."""

    device: int
    computing: float
    communicating: float  # NCCL's kernels without others
    copying: float  # without a kernel
    idle: float
    causes: dict[str, float] = field(default_factory=dict)  # of `idle`, as shares of the window


def is_collective(kernel: KernelSpan) -> bool:
    """Whether it communicates with other GPUs, which includes waiting for them."""
    return kernel.name.lower().startswith(_COLLECTIVES)


def measure_gpu_time(trace: Trace, host: HostTimeline) -> list[GpuTime]:
    """One entry for each device; none for a trace without a GPU."""
    by_device = group_by([*trace.kernels, *trace.copies], lambda item: item.device)
    return [_measure_device(device, by_device[device], trace, host) for device in sorted(by_device)]


def _measure_device(device: int, work: list[KernelSpan], trace: Trace, host: HostTimeline) -> GpuTime:
    window, span = trace.window_ns, trace.span_ns or 1
    kernels = [kernel for kernel in trace.kernels if kernel.device == device]
    computed = merge(clip(intervals_of(kernel for kernel in kernels if not is_collective(kernel)), window))
    ran = merge(clip(intervals_of(kernels), window))
    busy = merge(clip(intervals_of(work), window))
    causes = dict.fromkeys(IDLE_CAUSES, 0.0)
    for cause, time_ns in _explain_gaps(gaps(busy, window), work, trace, host):
        causes[cause] += time_ns / span
    computing, running, covered = (length(part) / span for part in (computed, ran, busy))
    return GpuTime(device, computing, running - computing, covered - running, 1 - covered, causes)


def _explain_gaps(
    idle: Sequence[Interval], work: list[KernelSpan], trace: Trace, host: HostTimeline
) -> list[tuple[str, int]]:
    launches = trace.launch_times()
    work = sorted(work, key=lambda item: item.start_ns)
    starts = [item.start_ns for item in work]
    explained: list[tuple[str, int]] = []
    for gap in idle:
        place = bisect.bisect_left(starts, gap[1])
        launched = launches.get(work[place].correlation) if place < len(work) else None
        if launched is not None and launched < gap[0] - _SLACK_NS:
            explained.append((DEVICE, gap[1] - gap[0]))
        elif not trace.calls and not trace.ops:
            explained.append((NO_WORK, gap[1] - gap[0]))
        else:
            explained += host.charge(gap).items()
    return explained


ELSEWHERE = "(outside of modules)"
_TORCH_MODULE = "nn.Module: "
_LIST_STEPS = re.compile(r"\.layer\.\d+(?=\.)")  # T5's encoder.block.3.layer.0.SelfAttention: the list says nothing
_WRAPPER = re.compile(r"^(model|base_model\.model)\.(?=.)")


@dataclass(frozen=True)
class ModuleRow:
    """One module's own time, without the modules inside it."""

    name: str
    forward_ns: int
    backward_ns: int
    share: float

    @property
    def total_ns(self) -> int:
        return self.forward_ns + self.backward_ns


def rank_modules(trace: Trace) -> list[ModuleRow]:
    """Modules by time on the device, or on a CPU by the operators' own time."""
    finder = _Finder(trace)
    totals: dict[str, list[int]] = {}
    for span, time_ns in _work(trace):
        name, is_backward = finder.find(span)
        totals.setdefault(name, [0, 0])[is_backward] += time_ns
    everything = sum(map(sum, totals.values())) or 1
    rows = [ModuleRow(name, fwd, bwd, (fwd + bwd) / everything) for name, (fwd, bwd) in totals.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def _work(trace: Trace) -> Iterator[tuple[HostSpan, int]]:
    """What the host did, with its time: of a launch the kernel's, of an operator its self time."""
    if not trace.kernels:
        yield from self_times(trace.ops)
        return
    calls: dict[int | None, Call] = {call.correlation: call for call in trace.calls if call.correlation is not None}
    for kernel in trace.kernels:
        call = calls.get(kernel.correlation)
        yield call or HostSpan(kernel.name, kernel.start_ns, 0, ""), kernel.duration_ns


class _Finder:
    def __init__(self, trace: Trace) -> None:
        ours = [span for span in trace.ranges if span.name.startswith(MODULE_PREFIX)]
        torchs = [span for span in trace.frames if span.name.startswith(_TORCH_MODULE)]
        self._ranges = Nesting(ours or torchs or (trace.ranges if trace.kind == "nsight" else ()))
        self._nodes = Nesting(op for op in trace.ops if op.name.startswith(BACKWARD_PREFIX))
        self._made_by: dict[int, Op] = {}
        for op in sorted(trace.ops, key=lambda op: op.start_ns):
            if op.sequence is not None and not op.is_backward:
                self._made_by[op.sequence] = op  # the last one: only it made the node

    def find(self, span: HostSpan) -> tuple[str, bool]:
        """The module's name, and whether it is its backward."""
        module = self._ranges.at(span.thread, span.start_ns)
        if module is not None:  # also a forward that gradient checkpointing runs again
            return tidy_name(module.name), False
        node = self._nodes.at(span.thread, span.start_ns)
        if not isinstance(node, Op) or node.sequence is None:
            return ELSEWHERE, node is not None
        maker = self._made_by.get(node.sequence)
        module = None if maker is None else self._ranges.at(maker.thread, maker.start_ns)
        return (ELSEWHERE if module is None else tidy_name(module.name)), True


def tidy_name(name: str) -> str:
    """'module: model.encoder.block.3.layer.0.SelfAttention' -> 'encoder.block.3.SelfAttention'."""
    name = name.removeprefix(MODULE_PREFIX).removeprefix(_TORCH_MODULE)
    return _LIST_STEPS.sub("", _WRAPPER.sub("", name))


@dataclass(frozen=True)
class TimeRow:
    name: str
    calls: int
    total_ns: int
    share: float

    @property
    def average_ns(self) -> float:
        return self.total_ns / self.calls


def _rank_rows(times: Iterable[tuple[str, int]]) -> list[TimeRow]:
    totals: dict[str, tuple[int, int]] = {}
    for name, time_ns in times:
        calls, total = totals.get(name, (0, 0))
        totals[name] = (calls + 1, total + time_ns)
    everything = sum(total for _, total in totals.values()) or 1
    rows = [TimeRow(name, calls, total, total / everything) for name, (calls, total) in totals.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def rank_spans(spans: Iterable[Span]) -> list[TimeRow]:
    return _rank_rows((span.name, span.duration_ns) for span in spans)


def rank_operators(trace: Trace) -> list[TimeRow]:
    """By self time; nodes of the backward by their own names."""
    return _rank_rows((op.name.removeprefix(BACKWARD_PREFIX), own) for op, own in self_times(trace.ops))


FORWARD, BACKWARD, OPTIMIZER, OUTSIDE = "forward", "backward", "optimizer", "outside"
NAMES = {
    OPTIMIZER: re.compile(rf"^{re.escape(OPTIMIZER_RANGE)}|(^|[\s_.:/#-])(optimizer|optim|update)([\s_.:/#-]|$)", re.I),
    BACKWARD: re.compile(r"(^|[\s_.:/#-])(backward|bwd)([\s_.:/#-]|$)", re.I),
    FORWARD: re.compile(r"(^|[\s_.:/#-])(forward|fwd)([\s_.:/#-]|$)", re.I),
}


class Phases:
    def __init__(self, trace: Trace, host: HostTimeline) -> None:
        ranges = [span for span in trace.ranges if not span.name.startswith(MODULE_PREFIX)]
        named = {name: intervals_of(s for s in ranges if pattern.search(s.name)) for name, pattern in NAMES.items()}
        nodes = intervals_of(op for op in trace.ops if op.name.startswith(BACKWARD_PREFIX))
        modules = intervals_of(span for span in trace.ranges if span.name.startswith(MODULE_PREFIX))
        operators = [] if modules or named[FORWARD] else intervals_of(trace.ops)
        self._loading = merge(host.when(LOADING, trace.window_ns))
        # In this order: gradient checkpointing (recompute) runs a forward inside the backward.
        self.marked = {  # on the host
            OPTIMIZER: merge(named[OPTIMIZER]),
            BACKWARD: merge([*nodes, *named[BACKWARD]]),
            FORWARD: merge([*modules, *named[FORWARD], *operators]),
        }

    def at(self, moment_ns: int) -> str:
        if _holds(self._loading, moment_ns):
            return OUTSIDE
        return next((phase for phase, intervals in self.marked.items() if _holds(intervals, moment_ns)), OUTSIDE)


def measure_phases(trace: Trace, phases: Phases, host: HostTimeline) -> dict[str, float]:
    """Shares of the time; empty where the trace does not say where a forward ends and a backward begins."""
    span = trace.span_ns
    if not span or not phases.marked[BACKWARD] or not phases.marked[FORWARD]:
        return {}
    if trace.kernels:
        return _measure_kernels(trace, phases)
    shares: dict[str, float] = {}
    covered: list[Interval] = list(host.when(LOADING, trace.window_ns))
    for phase, intervals in phases.marked.items():
        before = length(merge(covered))
        covered = merge([*covered, *between(intervals, trace.window_ns)])
        shares[phase] = (length(covered) - before) / span
    loading = host.total(trace.window_ns).get(LOADING, 0.0)
    return {LOADING: loading, FORWARD: shares[FORWARD], BACKWARD: shares[BACKWARD], OPTIMIZER: shares[OPTIMIZER]}


def _measure_kernels(trace: Trace, phases: Phases) -> dict[str, float]:
    launched = trace.launch_times()
    by_phase: dict[str, list[Interval]] = {FORWARD: [], BACKWARD: [], OPTIMIZER: []}
    for kernel in trace.kernels:
        moment = launched.get(kernel.correlation)
        phase = OUTSIDE if moment is None else phases.at(moment)
        if phase != OUTSIDE:
            by_phase[phase].append((kernel.start_ns, kernel.end_ns))
    devices = len({kernel.device for kernel in trace.kernels}) or 1
    times = {phase: overlap(merge(intervals), trace.window_ns) for phase, intervals in by_phase.items()}
    return {phase: time_ns / trace.span_ns / devices for phase, time_ns in times.items()}


def _holds(merged: list[Interval], moment_ns: int) -> bool:
    place = bisect.bisect_right(merged, (moment_ns, float("inf"))) - 1
    return place >= 0 and moment_ns < merged[place][1]


_ACTIVATIONS, _GRADIENTS, _STATE = "activations", "gradients", "optimizer state"
_TEMPORARIES, _OTHER = "temporaries", "batches and other"
MEMORY_CATEGORIES = (_ACTIVATIONS, _GRADIENTS, _STATE, _TEMPORARIES, _OTHER)
_POINTS = 60


@dataclass(frozen=True)
class MemoryMoment:
    seconds: float  # since the first allocation
    held_bytes: dict[str, int]  # by category


@dataclass(frozen=True)
class MemoryTimeline:
    """Of the GPU where there is one, else of the host."""

    on_device: bool
    kept_bytes: int  # allocated before the trace began
    peak_bytes: int  # the most on top of that
    peak_by_category: dict[str, int]
    moments: list[MemoryMoment]


def build_timeline(trace: Trace, phases: Phases) -> MemoryTimeline | None:
    """None where the trace has no allocations."""
    on_device = any(event.on_device for event in trace.allocations)
    events = sorted((e for e in trace.allocations if e.on_device == on_device), key=lambda event: event.time_ns)
    if not events:
        return None
    categories = _categorise(events, phases)
    held = dict.fromkeys(MEMORY_CATEGORIES, 0)
    peak, at_peak = 0, dict(held)
    moments: list[MemoryMoment] = []
    every = max(len(events) // _POINTS, 1)
    for number, (event, category) in enumerate(zip(events, categories, strict=True)):
        if category is not None:
            held[category] += event.size_bytes
        total = sum(held.values())
        if total > peak:
            peak, at_peak = total, dict(held)
        if number % every == 0 or number == len(events) - 1:
            moments.append(MemoryMoment((event.time_ns - events[0].time_ns) / 1e9, dict(held)))
    kept = max(events[0].total_bytes - events[0].size_bytes, 0) if on_device else 0
    return MemoryTimeline(on_device, kept, peak, at_peak, moments)


def _categorise(events: list[Allocation], phases: Phases) -> list[str | None]:
    """The category of each event; None where a block is freed that was allocated before the trace began."""
    categories: list[str | None] = [None] * len(events)
    taken: dict[int, int] = {}  # address -> number of the event that allocated it
    for number, event in enumerate(events):
        if event.size_bytes > 0:
            taken[event.address] = number
            categories[number] = _category(phases.at(event.time_ns), None)
        elif event.address in taken:
            taker = taken.pop(event.address)
            category = _category(phases.at(events[taker].time_ns), phases.at(event.time_ns))
            categories[taker] = categories[number] = category
    return categories


def _category(taken_in: str, returned_in: str | None) -> str:
    if taken_in == OUTSIDE:
        return _OTHER
    if taken_in == returned_in:
        return _TEMPORARIES
    return {FORWARD: _ACTIVATIONS, BACKWARD: _GRADIENTS, OPTIMIZER: _STATE}[taken_in]


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
        calls=rank_spans(trace.calls),
        operators=rank_operators(trace),
        kernels=rank_spans(trace.kernels),
        copies=rank_spans(trace.copies),
        phases=measure_phases(trace, phases, diagnosis.host),
        gpus=diagnosis.gpus,
        modules=rank_modules(trace),
        syncs=diagnosis.syncs,
        memory=build_timeline(trace, phases),
    )
