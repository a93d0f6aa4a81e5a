"""What the host was doing at any moment: the reason why a device was idle then.

In: a `Trace`. Out: a `HostTimeline`, which divides any interval among activities; the first that holds wins:

    evaluating, saving   a range or a Python function that is named so
    loading data         enumerate(DataLoader), data_wait, a range or frame of a data loader; without any such name the
                         long pause before the batch is copied to the device (marked as inferred)
    communicating        an operator of c10d, NCCL or gloo
    waiting in a sync    a call such as cudaStreamSynchronize
    copying              a call that copies
    allocating           a call that allocates or frees memory of the driver
    computing            operators that run on the CPU: without a GPU all, else those of over 0.2 ms that launch nothing
    launching            CUDA's other calls, operators of torch, its optimizers' Python, and short pauses between them
    Python               everything else

Only threads that launch device work count (on a CPU those that run operators), not the threads of a data loader.

    host   |launch|launch|sync......|   loading   |copy|launch|        GPU idle here ^ is charged to loading, although a
    GPU      |kernel|kernel         |                    |kernel|      sync ended right before

**Syncs**: where the host waited for the device, one row for each place. On a GPU a sync is a call such as
cudaStreamSynchronize; on a CPU there is nothing to wait for, but `tensor.item()` would be one on a GPU, and is shown as
such. The place is the innermost Python function on the thread that is neither built in nor torch's own (which needs a
trace with stacks); Kineto gives the line at which the function begins, not that of the call:

    seqfit/training/log.py(150): _finish  ->  torch/_tensor.py(70): wrapped  ->  <built-in method item>
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from seqfit.profiling.trace import (
    DATA_WAIT,
    MODULE_PREFIX,
    OPTIMIZER_RANGE,
    PROFILER_STEP,
    Call,
    HostSpan,
    Interval,
    Nesting,
    Trace,
    between,
    gaps,
    group_by,
    intervals_of,
    length,
    merge,
    outermost,
    overlap,
    sorted_spans,
)

EVALUATING, SAVING, LOADING = "evaluating", "saving", "loading data"
COMMUNICATING, SYNC, COPYING = "communicating", "waiting in a sync", "copying"
ALLOCATING, LAUNCHING, COMPUTING, PYTHON = "allocating", "launching", "computing", "Python"
ACTIVITIES = (EVALUATING, SAVING, LOADING, COMMUNICATING, SYNC, COPYING, ALLOCATING, COMPUTING, LAUNCHING, PYTHON)

_SYNC_CALLS = frozenset(
    f"{prefix}{name}"
    for prefix, names in {
        "cuda": ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "Memcpy"),
        "cu": ("StreamSynchronize", "CtxSynchronize", "EventSynchronize", "MemcpyDtoH", "MemcpyDtoH_v2"),
        "hip": ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "Memcpy", "MemcpyWithStream"),
    }.items()
    for name in names
)
_LOADING = re.compile(
    rf"^{DATA_WAIT}|^enumerate\(DataLoader\)|data.?(load|wait|fetch|prep|iter|next|read)"
    r"|(load|next|get|fetch|prep|read)\w*.?(data|batch|sample)|collate|input.?pipeline|^data$|^loader",
    re.IGNORECASE,
)
_LOADING_FRAME = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): __next__$")
_EVALUATING = re.compile(
    r"(^|[\s_.:/#-])(eval|evaluate|evaluation|evaluation_loop|validate|validation)([\s_.:/#-]|$)", re.IGNORECASE
)
_EVALUATING_FRAME = re.compile(
    r"\): (evaluate|evaluation_loop|prediction_loop|validate|run_evaluation|run_validation)$"
)
_SAVING = re.compile(  # checkpointing of activations is no writing
    r"^(?!.*(?:activation|grad|gradient)\w*[\s_.:/#-]?checkpoint).*(^|[\s_.:/#-])(save|saving|save_checkpoint|save_model|save_pretrained|checkpoint(ing)?)(\d|[\s_.:/#-]|$)",
    re.IGNORECASE,
)
_SAVING_FRAME = re.compile(r"\): (save|_save|save_state|_?save_checkpoint|save_model|save_pretrained)$")
_ALLOCATING = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|FreeHost|MallocHost)|^cuMem(Create|Map|Unmap|Release|Alloc|Free)"
)
_COLLECTIVE = ("nccl:", "c10d::", "gloo:", "record_param_comms", "mpi:")
_OPTIMIZER = "Optimizer."  # torch's ranges around step() and zero_grad()
_OTHER_RANGES = (MODULE_PREFIX, _OPTIMIZER)
_LONG_OP_NS = 200_000
_SHORT_PAUSE_NS = 100_000  # Python between two operators; a longer one is worth a name of its own
_LONG_PAUSE = 0.03  # of a step: a pause that may be a data loader without a name
_FOREIGN = (
    *("<built-in", "<frozen", "nn.Module: ", "torch/"),
    *("threading.py", "contextlib.py", "selectors.py", "queue.py"),
)


def is_sync(call: Call) -> bool:
    return call.name in _SYNC_CALLS


class HostTimeline:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.threads = _driving_threads(trace)
        calls = [call for call in trace.calls if call.thread in self.threads]
        ranges = [s for s in trace.ranges if s.thread in self.threads and not s.name.startswith(_OTHER_RANGES)]
        frames = [s for s in trace.frames if s.thread in self.threads]
        ops = [op for op in trace.ops if op.thread in self.threads]
        work = intervals_of([*calls, *ops])
        window = trace.window_ns
        driven = (s.end_ns for s in (*calls, *trace.ops, *trace.ranges, *trace.frames) if s.thread in self.threads)
        last = max(driven, default=window[1]) if trace.on_gpu else window[1]
        self.end_ns = min(last, window[1])  # the device may go on after the host
        copies = {copy.correlation for copy in trace.copies} - {None}
        spans: dict[str, list[Interval]] = {
            EVALUATING: _named(ranges, _EVALUATING) + _named(frames, _EVALUATING_FRAME),
            SAVING: _named(ranges, _SAVING) + _named(frames, _SAVING_FRAME),
            LOADING: _named(ranges, _LOADING) + _named(frames, _LOADING_FRAME),
            COMMUNICATING: intervals_of(op for op in ops if op.name.startswith(_COLLECTIVE)),
            SYNC: intervals_of(call for call in calls if is_sync(call)),
            COPYING: intervals_of(call for call in calls if call.correlation in copies and not is_sync(call)),
        }
        self.loading_is_inferred = False
        if trace.on_gpu and not spans[LOADING]:
            spans[LOADING] = self._infer_loading(calls, merge(work))
            self.loading_is_inferred = bool(spans[LOADING])
        if trace.on_gpu:
            spans[ALLOCATING] = intervals_of(call for call in calls if _ALLOCATING.search(call.name))
            # Long operators without a CUDA call inside run on the CPU.
            called = merge(intervals_of(calls))
            long_ops = (op for op in ops if op.duration_ns > _LONG_OP_NS)
            spans[COMPUTING] = intervals_of(op for op in long_ops if not overlap(called, (op.start_ns, op.end_ns)))
            optimizers = (s for s in trace.ranges if s.thread in self.threads and s.name.startswith(_OPTIMIZER))
            spans[LAUNCHING] = merge([*work, *intervals_of(optimizers)], _SHORT_PAUSE_NS)
        else:
            spans[COMPUTING] = merge(work, _SHORT_PAUSE_NS)
            # gloo communicates in a thread of its own, for which the loop waits without an operator.
            background = merge(intervals_of(s for s in (*trace.ranges, *trace.ops) if s.name.startswith(_COLLECTIVE)))
            spans[COMMUNICATING] += [
                part for pause in gaps(spans[COMPUTING], window) for part in between(background, pause)
            ]
        self._layers = [(name, merge(spans[name])) for name in ACTIVITIES if name in spans]

    def charge(self, interval: Interval) -> dict[str, int]:
        """Nanoseconds of the interval by activity; they add up to its length."""
        charged: dict[str, int] = {}
        rest = [interval] if interval[1] > interval[0] else []
        for activity, merged in self._layers:
            time_ns = sum(overlap(merged, piece) for piece in rest)
            if time_ns:
                charged[activity] = time_ns
                rest = [free for piece in rest for free in gaps(between(merged, piece), piece)]
        if rest:
            charged[PYTHON] = length(rest)
        return charged

    def total(self, window: Interval) -> dict[str, float]:
        span = max(window[1] - window[0], 1)
        return {activity: time_ns / span for activity, time_ns in self.charge(window).items()}

    def when(self, activity: str, window: Interval) -> list[Interval]:
        """The intervals of one activity, without those of activities that come before it."""
        rest = [window]
        for name, merged in self._layers:
            if name == activity:
                return [piece for part in rest for piece in between(merged, part)]
            rest = [free for part in rest for free in gaps(between(merged, part), part)]
        return rest if activity == PYTHON else []

    def find_place(self, activity: str, window: Interval) -> str | None:
        """The Python function that took most of the activity's time; the user's own rather than a library's."""
        times = self.when(activity, window)
        # The time of a built-in (sleep, read) is its caller's.
        frames = [f for f in self._trace.frames if f.thread in self.threads and not f.name.startswith("<built-in")]
        if not frames or not times:
            return None
        own: Counter[str] = Counter()
        foreign: Counter[str] = Counter()
        for frame, pieces in _own_pieces(frames):
            covered = sum(overlap(times, piece) for piece in pieces)
            if covered:
                (own if is_own(frame.name) else foreign)[frame.name] += covered
        best = own.most_common(1) or foreign.most_common(1)
        return shorten(best[0][0]) if best else None

    def _infer_loading(self, calls: list[Call], work: list[Interval]) -> list[Interval]:
        """Pauses without any call or operator whose next work is a copy to the device: the batch."""
        to_device = {copy.correlation for copy in self._trace.copies if copy.name == "HtoD"} - {None}
        device_work = {k.correlation for k in (*self._trace.kernels, *self._trace.copies)} - {None}
        starters = sorted((c for c in calls if c.correlation in device_work), key=lambda call: call.start_ns)
        starts = [call.start_ns for call in starters]
        shortest = _LONG_PAUSE * self._trace.step_seconds * 1e9
        found = []
        # prof.step() is called at the end of a loop's body, so what comes before it is not loading.
        bodies = [s.start_ns for s in self._trace.steps if s.name.startswith(PROFILER_STEP)]
        for start, end in gaps(work, self._trace.window_ns):
            body = bisect.bisect_right(bodies, end) - 1
            pause = (max(start, bodies[body]) if body >= 0 else start, end)
            place = bisect.bisect_left(starts, pause[1])
            if pause[1] - pause[0] >= shortest and place < len(starters) and starters[place].correlation in to_device:
                found.append(pause)
        return found


def _driving_threads(trace: Trace) -> frozenset[str]:
    """Threads that launch kernels; on a CPU those that run operators in a step."""
    if not trace.on_gpu:
        return frozenset(op.thread for op in trace.ops) | frozenset(step.thread for step in trace.steps)
    device_work = {work.correlation for work in (*trace.kernels, *trace.copies)} - {None}
    launching = frozenset(call.thread for call in trace.calls if call.correlation in device_work)
    return launching or frozenset(call.thread for call in trace.calls)


def _named(spans: Iterable[HostSpan], pattern: re.Pattern[str]) -> list[Interval]:
    return intervals_of(span for span in spans if pattern.search(span.name))


def is_own(name: str) -> bool:
    return not name.startswith(_FOREIGN) and "/site-packages/" not in name and "/torch/" not in name


def shorten(place: str) -> str:
    """The last three parts of a path: '/home/me/seqfit/training/log.py(9): f' -> 'seqfit/training/log.py(9): f'."""
    return "/".join(place.split("/")[-3:])


def _own_pieces(frames: Iterable[HostSpan]) -> Iterator[tuple[HostSpan, list[Interval]]]:
    """Each frame with the intervals in which none of its callees ran."""
    for ordered in group_by(sorted_spans(frames), lambda frame: frame.thread).values():
        open_frames: list[tuple[HostSpan, list[Interval]]] = []
        for frame in (*ordered, None):  # None: the end, which closes all
            while open_frames and (frame is None or open_frames[-1][0].end_ns <= frame.start_ns):
                closed, callees = open_frames.pop()
                yield closed, gaps(merge(callees), (closed.start_ns, closed.end_ns))
            if frame is not None:
                if open_frames:
                    open_frames[-1][1].append((frame.start_ns, frame.end_ns))
                open_frames.append((frame, []))


UNKNOWN = "(no Python stacks in the trace)"
_READS = ("aten::_local_scalar_dense", "aten::is_nonzero")  # item(), float(), bool() of a tensor
_CPU_ONLY = "kernels/dropout_norm.py"  # draws a seed on the host, and is not used on a GPU
_OF_TENSORS = re.compile(r"^<built-in method \w+ of (Tensor|type|Parameter) object")  # tensor.mean(), torch.norm()


@dataclass(frozen=True)
class SyncRow:
    place: str  # a Python function, or a line where the capture found it
    what: str  # the call
    calls_per_step: float
    seconds_per_step: float
    caller_seconds_per_step: float  # of the function: itself and what it calls that is built in, such as tensor.mean()


def rank_syncs(trace: Trace) -> list[SyncRow]:
    """Places by time, then by the number of syncs."""
    callers = Nesting(span for span in trace.frames if is_own(span.name))
    frames = group_by(sorted_spans(trace.frames), lambda frame: frame.thread)
    found = [(wait, callers.at(wait.thread, wait.start_ns)) for wait in outermost(_find_waits(trace))]
    found = [(wait, caller) for wait, caller in found if caller is None or _CPU_ONLY not in caller.name]
    places = group_by(found, lambda pair: (UNKNOWN if pair[1] is None else shorten(pair[1].name), pair[0].name))
    steps, seconds = trace.step_count, 1e9 * trace.step_count
    rows = []
    for (place, what), pairs in places.items():
        time_ns = sum(wait.duration_ns for wait, _ in pairs)
        once = {caller.start_ns: caller for _, caller in pairs if caller is not None}  # it may wait several times
        own_ns = sum(_own_work(caller, frames[caller.thread]) for caller in once.values())
        rows.append(SyncRow(place, what, len(pairs) / steps, time_ns / seconds, own_ns / seconds))
    return sorted(rows, key=lambda row: (-row.seconds_per_step, -row.calls_per_step, row.place))


def _find_waits(trace: Trace) -> list[HostSpan]:
    """In a CPU's trace without those of the optimizer, which counts its steps in a tensor on the host."""
    if trace.on_gpu:
        return [call for call in trace.calls if is_sync(call)]
    updates = Nesting(span for span in trace.ranges if span.name.startswith(OPTIMIZER_RANGE))
    return [op for op in trace.ops if op.name in _READS and updates.at(op.thread, op.start_ns) is None]


def _own_work(caller: HostSpan, frames: list[HostSpan]) -> int:
    """What a function does itself, in nanoseconds: without the functions, modules and backward that it calls.

    Built-in methods of tensors are its own. A script's main() that reads the loss is not the cost of reading; a hook
    that computes statistics to read them is.
    """
    order = (caller.start_ns, -caller.duration_ns)
    first = bisect.bisect_right(frames, order, key=lambda frame: (frame.start_ns, -frame.duration_ns))
    inside = takewhile(lambda frame: frame.start_ns < caller.end_ns, islice(frames, first, None))
    called = merge(intervals_of(f for f in inside if not _OF_TENSORS.match(f.name)))
    return caller.duration_ns - overlap(called, (caller.start_ns, caller.end_ns))
