"""Why a traced step takes longer than its kernels: candidates, each as a change that a replay can make.

In: a `Trace` (anybody's), its host timeline and replay. Out: candidates. A candidate says what was seen, what to change
here and in transformers' Trainer, and what the replay is to leave out:

    loading data takes 400 of 500 ms  ->  waiting-for-data   Change(host={"loading data": 0})
                                          strategy.prefetch=4   dataloader_num_workers=4

`likely` is the best estimate of the fix, `least` and `most` what it saves at worst and at best. Nothing is decided
here: `trace_findings.py` ranks by what the replay says and drops what is not worth a change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import median

from seqfit.profile.gpu_time import is_collective
from seqfit.profile.host import (
    COMMUNICATING,
    COMPUTING,
    COPYING,
    EVALUATING,
    LAUNCHING,
    LOADING,
    PYTHON,
    SAVING,
    HostTimeline,
)
from seqfit.profile.intervals import Interval, between, intervals_of, length, merge, overlap
from seqfit.profile.replay import Change, Replay
from seqfit.profile.syncs import UNKNOWN, SyncRow
from seqfit.profile.trace import OPTIMIZER_RANGE, Copy, Kernel, Trace
from seqfit.units import format_bytes, format_count, format_seconds, format_share

_SMALL_COPY_BYTES = 64 * 1024
_SCALAR_BYTES = 64  # what item() copies: a sync's matter
_MANY_COPIES = 20  # of a step
_CHECKPOINT_BYTES = 16 * 2**20  # copied back in a pause: weights, not scores
_PAUSE = 2.0  # a step this many times as long as the others has something else in it
_TENSOR_CORES = (7, 0)
_FP32_MATMUL = re.compile(r"sgemm|simt.*gemm|gemm.*simt|gemmSN|f32f32_f32f32|magma_s", re.IGNORECASE)
_REDUCED = re.compile(r"tf32|s1688|s16816|h884|h1688|bf16|f16|half|hgemm|tensorop", re.IGNORECASE)
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
_LOSS_SOFTMAX = re.compile(r"log_?softmax|nll|cross_?entropy", re.IGNORECASE)
_ELEMENTWISE = re.compile(r"elementwise|dropout|masked|where|triu|copy|triton_poi", re.IGNORECASE)
_FUSED_ATTENTION = re.compile(r"flash|fmha|mem_?eff|cudnn.*sdpa|cutlassF|scaled_dot_product", re.IGNORECASE)
_FUSED_OPTIMIZER = re.compile(r"fused", re.IGNORECASE)
_COMPILED = 0.15  # of the host's time per kernel that is left where blocks are compiled or captured in a graph


@dataclass(frozen=True)
class Candidate:
    """A cause that may hold, with its fix."""

    cause: str
    sentence: str
    advice: str
    change: tuple[str, ...]  # overrides of a recipe
    trainer: str  # the same for transformers' Trainer
    likely: Change
    least: Change
    most: Change
    evidence: dict[str, float | str] = field(default_factory=dict)
    changes_answer: bool = False
    is_guess: bool = False  # the trace can't say how much it would gain


class Seen:
    """A trace with what every rule looks at."""

    def __init__(self, trace: Trace, host: HostTimeline, replay: Replay, syncs: list[SyncRow]) -> None:
        self.trace, self.host, self.replay, self.syncs = trace, host, replay, syncs
        self.window, self.steps = trace.window_ns, trace.step_count
        self.seconds = trace.span_ns / self.steps / 1e9
        self.shares = host.total(self.window)

    @cached_property
    def launch_of(self) -> dict[int, int]:
        """Number of a call by its correlation."""
        return {c.correlation: n for n, c in enumerate(self.replay.calls) if c.correlation is not None}

    def calls_of(self, numbers: Iterable[int]) -> set[int]:
        """The calls that started this work."""
        correlations = (self.replay.work[number].correlation for number in numbers)
        return {self.launch_of[c] for c in correlations if c is not None and c in self.launch_of}

    def work_by(self, calls: Iterable[int]) -> set[int]:
        """The work that these calls started."""
        wanted = {self.replay.calls[number].correlation for number in calls} - {None}
        return {number for number, work in enumerate(self.replay.work) if work.correlation in wanted}

    def calls_in(self, intervals: list[Interval]) -> list[int]:
        """Calls that begin in one of the intervals."""
        return [n for n, c in enumerate(self.replay.calls) if overlap(intervals, (c.start_ns, c.start_ns + 1))]

    def find_work(self, wanted: Callable[[Kernel], bool]) -> list[int]:
        """Kernels and copies, by number."""
        return [number for number, work in enumerate(self.replay.work) if wanted(work)]

    def work_share(self, numbers: Iterable[int]) -> float:
        """Of the window: the time in which at least one of them ran."""
        ran = merge(intervals_of(self.replay.work[number] for number in numbers))
        return length(between(ran, self.window)) / max(self.trace.span_ns, 1)

    def a_step(self, share: float) -> str:
        """'400 ms of each 500 ms step (80.0%)'."""
        spent, step = format_seconds(share * self.seconds), format_seconds(self.seconds)
        return f"{spent} of each {step} step ({format_share(share)})"


def find_candidates(seen: Seen) -> list[Candidate]:
    """All that may hold; of two with equal gains the first in this order is the cause of the other."""
    return [candidate for rule in _RULES for candidate in rule(seen)]


def _pauses(seen: Seen) -> Iterator[Candidate]:
    """Evaluations and checkpoints that are named, and steps that are so long that something of the kind is in them."""
    for activity, cause, ours, trainer in (
        (EVALUATING, "evaluation", "eval.every_steps", "eval_steps"),
        (SAVING, "checkpoint", "train.snapshot.every_steps", "save_steps"),
    ):
        share = seen.shares.get(activity, 0.0)
        if share:
            yield _pause(seen, cause, share, seen.host.when(activity, seen.window), ours, trainer, named=True)
    steps = seen.trace.step_intervals_ns
    if seen.shares.get(EVALUATING) or seen.shares.get(SAVING) or len(steps) < 4:
        return
    usual = median(end - start for start, end in steps)
    inside = [(start, end) for start, end in steps if end - start > _PAUSE * usual]
    if inside and len(inside) <= len(steps) / 2:
        excess = sum(end - start - usual for start, end in inside) / max(seen.trace.span_ns, 1)
        cause = _guess_pause(seen, inside)
        ours = {"evaluation": "eval.every_steps", "checkpoint": "train.snapshot.every_steps"}.get(cause, "")
        trainer = {"evaluation": "eval_steps", "checkpoint": "save_steps"}.get(cause, "")
        if cause != "loader":
            yield _pause(seen, cause, excess, inside, ours, trainer, named=False)


def _guess_pause(seen: Seen, inside: list[Interval]) -> str:
    back = sum(
        c.size_bytes for c in seen.trace.copies if c.name == "DtoH" and overlap(inside, (c.start_ns, c.start_ns + 1))
    )
    if back >= _CHECKPOINT_BYTES:
        return "checkpoint"
    kernels = sum(bool(overlap(inside, (k.start_ns, k.start_ns + 1))) for k in seen.trace.kernels)
    usual = len(seen.trace.kernels) / max(seen.steps, 1)
    if kernels > 1.3 * usual * len(inside):
        return "evaluation"
    return "loader" if sum(seen.host.charge(i).get(LOADING, 0) for i in inside) > length(inside) / 3 else "pause"


def _pause(
    seen: Seen, cause: str, share: float, inside: list[Interval], ours: str, trainer: str, *, named: bool
) -> Candidate:
    factor = 0.0 if named else max(1 - share * seen.trace.span_ns / max(length(inside), 1), 0.0)
    calls = seen.calls_in(inside)
    work = seen.work_by(calls)
    removed = Change(
        {EVALUATING: 0.0, SAVING: 0.0} if named else {},
        calls=dict.fromkeys(calls, factor),
        work=dict.fromkeys(work, factor),
    )
    halved = replace(removed, host=dict.fromkeys(removed.host, 0.5), calls=dict.fromkeys(calls, (1 + factor) / 2))
    halved = replace(halved, work=dict.fromkeys(work, (1 + factor) / 2))
    activity = {"evaluation": EVALUATING, "checkpoint": SAVING}.get(cause)
    place = seen.host.find_place(activity, seen.window) if activity else None
    what = {"evaluation": "an evaluation", "checkpoint": "writing a checkpoint", "pause": "something besides training"}[
        cause
    ]
    recorded = seen.trace.span_ns / 1e9
    inferred = "" if named else f"; inferred: {len(inside)} of {seen.steps} steps take over {_PAUSE:g} times as long"
    return Candidate(
        cause,
        f"{what} takes {format_seconds(share * recorded)} of the {format_seconds(recorded)} "
        f"that were recorded ({format_share(share)}){_at(place)}{inferred}",
        {
            "evaluation": "Evaluate less often or fewer rows",
            "checkpoint": "Save less often",
            "pause": "Record it with with_stack=True to see what it is",
        }[cause],
        (f"{ours}=N (more than now)",) if ours else (),
        f"{trainer}=N (more than now)" if trainer else "",
        likely=removed,
        least=halved,
        most=removed,
        evidence={"share": share},
    )


def _loading(seen: Seen) -> Iterator[Candidate]:
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
    yield Candidate(
        "waiting-for-data",
        f"the loop waits for its next batch for {seen.a_step(share)}"
        f"{', although the loader has worker processes' if workers else ''}{_at(place)}{inferred}",
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


def _syncs(seen: Seen) -> Iterator[Candidate]:
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
        sentence = f"code that reads values of tensors takes {seen.a_step(share)}{_at(place)}; on a GPU each is a wait"
    else:
        change = Change(without_syncs=True)
        sentence = (
            f"the host waits for the GPU {count:.1f} times per step ({what}){_at(place)} and launches nothing meanwhile"
        )
    yield Candidate(
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


def _optimizer(seen: Seen) -> Iterator[Candidate]:
    """An update of many kernels where one would do."""
    updates = merge(
        intervals_of(s for s in seen.trace.ranges if s.name.startswith(OPTIMIZER_RANGE) or s.name == "optimizer")
    )
    if not seen.trace.kernels:
        yield from _optimizer_on_cpu(seen, updates)
        return
    if updates:
        calls = seen.calls_in(updates)
        work = [n for n in sorted(seen.work_by(calls)) if not isinstance(seen.replay.work[n], Copy)]
    else:
        work = seen.find_work(lambda k: "multi_tensor_apply" in k.name or "Adam" in k.name)
        calls = sorted(seen.calls_of(work))
    kernels = [seen.replay.work[n] for n in work if not is_collective(seen.replay.work[n])]
    if not kernels or any(_FUSED_OPTIMIZER.search(kernel.name) for kernel in kernels):
        return
    per_step = len(kernels) / seen.steps
    if per_step < 12:  # a fused update is a few
        return
    loops = not any("multi_tensor_apply" in kernel.name for kernel in kernels)
    host, device = 5 / per_step, 1 / 3 if loops else 1 / 2  # reads and writes each value once instead of ten times
    yield Candidate(
        "unfused-optimizer",
        f"the optimizer updates the weights with {format_count(per_step)} kernels per step of "
        f"{_microseconds(kernels)} us each, {seen.a_step(seen.work_share(work))} on the GPU",
        "Update all weights in one fused kernel",
        ("strategy.optimizer_kernel=fused",),
        'optim="adamw_torch_fused"',
        likely=Change(calls=dict.fromkeys(calls, host), work=dict.fromkeys(work, device)),
        least=Change(calls=dict.fromkeys(calls, 0.5), work=dict.fromkeys(work, 0.8)),
        most=Change(calls=dict.fromkeys(calls, 0.0), work=dict.fromkeys(work, device)),
        evidence={"kernels_per_step": per_step},
    )


def _optimizer_on_cpu(seen: Seen, updates: list[Interval]) -> Iterator[Candidate]:
    share = length(between(updates, seen.window)) / max(seen.trace.span_ns, 1)
    ops = [op for op in seen.trace.ops if overlap(updates, (op.start_ns, op.start_ns + 1))]
    if not ops or any(_FUSED_OPTIMIZER.search(op.name) for op in ops) or len(ops) / seen.steps < 30:
        return
    rest = Change({COMPUTING: 1 - share * 0.6 / max(seen.shares.get(COMPUTING, share), share)})
    least = Change({COMPUTING: 1 - share * 0.3 / max(seen.shares.get(COMPUTING, share), share)})
    yield Candidate(
        "unfused-optimizer",
        f"the optimizer takes {seen.a_step(share)} in {format_count(len(ops) / seen.steps)} operators",
        "Update all weights in one fused kernel",
        ("strategy.optimizer_kernel=fused",),
        'optim="adamw_torch_fused"',
        likely=rest,
        least=least,
        most=Change({COMPUTING: 1 - share * 0.8 / max(seen.shares.get(COMPUTING, share), share)}),
        evidence={"operators_per_step": len(ops) / seen.steps, "share": share},
    )


def _small_copies(seen: Seen) -> Iterator[Candidate]:
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
    calls = seen.calls_of(copies)
    size = sum(work.size_bytes for n in copies if isinstance(work := seen.replay.work[n], Copy)) / len(copies)
    removed = Change(calls=dict.fromkeys(calls, 0.0), work=dict.fromkeys(copies, 0.0))
    half = Change(calls=dict.fromkeys(calls, 0.5), work=dict.fromkeys(copies, 0.5))
    yield Candidate(
        "small-copies",
        f"{format_count(per_step)} copies per step of {format_bytes(round(size))} on average",
        "Copy a batch as one tensor from pinned memory; larger micro-batches mean fewer copies",
        ("strategy.micro_batch_tokens=N (more than now)",),
        "dataloader_pin_memory=True, a larger per_device_train_batch_size",
        likely=removed,
        least=half,
        most=removed,
        evidence={"copies_per_step": per_step, "copy_bytes": size},
    )


def _unpinned(seen: Seen) -> Iterator[Candidate]:
    """Large copies that the host has to wait for."""
    share = seen.shares.get(COPYING, 0.0)
    pageable = [c for c in seen.trace.copies if c.is_pageable and c.name == "HtoD" and c.size_bytes > _SMALL_COPY_BYTES]
    if not pageable or not share:
        return
    yield Candidate(
        "unpinned-memory",
        f"the host spends {seen.a_step(share)} in copies from memory that is not pinned",
        "Pin the batches and copy them without blocking",
        ("strategy.prefetch=4",),
        "dataloader_pin_memory=True",
        likely=Change({COPYING: 0.1}),
        least=Change({COPYING: 0.5}),
        most=Change({COPYING: 0.0}),
        evidence={"copying_share": share},
    )


def _communication(seen: Seen) -> Iterator[Candidate]:
    """Collectives that nothing overlaps; what they take beyond others of their kind is waiting for another rank."""
    numbers = seen.find_work(is_collective)
    if not numbers:
        share = seen.shares.get(COMMUNICATING, 0.0)
        if share and not seen.trace.kernels:
            yield _exposed(seen, share, Change({COMMUNICATING: 0.0}), Change({COMMUNICATING: 0.5}))
        return
    floors = _floors(seen, numbers)
    waiting = {n: floors[n] / max(seen.replay.work[n].duration_ns, 1) for n in numbers}
    waited = sum(seen.replay.work[n].duration_ns - floors[n] for n in numbers) / max(seen.trace.span_ns, 1)
    if waited > 0.02:
        yield Candidate(
            "straggler",
            f"collectives take up to {max(1 / max(f, 1e-6) for f in waiting.values()):.0f} times as long as others of "
            f"their kind: this GPU waits for another one for {seen.a_step(waited)}",
            "Profile the slowest rank; give ranks equal work (batches by tokens); look for a slow loader or a busy GPU",
            ("strategy.batching=ragged",),
            'train_sampling_strategy="group_by_length", a profile of every rank',
            likely=Change(work=waiting),
            least=Change(work={n: (1 + f) / 2 for n, f in waiting.items()}),
            most=Change(work=waiting),
            evidence={"waiting_share": waited},
        )
    share = seen.work_share(numbers) - _overlapped(seen, numbers)
    if waited > 0.02:  # what is left is the exchange itself
        hidden = Change(work={n: 1 - f for n, f in waiting.items()})
        share = max(share - waited, 0.0)
    else:
        hidden = Change(free=frozenset(numbers))
    yield _exposed(seen, share, hidden, Change(work={n: 1 - f / 2 for n, f in waiting.items()}))


def _exposed(seen: Seen, share: float, hidden: Change, half: Change) -> Candidate:
    return Candidate(
        "communication",
        f"GPUs exchange gradients or weights for {seen.a_step(share)} while nothing is computed",
        "Overlap it with the backward (ddp), exchange less often (gradient accumulation), or use fewer GPUs",
        ("strategy.parallel=ddp",),
        "gradient_accumulation_steps=N, ddp_bucket_cap_mb=25, ddp_static_graph=True",
        likely=hidden,
        least=half,
        most=hidden,
        evidence={"exposed_share": share},
    )


def _floors(seen: Seen, numbers: list[int]) -> dict[int, int]:
    """What each collective takes where nobody has to be waited for: the fastest tenth of its kind."""
    groups: dict[str, list[int]] = {}
    for number in numbers:
        groups.setdefault(seen.replay.work[number].name, []).append(number)
    floors: dict[int, int] = {}
    for members in groups.values():
        times = sorted(seen.replay.work[n].duration_ns for n in members)
        floor = times[len(times) // 10]
        usual = median(times)
        # Collectives of one kind differ in size; only what is far from the others is a wait.
        floors |= {n: min(seen.replay.work[n].duration_ns, round(max(2.5 * usual, floor))) for n in members}
    return floors


def _overlapped(seen: Seen, numbers: list[int]) -> float:
    others = merge(intervals_of(k for k in seen.trace.kernels if not is_collective(k)))
    ran = merge(intervals_of(seen.replay.work[n] for n in numbers))
    return sum(overlap(others, interval) for interval in between(ran, seen.window)) / max(seen.trace.span_ns, 1)


def _attention(seen: Seen) -> Iterator[Candidate]:
    """Softmax as a kernel of its own, and no fused attention anywhere."""
    if any(_FUSED_ATTENTION.search(k.name) for k in seen.trace.kernels) or _uses_fused_attention(seen):
        return
    softmax = seen.find_work(lambda k: bool(_SOFTMAX.search(k.name)) and not _LOSS_SOFTMAX.search(k.name))
    if len(softmax) < 2 * seen.steps:
        return
    beside = _elementwise_beside(seen, softmax)
    numbers = {*softmax, *beside}
    share = seen.work_share(numbers)
    yield Candidate(
        "eager-attention",
        f"attention writes its scores to memory: softmax and what is done with the scores take {seen.a_step(share)}",
        "Use a fused attention, which never writes them",
        ("strategy.attention=auto",),
        'from_pretrained(..., attn_implementation="sdpa")',
        likely=Change(work=dict.fromkeys(numbers, 0.1)),
        least=Change(work=dict.fromkeys(softmax, 0.3)),
        most=Change(work=dict.fromkeys(numbers, 0.0), calls=dict.fromkeys(seen.calls_of(numbers), 0.0)),
        evidence={"softmax_kernels_per_step": len(softmax) / seen.steps, "share": share},
    )


def _uses_fused_attention(seen: Seen) -> bool:
    return any(_FUSED_ATTENTION.search(op.name) for op in seen.trace.ops)


def _elementwise_beside(seen: Seen, softmax: list[int]) -> list[int]:
    """The mask before a softmax and the dropout behind it: elementwise kernels next to it on its stream."""
    by_stream: dict[tuple[int, int], list[int]] = {}
    for number, work in enumerate(seen.replay.work):
        by_stream.setdefault((work.device, work.stream), []).append(number)
    wanted = set(softmax)
    pairs = [pair for numbers in by_stream.values() for pair in pairwise(numbers)]
    beside = [a for a, b in pairs if b in wanted] + [b for a, b in pairs if a in wanted]
    return [number for number in beside if _ELEMENTWISE.search(seen.replay.work[number].name)]


def _fp32(seen: Seen) -> Iterator[Candidate]:
    products = seen.find_work(lambda k: bool(_FP32_MATMUL.search(k.name)) and not _REDUCED.search(k.name))
    if not products:
        return
    gpu = seen.trace.gpus.get(seen.replay.work[products[0]].device)
    if gpu is not None and gpu.capability is not None and gpu.capability < _TENSOR_CORES:
        return
    has_bf16 = gpu is None or gpu.capability is None or gpu.capability >= (8, 0)
    share = seen.work_share(products)
    name = gpu.name if gpu is not None else "a GPU since 2018"
    yield Candidate(
        "fp32",
        f"matrix products run in fp32 for {seen.a_step(share)}, and {name} has tensor cores, which they do not use",
        f"Compute in {'bf16' if has_bf16 else 'fp16'} (weights and updates stay fp32)",
        (f"strategy.precision={'bf16' if has_bf16 else 'fp16'}",),
        "bf16=True (or tf32=True, which keeps more digits)" if has_bf16 else "fp16=True",
        likely=Change(work=dict.fromkeys(products, 0.35)),
        least=Change(work=dict.fromkeys(products, 0.6)),
        most=Change(work=dict.fromkeys(products, 0.15)),
        evidence={"share": share},
        changes_answer=True,
    )


def _launching(seen: Seen) -> Iterator[Candidate]:
    """The host launches more slowly than the GPU computes. Syncs come first: without them it may be fast enough."""
    if not seen.trace.kernels or not seen.trace.calls:
        return
    kernels = [work for work in seen.replay.work if not isinstance(work, Copy)]
    if not kernels:
        return
    per_step = len(kernels) / seen.steps
    yield Candidate(
        "launch-bound",
        f"the GPU waits for launches: {format_count(per_step)} kernels per step of {_microseconds(kernels)} us each, "
        f"and the host takes {seen.shares.get(LAUNCHING, 0.0) * seen.seconds / per_step * 1e6:.0f} us for each",
        "Give each kernel more work (larger micro-batches, less accumulation), or fuse them with torch.compile",
        ("strategy.compile=true",),
        "torch_compile=True, or a larger per_device_train_batch_size",
        likely=Change({LAUNCHING: _COMPILED}),
        least=Change({LAUNCHING: 0.5}),
        most=Change({LAUNCHING: 0.0}),
        evidence={"kernels_per_step": per_step},
    )


def _python(seen: Seen) -> Iterator[Candidate]:
    share = seen.shares.get(PYTHON, 0.0)
    if not share:
        return
    place = seen.host.find_place(PYTHON, seen.window)
    yield Candidate(
        "python",
        f"Python code outside of torch takes {seen.a_step(share)}{_at(place)}",
        "Move it out of the loop or into a background process"
        if place
        else "Record the trace with with_stack=True to see which function it is",
        (),
        "no argument: it is in a callback, a collator or the script's own loop",
        likely=Change({PYTHON: 0.0}),
        least=Change({PYTHON: 0.5}),
        most=Change({PYTHON: 0.0}),
        evidence={"python_share": share},
    )


def _padding(seen: Seen) -> Iterator[Candidate]:
    """The widest batch of every step has the same shape: short rows are padded to it; by how much no trace can say."""
    widest = [max(shapes, key=lambda shape: shape[1]) for shapes in _token_shapes(seen) if shapes]
    if len(widest) < 3 or len(set(widest)) > 1 or widest[0][0] < 2 or widest[0][1] < 32:
        return
    rows, width = widest[0]
    yield Candidate(
        "padding",
        f"every batch has the shape {rows} x {width}: rows are padded to a fixed length. How many tokens are padding "
        "is not in a trace; `seqfit data FILE` counts it",
        "Run real tokens only, or pad to the longest row of a batch and sort rows by length",
        ("strategy.batching=ragged",),
        'DataCollatorForSeq2Seq(padding="longest"), train_sampling_strategy="group_by_length"',
        likely=_less_compute(seen, 0.6),
        least=Change(),
        most=_less_compute(seen, 0.2),
        evidence={"shape": f"{rows} x {width}"},
        is_guess=True,
    )


def _token_shapes(seen: Seen) -> list[list[tuple[int, int]]]:
    """Of each step: rows and width of the token ids that were looked up (aten::embedding has weights, then ids)."""
    looked_up = [op for op in seen.trace.ops if op.name == "aten::embedding" and len(op.shapes) > 1]
    return [
        [(op.shapes[1][0], op.shapes[1][1]) for op in looked_up if step.holds(op.start_ns) and len(op.shapes[1]) == 2]
        for step in seen.trace.steps
    ]


def _less_compute(seen: Seen, factor: float) -> Change:
    kernels = seen.find_work(lambda work: not isinstance(work, Copy) and not is_collective(work))
    return Change(work=dict.fromkeys(kernels, factor)) if kernels else Change({COMPUTING: factor})


def _at(place: str | None) -> str:
    return f", most of it in {place}" if place else ""


def _microseconds(kernels: list[Kernel]) -> str:
    return f"{sum(kernel.duration_ns for kernel in kernels) / len(kernels) / 1000:.0f}"


Rule = Callable[[Seen], Iterator[Candidate]]
_RULES: tuple[Rule, ...] = (
    _pauses,
    _loading,
    _syncs,
    _optimizer,
    _small_copies,
    _unpinned,
    _communication,
    _attention,
    _fp32,
    _launching,
    _python,
    _padding,
)
