"""Causes on the host: what it does while the GPU waits, or on a CPU while nothing is computed.

In: what is `Seen` of a trace. Out: candidates for pauses, loading, syncs, copies, allocations, launches and Python
code; none is decided here (see trace_findings.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from seqfit.profiling.candidate import Cause, Seen, at_place, mean_microseconds
from seqfit.profiling.host import ALLOCATING, COMPUTING, COPYING, EVALUATING, LAUNCHING, LOADING, PYTHON, SAVING, is_own
from seqfit.profiling.pauses import find_pauses
from seqfit.profiling.replay import Change
from seqfit.profiling.syncs import UNKNOWN
from seqfit.profiling.trace import Copy, overlap
from seqfit.units import format_bytes, format_count, format_seconds, format_share

_SMALL_COPY_BYTES = 64 * 1024
_SCALAR_BYTES = 64  # what item() copies: a sync's matter
_MANY_COPIES = 20  # of a step
_PINNED = 0.25  # of the time that a copy takes from pageable memory: it is staged, at a few GB/s
_SETTINGS = {  # ours, and the Trainer's
    "evaluation": ("eval.every_steps", "eval_steps"),
    "checkpoint": ("train.snapshot.every_steps", "save_steps"),
}
_COMPILED = 0.15  # of the host's time per kernel that is left where blocks are compiled or captured in a graph


def _pauses(seen: Seen) -> Iterator[Cause]:
    """Evaluations and checkpoints that are named; where none is, those that what they run gives away."""
    named = [
        (cause, activity)
        for activity, cause in ((EVALUATING, "evaluation"), (SAVING, "checkpoint"))
        if seen.shares.get(activity)
    ]
    for cause, activity in named:
        calls = dict.fromkeys(seen.calls_in(seen.host.when(activity, seen.window)), 0.0)
        yield _pause(seen, cause, calls, {EVALUATING: 0.0, SAVING: 0.0}, seen.host.find_place(activity, seen.window))
    if not named:
        pauses = find_pauses(seen)
        for cause in ("evaluation", "checkpoint"):
            found = [pause for pause in pauses if pause.cause == cause]
            if found:
                calls = {number: factor for pause in found for number, factor in pause.calls.items()}
                yield _pause(seen, cause, calls, {}, None, f"; inferred: {len(found)} times {found[0].seen_by}")


def _pause(
    seen: Seen,
    cause: str,
    calls: dict[int, float],  # number -> what is left of it without the pause
    host: dict[str, float],
    place: str | None,
    inferred: str = "",
) -> Cause:
    work = seen.work_by(number for number, factor in calls.items() if not factor)
    removed = Change(host, calls=calls, work=dict.fromkeys(work, 0.0))
    halved = Change(
        dict.fromkeys(host, 0.5),
        calls={number: (1 + factor) / 2 for number, factor in calls.items()},
        work=dict.fromkeys(work, 0.5),
    )
    what = {"evaluation": "an evaluation", "checkpoint": "writing a checkpoint"}[cause]
    share = seen.replay.gain(removed)  # a range of the host also waits for what was launched before it
    recorded = seen.replay.before_ns / 1e9
    return Cause(
        cause,
        f"{what} takes {format_seconds(share * recorded)} of the {format_seconds(recorded)} "
        f"that were recorded ({format_share(share)}){at_place(place)}{inferred}",
        {"evaluation": "Evaluate less often or fewer rows", "checkpoint": "Save less often"}[cause],
        (f"{_SETTINGS[cause][0]}=N (more than now)",),
        f"{_SETTINGS[cause][1]}=N (more than now)",
        likely=removed,
        least=halved,
        most=removed,
        evidence={"share": share},
    )


def _loading(seen: Seen) -> Iterator[Cause]:
    share = seen.shares.get(LOADING, 0.0)
    if not share:
        return
    removed = Change({LOADING: 0.0})
    beside = Change({LOADING: max(1 - (1 - share) / share, 0.0)})  # one worker hides no more than the rest of a step
    workers = any("MultiProcessing" in span.name for span in seen.trace.ranges)
    place = seen.host.find_place(LOADING, seen.window)
    inferred = (
        "; inferred: nothing that a trace shows happens before each batch is copied to the GPU"
        if seen.host.loading_is_inferred
        else ""
    )
    yield Cause(
        "waiting-for-data",
        f"the loop waits for its next batch for {seen.a_step(share)}"
        f"{', although the loader has worker processes' if workers else ''}{at_place(place)}{inferred}",
        "Give the loader more workers, or prepare the data once and store it"
        if workers
        else "Load and tokenize batches in the background, or once before training",
        ("strategy.prefetch=4",),
        "dataloader_num_workers=8, dataloader_prefetch_factor=4"
        if workers
        else "dataloader_num_workers=4, dataloader_pin_memory=True, dataloader_persistent_workers=True",
        likely=removed,
        least=beside,
        most=removed,
        evidence={"loading_share": share, "inferred": str(seen.host.loading_is_inferred)},
    )


def _syncs(seen: Seen) -> Iterator[Cause]:
    if not seen.syncs:
        return
    count = sum(row.calls_per_step for row in seen.syncs)
    place = next((row.place for row in seen.syncs if row.place != UNKNOWN), None)
    what = seen.syncs[0].what
    logs = place is not None and ("step_log" in place or "trainer.py" in place)
    if not seen.trace.on_gpu:
        share = sum(row.caller_seconds_per_step for row in seen.syncs) / max(seen.seconds, 1e-12)
        factor = max(1 - share / max(seen.shares.get(COMPUTING, 0.0) + seen.shares.get(PYTHON, 0.0), 1e-9), 0.0)
        change = Change({COMPUTING: factor, PYTHON: factor})
        sentence = (
            f"code that reads values of tensors takes {seen.a_step(share)}{at_place(place)}; on a GPU each is a wait"
        )
    else:
        change = Change(without_syncs=True)
        sentence = (
            f"the host waits for the GPU {count:.1f} times per step ({what}){at_place(place)} and launches nothing "
            "meanwhile"
        )
        if (python := seen.shares.get(PYTHON, 0.0)) >= 0.03:
            sentence += (
                f"; Python code, {seen.a_step(python)}{at_place(seen.host.find_place(PYTHON, seen.window))}, would "
                "otherwise run while the GPU computes"
            )
    yield Cause(
        "host-syncs",
        sentence,
        "Log less often"
        if logs
        else "Read values (item(), float(), print) every tenth step, or after the next one was launched",
        ("train.log_every=10",) if logs else (),
        "logging_steps=10, logging_nan_inf_filter=False" if logs else "no argument: it is in your own code",
        likely=change,
        least=change,
        most=change,
        evidence={"syncs_per_step": count, "place": place or "?"},
    )


def _small_copies(seen: Seen) -> Iterator[Cause]:
    copies = seen.find_work(
        lambda w: (
            isinstance(w, Copy)
            and w.name != "memset"
            and w.size_bytes <= _SMALL_COPY_BYTES
            and not (w.name == "DtoH" and w.size_bytes <= _SCALAR_BYTES)
        )
    )
    per_step = len(copies) / seen.steps
    if per_step < _MANY_COPIES:
        return
    calls = seen.with_their_syncs(seen.calls_of(copies))
    size = _mean_bytes(seen, copies)
    removed = Change(calls=dict.fromkeys(calls, 0.0), work=dict.fromkeys(copies, 0.0))
    half = Change(calls=dict.fromkeys(calls, 0.5), work=dict.fromkeys(copies, 0.5))
    yield Cause(
        "small-copies",
        f"{format_count(per_step)} copies per step of {format_bytes(size)} on average",
        "Copy a batch as one tensor from pinned memory; larger micro-batches mean fewer copies",
        ("strategy.micro_batch_tokens=N (more than now)",),
        "dataloader_pin_memory=True, a larger per_device_train_batch_size",
        likely=removed,
        least=half,
        most=removed,
        evidence={"copies_per_step": per_step, "copy_bytes": size},
    )


def _unpinned(seen: Seen) -> Iterator[Cause]:
    """Large copies that the host has to wait for, and that take several times as long as from pinned memory."""
    large = seen.find_work(lambda w: isinstance(w, Copy) and w.name == "HtoD" and w.size_bytes > _SMALL_COPY_BYTES)
    pageable = [n for n in large if isinstance(work := seen.replay.work[n], Copy) and work.is_pageable]
    if len(pageable) < len(large) / 2 or not pageable:
        yield from _large_copies(seen, large)
        return
    calls = seen.with_their_syncs(seen.calls_of(pageable))
    share = max(seen.work_share(pageable), seen.shares.get(COPYING, 0.0))
    yield Cause(
        "unpinned-memory",
        f"batches are copied from memory that is not pinned for {seen.a_step(share)}",
        "Pin the batches and copy them without blocking",
        ("strategy.prefetch=4",),
        "dataloader_pin_memory=True",
        likely=Change(calls=dict.fromkeys(calls, 0.1), work=dict.fromkeys(pageable, _PINNED)),
        least=Change(calls=dict.fromkeys(calls, 0.5), work=dict.fromkeys(pageable, 0.6)),
        most=Change(calls=dict.fromkeys(calls, 0.0), work=dict.fromkeys(pageable, 0.0)),
        evidence={"copying_share": share},
    )


def _large_copies(seen: Seen, copies: list[int]) -> Iterator[Cause]:
    """From pinned memory, and still nothing is computed meanwhile."""
    share = seen.work_share(copies)
    if not copies:
        return
    yield Cause(
        "copies",
        f"the GPU copies batches for {seen.a_step(share)}, {format_bytes(_mean_bytes(seen, copies))} at a time",
        "Copy the next batch on another stream while this one is computed, or send less (token ids, not embeddings)",
        ("strategy.prefetch=4",),
        "dataloader_pin_memory=True, non_blocking=True in accelerate's dataloader_config",
        likely=Change(work=dict.fromkeys(copies, 0.0)),
        least=Change(work=dict.fromkeys(copies, 0.5)),
        most=Change(work=dict.fromkeys(copies, 0.0)),
        evidence={"copying_share": share},
    )


def _mean_bytes(seen: Seen, copies: list[int]) -> int:
    sizes = [work.size_bytes for n in copies if isinstance(work := seen.replay.work[n], Copy)]
    return round(sum(sizes) / len(sizes))


def _allocating(seen: Seen) -> Iterator[Cause]:
    share = seen.shares.get(ALLOCATING, 0.0)
    if not share:
        return
    yield Cause(
        "memory-allocation",
        f"the host takes memory from the driver and gives it back for {seen.a_step(share)}: torch's cache of memory "
        "is full or in pieces",
        "Leave more memory free (smaller micro-batches), or let the cache grow in place: "
        "PYTORCH_ALLOC_CONF=expandable_segments:True",
        ("strategy.micro_batch_tokens=N (less than now)",),
        "a smaller per_device_train_batch_size, PYTORCH_ALLOC_CONF=expandable_segments:True",
        likely=Change({ALLOCATING: 0.0}),
        least=Change({ALLOCATING: 0.5}),
        most=Change({ALLOCATING: 0.0}),
        evidence={"allocating_share": share},
    )


def _host_compute(seen: Seen) -> Iterator[Cause]:
    """Operators on tensors of the host, while the GPU has nothing to do."""
    share = seen.shares.get(COMPUTING, 0.0)
    if not share or not seen.trace.kernels:
        return
    names = Counter[str]()
    times = seen.host.when(COMPUTING, seen.window)
    for op in seen.trace.ops:
        names[op.name] += overlap(times, (op.start_ns, op.end_ns))
    yield Cause(
        "cpu-operators",
        f"operators run on the CPU for {seen.a_step(share)}, most of it {names.most_common(1)[0][0]}"
        f"{at_place(seen.host.find_place(COMPUTING, seen.window))}",
        "Move their tensors to the GPU, or the work into the loader",
        (),
        "no argument: it is in a loss, a metric or a collator",
        likely=Change({COMPUTING: 0.0}),
        least=Change({COMPUTING: 0.5}),
        most=Change({COMPUTING: 0.0}),
        evidence={"cpu_share": share},
    )


def _launching(seen: Seen) -> Iterator[Cause]:
    """The host launches more slowly than the GPU computes. Syncs come first: without them it may be fast enough."""
    if not seen.trace.kernels or not seen.trace.calls:
        return
    kernels = [work for work in seen.replay.work if not isinstance(work, Copy)]
    if not kernels:
        return
    per_step = len(kernels) / seen.steps
    yield Cause(
        "launch-bound",
        f"the GPU waits for launches: {format_count(per_step)} kernels per step, {mean_microseconds(kernels)} us each, "
        f"and the host takes {seen.shares.get(LAUNCHING, 0.0) * seen.seconds / per_step * 1e6:.0f} us for each",
        "Give each kernel more work (larger micro-batches, less accumulation), or fuse them with torch.compile",
        ("strategy.compile=true",),
        "torch_compile=True, or a larger per_device_train_batch_size",
        likely=Change({LAUNCHING: _COMPILED}),
        least=Change({LAUNCHING: 0.5}),
        most=Change({LAUNCHING: 0.0}),
        evidence={"kernels_per_step": per_step},
    )


def _python(seen: Seen) -> Iterator[Cause]:
    share = seen.shares.get(PYTHON, 0.0)
    if not share:
        return
    place = seen.host.find_place(PYTHON, seen.window)
    is_libraries = place is not None and not is_own(place)
    yield Cause(
        "python",
        f"Python code outside of torch takes {seen.a_step(share)}{at_place(place)}",
        "It is a library's own: larger micro-batches make it count less"
        if is_libraries
        else "Move it out of the loop or into a background process"
        if place
        else "Record the trace with with_stack=True to see which function it is",
        (),
        "no argument: it is in a callback, a collator or the script's own loop",
        likely=Change({PYTHON: 0.0}),
        least=Change({PYTHON: 0.5}),
        most=Change({PYTHON: 0.0}),
        evidence={"python_share": share},
    )


# The syncs of copies are the copies' own, so these come before the syncs.
HOST_RULES = (_pauses, _loading, _small_copies, _unpinned, _syncs, _allocating, _host_compute)
LAUNCH_RULES = (_launching, _python)
