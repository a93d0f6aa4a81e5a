"""Causes on the host: what it does while the GPU waits, or on a CPU while nothing is computed.

In: a `TraceContext`. Out: candidates for pauses, data loading, syncs, copies, allocations, launches and Python code;
trace_findings.py decides.

Evaluations and checkpoints that no range and no Python function names are found by what they run between two steps. A
step that launches more than the usual one is aligned with it; what remains before or after is examined:

    usual step     copy embed gemm softmax loss d_loss d_gemm adam
    this one       copy embed gemm softmax loss copy embed gemm softmax loss copy embed gemm ... d_gemm adam
                   |------- forward, and nothing of a backward or an update -------|  ->  an evaluation
    or             DtoH DtoH DtoH (400 MiB), 2 s in which nothing is launched, copy embed gemm ... adam
                   |---------------- weights copied to the host ------------|        ->  a checkpoint

That a step is long is no evidence: it may have waited for a batch or for another rank.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from seqfit.profiling.findings import Cause
from seqfit.profiling.host import ALLOCATING, COMPUTING, COPYING, EVALUATING, LAUNCHING, LOADING, PYTHON, SAVING, is_own
from seqfit.profiling.replay import CandidateFinding, Change, TraceContext, at_place, mean_microseconds
from seqfit.profiling.steps import CHECKPOINT_BYTES, MATRIX_PRODUCT
from seqfit.profiling.trace import Copy, overlap
from seqfit.units import format_bytes, format_count, format_seconds, format_share

_SMALL_COPY_BYTES = 64 * 1024
_SCALAR_BYTES = 64  # what item() copies, which counts as a sync
_MANY_COPIES = 20  # per step
_PINNED = 0.25  # of the time of a copy from pageable memory, which is staged, at a few GB/s
_COMPILED = 0.15  # of the host's time per kernel that is left where blocks are compiled or captured in a graph
_SAME = 0.9  # of the names that have to be those of the usual step
_LEFT_OUT = 0.25  # of a step's kernels: its backward and update, which an evaluation does not have
_LOGGING = ("training/log.py", "trainer.py")  # ours, and the Trainer's


def _pauses(context: TraceContext) -> Iterator[CandidateFinding]:
    """Evaluations and checkpoints that are named; where none is, those that are recognised by what they run."""
    named = [
        (cause, activity)
        for activity, cause in ((EVALUATING, Cause.EVALUATION), (SAVING, Cause.CHECKPOINT))
        if context.shares.get(activity)
    ]
    for cause, activity in named:
        calls = dict.fromkeys(context.calls_in(context.host.when(activity, context.window)), 0.0)
        place = context.host.find_place(activity, context.window)
        yield _pause(context, cause, calls, {EVALUATING: 0.0, SAVING: 0.0}, place)
    if not named:
        pauses = find_pauses(context)
        for cause in (Cause.EVALUATION, Cause.CHECKPOINT):
            found = [pause for pause in pauses if pause.cause == cause]
            if found:
                calls = {number: factor for pause in found for number, factor in pause.calls.items()}
                yield _pause(context, cause, calls, {}, None, f"; inferred: {len(found)} times {found[0].seen_by}")


def _pause(
    context: TraceContext,
    cause: Cause,
    calls: dict[int, float],  # number -> what is left of it without the pause
    host: dict[str, float],
    place: str | None,
    inferred: str = "",
) -> CandidateFinding:
    work = context.work_by(number for number, factor in calls.items() if not factor)
    removed = Change(host, calls=calls, work=dict.fromkeys(work, 0.0))
    halved = Change(
        dict.fromkeys(host, 0.5),
        calls={number: (1 + factor) / 2 for number, factor in calls.items()},
        work=dict.fromkeys(work, 0.5),
    )
    what, advice = "writing checkpoints", "Save less often"
    override, trainer = "train.snapshot.every_steps", "save_steps"
    if cause == Cause.EVALUATION:
        what, advice = "evaluation", "Evaluate less often, or on fewer rows"
        override, trainer = "eval.every_steps", "eval_steps"
    share = context.replay.gain(removed)  # a range of the host also waits for what was launched before it
    recorded = context.replay.before_ns / 1e9
    return CandidateFinding(
        cause,
        f"{what} takes {format_seconds(share * recorded)} of the {format_seconds(recorded)} "
        f"that were recorded ({format_share(share)}){at_place(place)}{inferred}",
        advice,
        (f"{override}=N (more than now)",),
        f"{trainer}=N (more than now)",
        likely=removed,
        least=halved,
        evidence={"share": share},
    )


@dataclass(frozen=True)
class Pause:
    cause: Cause
    calls: dict[int, float]  # number of a call -> what is left of it and of the time before it: 0, or the usual time
    seen_by: str


@dataclass(frozen=True)
class _Launches:
    """The calls of one step that start something, and the names of what they start."""

    calls: list[int]
    names: list[str]


def find_pauses(context: TraceContext) -> list[Pause]:
    """None where there are too few steps to know a usual one."""
    steps = _list_launches(context)
    if len(steps) < 3:
        return []
    usual = sorted(steps, key=lambda step: len(step.calls))[(len(steps) - 1) // 2]
    count = len(usual.calls)
    if count < 4:
        return []
    resumes: list[int] = []  # the first call of a step, or of what is left of it without the pause
    extras: list[tuple[list[int], int]] = []
    for number, step in enumerate(steps):
        is_last = number + 1 == len(steps) or not steps[number + 1].calls
        following = len(context.replay.calls) if is_last else steps[number + 1].calls[0]  # the end counts as a call
        place = _align(step.names, usual.names)
        if len(step.calls) <= count or place is None:
            resumes += step.calls[:1]
        elif place:  # the pause comes first
            extras.append((step.calls[:place], step.calls[place]))
        else:
            extras.append((step.calls[count:], following))
    later = {after for _, after in extras}
    lead = median([context.replay.time_before(call) for call in resumes if call not in later] or [0])
    return [pause for calls, after in extras if (pause := _explain(context, usual, calls, after, lead)) is not None]


def _list_launches(context: TraceContext) -> list[_Launches]:
    starts = [step.start_ns for step in context.trace.steps]
    started: dict[int, str] = {}
    for work in context.replay.work:
        if work.correlation is not None:
            started.setdefault(work.correlation, work.name)
    steps = [_Launches([], []) for _ in starts]
    for number, call in enumerate(context.replay.calls):
        place = bisect.bisect_right(starts, call.start_ns) - 1
        if place >= 0 and call.correlation is not None and call.correlation in started:
            steps[place].calls.append(number)
            steps[place].names.append(started[call.correlation])
    return steps


def _align(names: list[str], usual: list[str]) -> int | None:
    """Where in a longer step the usual one begins, at its start or its end; None where it is of another kind."""
    wanted, last = Counter(usual), len(names) - len(usual)
    equal = {p: (Counter(names[p : p + len(usual)]) & wanted).total() for p in (0, last) if p >= 0}
    best = max(equal, key=lambda place: equal[place], default=0)
    return best if equal and equal[best] >= _SAME * len(usual) else None


def _explain(context: TraceContext, usual: _Launches, launches: list[int], after: int, lead_ns: float) -> Pause | None:
    """With all calls from the first of them to the last, such as syncs, and what of the following pause is too long."""
    work = [context.replay.work[number] for number in sorted(context.work_by(launches))]
    names = Counter(item.name for item in work if not isinstance(item, Copy))
    calls = dict.fromkeys(range(launches[0], after), 0.0)
    calls[after] = min(lead_ns / max(context.replay.time_before(after), 1), 1.0)
    kernels = Counter(name for name in usual.names if not name.endswith(("HtoD", "DtoH", "memset")))
    missing = sum(count for name, count in kernels.items() if name not in names)
    if any(MATRIX_PRODUCT.search(name) for name in names) and missing >= _LEFT_OUT * kernels.total():
        return Pause(Cause.EVALUATION, calls, "kernels of a forward, but none of a backward or an update")
    copied = sum(item.size_bytes for item in work if isinstance(item, Copy) and item.name == "DtoH")
    if copied >= CHECKPOINT_BYTES and not any(MATRIX_PRODUCT.search(name) for name in names):
        return Pause(Cause.CHECKPOINT, calls, "weights are copied to the host")
    return None


def _loading(context: TraceContext) -> Iterator[CandidateFinding]:
    share = context.shares.get(LOADING, 0.0)
    if not share:
        return
    workers = any("MultiProcessing" in span.name for span in context.trace.ranges)
    place = context.host.find_place(LOADING, context.window)
    inferred = (
        "; inferred: the trace shows no activity before each batch is copied to the GPU"
        if context.host.loading_is_inferred
        else ""
    )
    yield CandidateFinding(
        Cause.WAITING_FOR_DATA,
        f"the loop waits for its next batch for {context.describe_share(share)}"
        f"{', although the data loader has worker processes' if workers else ''}{at_place(place)}{inferred}",
        "Give the data loader more workers, or prepare the data once and store it"
        if workers
        else "Load and tokenize batches in the background, or once before training",
        ("strategy.prefetch=4",),
        "dataloader_num_workers=8, dataloader_prefetch_factor=4"
        if workers
        else "dataloader_num_workers=4, dataloader_pin_memory=True, dataloader_persistent_workers=True",
        likely=Change({LOADING: 0.0}),
        least=Change({LOADING: max(1 - (1 - share) / share, 0.0)}),  # one worker hides at most the rest of a step
        evidence={"loading_share": share, "inferred": str(context.host.loading_is_inferred)},
    )


def _syncs(context: TraceContext) -> Iterator[CandidateFinding]:
    if not context.syncs:
        return
    count = sum(row.calls_per_step for row in context.syncs)
    place, what = context.sync_place, context.syncs[0].what
    logs = place is not None and any(file in place for file in _LOGGING)
    if not context.trace.on_gpu:
        share = sum(row.caller_seconds_per_step for row in context.syncs) / max(context.seconds, 1e-12)
        factor = max(1 - share / max(context.shares.get(COMPUTING, 0.0) + context.shares.get(PYTHON, 0.0), 1e-9), 0.0)
        change = Change({COMPUTING: factor, PYTHON: factor})
        sentence = (
            f"code that reads tensor values takes {context.describe_share(share)}{at_place(place)}; on a GPU each read "
            "is a host sync"
        )
    else:
        change = Change(without_syncs=True)
        sentence = (
            f"the host synchronizes with the GPU {count:.1f} times per step ({what}){at_place(place)} and launches "
            "nothing meanwhile"
        )
        if (python := context.shares.get(PYTHON, 0.0)) >= 0.03:
            sentence += (
                f"; Python code ({context.describe_share(python)}"
                f"{at_place(context.host.find_place(PYTHON, context.window))}) could otherwise run while the GPU "
                "computes"
            )
    yield CandidateFinding(
        Cause.HOST_SYNCS,
        sentence,
        "Log less often"
        if logs
        else "Read values (item(), float(), print) every tenth step, or after the next step has been launched",
        ("train.log_every=10",) if logs else (),
        "logging_steps=10, logging_nan_inf_filter=False" if logs else "no argument: it is in your own code",
        likely=change,
        evidence={"syncs_per_step": count, "place": place or "?"},
    )


def _small_copies(context: TraceContext) -> Iterator[CandidateFinding]:
    copies = context.find_work(
        lambda w: (
            isinstance(w, Copy)
            and w.name != "memset"
            and w.size_bytes <= _SMALL_COPY_BYTES
            and not (w.name == "DtoH" and w.size_bytes <= _SCALAR_BYTES)
        )
    )
    per_step = len(copies) / context.steps
    if per_step < _MANY_COPIES:
        return
    calls = context.with_their_syncs(context.calls_of(copies))
    size = _mean_bytes(context, copies)
    yield CandidateFinding(
        Cause.SMALL_COPIES,
        f"{format_count(per_step)} copies per step of {format_bytes(size)} on average",
        "Copy a batch as one tensor from pinned memory; larger micro-batches mean fewer copies",
        ("strategy.micro_batch_tokens=N (more than now)",),
        "dataloader_pin_memory=True, a larger per_device_train_batch_size",
        likely=Change(calls=dict.fromkeys(calls, 0.0), work=dict.fromkeys(copies, 0.0)),
        least=Change(calls=dict.fromkeys(calls, 0.5), work=dict.fromkeys(copies, 0.5)),
        evidence={"copies_per_step": per_step, "copy_bytes": size},
    )


def _unpinned(context: TraceContext) -> Iterator[CandidateFinding]:
    """Large copies that the host has to wait for, several times as slow as from pinned memory."""
    large = context.find_work(lambda w: isinstance(w, Copy) and w.name == "HtoD" and w.size_bytes > _SMALL_COPY_BYTES)
    pageable = [n for n in large if isinstance(work := context.replay.work[n], Copy) and work.is_pageable]
    if len(pageable) < len(large) / 2 or not pageable:
        yield from _large_copies(context, large)
        return
    calls = context.with_their_syncs(context.calls_of(pageable))
    share = max(context.work_share(pageable), context.shares.get(COPYING, 0.0))
    yield CandidateFinding(
        Cause.UNPINNED_MEMORY,
        f"batches are copied from memory that is not pinned for {context.describe_share(share)}",
        "Pin the batches in memory and copy them without blocking",
        ("strategy.prefetch=4",),
        "dataloader_pin_memory=True",
        likely=Change(calls=dict.fromkeys(calls, 0.1), work=dict.fromkeys(pageable, _PINNED)),
        least=Change(calls=dict.fromkeys(calls, 0.5), work=dict.fromkeys(pageable, 0.6)),
        most=Change(calls=dict.fromkeys(calls, 0.0), work=dict.fromkeys(pageable, 0.0)),
        evidence={"copying_share": share},
    )


def _large_copies(context: TraceContext, copies: list[int]) -> Iterator[CandidateFinding]:
    """From pinned memory, and still nothing is computed meanwhile."""
    if not copies:
        return
    share, size = context.work_share(copies), format_bytes(_mean_bytes(context, copies))
    yield CandidateFinding(
        Cause.COPIES,
        f"batches are copied to the GPU for {context.describe_share(share)}, {size} each",
        "Copy the next batch on another stream while this one is computed, or send less (token ids, not embeddings)",
        ("strategy.prefetch=4",),
        "dataloader_pin_memory=True, non_blocking=True in accelerate's dataloader_config",
        likely=Change(work=dict.fromkeys(copies, 0.0)),
        least=Change(work=dict.fromkeys(copies, 0.5)),
        evidence={"copying_share": share},
    )


def _mean_bytes(context: TraceContext, copies: list[int]) -> int:
    sizes = [work.size_bytes for n in copies if isinstance(work := context.replay.work[n], Copy)]
    return round(sum(sizes) / len(sizes))


def _allocating(context: TraceContext) -> Iterator[CandidateFinding]:
    share = context.shares.get(ALLOCATING, 0.0)
    if not share:
        return
    yield CandidateFinding(
        Cause.MEMORY_ALLOCATION,
        f"the host allocates and frees GPU memory (cudaMalloc, cudaFree) for {context.describe_share(share)}: torch's "
        "caching allocator is full or fragmented",
        "Leave more memory free (smaller micro-batches), or let segments grow: "
        "PYTORCH_ALLOC_CONF=expandable_segments:True",
        ("strategy.micro_batch_tokens=N (less than now)",),
        "a smaller per_device_train_batch_size, PYTORCH_ALLOC_CONF=expandable_segments:True",
        likely=Change({ALLOCATING: 0.0}),
        least=Change({ALLOCATING: 0.5}),
        evidence={"allocating_share": share},
    )


def _host_compute(context: TraceContext) -> Iterator[CandidateFinding]:
    """Operators on CPU tensors, while the GPU has nothing to do."""
    share = context.shares.get(COMPUTING, 0.0)
    if not share or not context.trace.kernels:
        return
    names = Counter[str]()
    times = context.host.when(COMPUTING, context.window)
    for op in context.trace.ops:
        names[op.name] += overlap(times, (op.start_ns, op.end_ns))
    yield CandidateFinding(
        Cause.CPU_OPERATORS,
        f"operators run on the CPU for {context.describe_share(share)}, most of it {names.most_common(1)[0][0]}"
        f"{at_place(context.host.find_place(COMPUTING, context.window))}",
        "Move their tensors to the GPU, or the work into the data loader",
        (),
        "no argument: it is in a loss, a metric or a collator",
        likely=Change({COMPUTING: 0.0}),
        least=Change({COMPUTING: 0.5}),
        evidence={"cpu_share": share},
    )


def _launching(context: TraceContext) -> Iterator[CandidateFinding]:
    """The host launches more slowly than the GPU computes. Syncs come first: without them it may be fast enough."""
    if not context.trace.kernels or not context.trace.calls:
        return
    kernels = [work for work in context.replay.work if not isinstance(work, Copy)]
    if not kernels:
        return
    per_step = len(kernels) / context.steps
    launch = f"{context.shares.get(LAUNCHING, 0.0) * context.seconds / per_step * 1e6:.0f} us"
    yield CandidateFinding(
        Cause.LAUNCH_BOUND,
        f"the GPU waits for kernel launches: {format_count(per_step)} kernels per step of {mean_microseconds(kernels)} "
        f"us each, and the host needs {launch} to launch each",
        "Give each kernel more work (larger and fewer micro-batches), or fuse kernels (torch.compile)",
        ("strategy.compile=true",),
        "torch_compile=True, or a larger per_device_train_batch_size",
        likely=Change({LAUNCHING: _COMPILED}),
        least=Change({LAUNCHING: 0.5}),
        most=Change({LAUNCHING: 0.0}),
        evidence={"kernels_per_step": per_step},
    )


def _python(context: TraceContext) -> Iterator[CandidateFinding]:
    share = context.shares.get(PYTHON, 0.0)
    if not share:
        return
    place = context.host.find_place(PYTHON, context.window)
    is_libraries = place is not None and not is_own(place)
    yield CandidateFinding(
        Cause.PYTHON,
        f"Python code outside of torch takes {context.describe_share(share)}{at_place(place)}",
        "It belongs to a library: with larger micro-batches it matters less"
        if is_libraries
        else "Move it out of the loop or into a background process"
        if place
        else "Record the trace with with_stack=True to see which function it is",
        (),
        "no argument: it is in a callback, a collator or the script's own loop",
        likely=Change({PYTHON: 0.0}),
        least=Change({PYTHON: 0.5}),
        evidence={"python_share": share},
    )


# A copy's sync belongs to the copy, so copies come before syncs.
HOST_RULES = (_pauses, _loading, _small_copies, _unpinned, _syncs, _allocating, _host_compute)
LAUNCH_RULES = (_launching, _python)
