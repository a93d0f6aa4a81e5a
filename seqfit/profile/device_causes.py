"""Causes in the work itself: kernels that could be fewer, faster, overlapped or left out.

In: what is `Seen` of a trace. Out: candidates for the optimizer, communication, attention, precision and padding; none
is decided here (see trace_findings.py).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from statistics import median

from seqfit.profile.candidate import Candidate, Seen, mean_microseconds
from seqfit.profile.gpu_time import is_collective
from seqfit.profile.host import (
    COMMUNICATING,
    COMPUTING,
)
from seqfit.profile.intervals import Interval, between, intervals_of, length, merge, overlap
from seqfit.profile.phases import NAMES, OPTIMIZER
from seqfit.profile.replay import Change
from seqfit.profile.steps import MATRIX_PRODUCT
from seqfit.profile.trace import Copy
from seqfit.units import format_count

_VALUES_LEFT = 7 / 20  # Adam reads weight, gradient, two moments and writes three; its operators read and write 20
_SHORTEST_KERNEL_NS = 2_000  # what a kernel takes that has next to nothing to do
_FAR_LONGER = 8  # buckets of one name differ in size by less, but for a small one
_TENSOR_CORES = (7, 0)
_FP32_MATMUL = re.compile(r"sgemm|simt.*gemm|gemm.*simt|gemmSN|f32f32_f32f32|magma_s", re.IGNORECASE)
_REDUCED = re.compile(r"tf32|s1688|s16816|h884|h1688|bf16|f16|half|hgemm|tensorop", re.IGNORECASE)
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
_LOSS_SOFTMAX = re.compile(r"log_?softmax|nll|cross_?entropy", re.IGNORECASE)
_MODEL_KERNEL = re.compile(
    r"gemm|conv|softmax|attention|flash|fmha|embedding|norm_|nccl|cutlass|dropout|gelu|relu|nll", re.IGNORECASE
)
_ELEMENTWISE = re.compile(r"elementwise|dropout|masked|where|triu|copy|triton_", re.IGNORECASE)
_FUSED_PRODUCTS = 0.7  # of the products' time: a fused attention computes more, but does not write and read scores
_FUSED_ATTENTION = re.compile(r"flash|fmha|mem_?eff|cudnn.*sdpa|cutlassF|scaled_dot_product", re.IGNORECASE)
_FUSED_OPTIMIZER = re.compile(r"fused", re.IGNORECASE)


def _optimizer(seen: Seen) -> Iterator[Candidate]:
    """An update of many kernels where one would do."""
    updates = merge(intervals_of(s for s in seen.trace.ranges if NAMES[OPTIMIZER].search(s.name)))
    if not seen.trace.kernels:
        yield from _optimizer_on_cpu(seen, updates)
        return
    if updates:
        calls = seen.calls_in(updates)
        work = [n for n in sorted(seen.work_by(calls)) if not isinstance(seen.replay.work[n], Copy)]
    else:
        named = seen.find_work(lambda k: "multi_tensor_apply" in k.name or "Adam" in k.name)
        work = max(named, _last_kernels(seen), key=len)
        calls = sorted(seen.calls_of(work))
    kernels = [seen.replay.work[n] for n in work if not is_collective(seen.replay.work[n])]
    if not kernels or any(_FUSED_OPTIMIZER.search(kernel.name) for kernel in kernels):
        return
    per_step = len(kernels) / seen.steps
    if per_step < 12:  # a fused update is a few
        return
    host = 5 / per_step
    left = {n: _left_of_update(seen.replay.work[n].duration_ns) for n in work}
    yield Candidate(
        "unfused-optimizer",
        f"the optimizer updates the weights with {format_count(per_step)} kernels per step of "
        f"{mean_microseconds(kernels)} us each, {seen.a_step(seen.work_share(work))} on the GPU",
        "Update all weights in one fused kernel",
        ("strategy.optimizer_kernel=fused",),
        'optim="adamw_torch_fused"',
        likely=Change(calls=dict.fromkeys(calls, host), work=left),
        least=Change(calls=dict.fromkeys(calls, 0.5), work=dict.fromkeys(work, 0.8)),
        most=Change(calls=dict.fromkeys(calls, 0.0), work=left),
        evidence={"kernels_per_step": per_step},
    )


def _left_of_update(duration_ns: int) -> float:
    """Of a kernel's time in a fused update, which reads and writes each value once instead of about three times."""
    return _VALUES_LEFT * max(1 - _SHORTEST_KERNEL_NS / max(duration_ns, 1), 0.0)


def _last_kernels(seen: Seen) -> list[int]:
    """Without a range: the kernels behind the last one of the model in each step, where they are very many."""
    found: list[int] = []
    for start, end in seen.trace.step_intervals_ns:
        tail: list[int] = []
        for number, work in enumerate(seen.replay.work):
            if start <= work.start_ns < end and not isinstance(work, Copy):
                if _MODEL_KERNEL.search(work.name):
                    tail.clear()
                else:
                    tail.append(number)
        found += tail if len(tail) >= 100 else []
    return found


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
    """What each collective takes where nobody has to be waited for.

    Of collectives of one size that is what most take. Where sizes are not known, it is what the same one takes in most
    steps; and the first one of a step, which is where a rank waits that comes early, takes no longer than the others.
    """
    work = seen.replay.work
    if all(work[n].message_elements is not None for n in numbers):
        groups: dict[object, list[int]] = {}
        for n in numbers:
            groups.setdefault((work[n].name, work[n].message_elements), []).append(n)
        return {n: _floor(seen, n, members) for members in groups.values() for n in members}
    starts = [start for start, _ in seen.trace.step_intervals_ns]
    by_step: dict[int, list[int]] = {}
    for n in numbers:
        by_step.setdefault(bisect.bisect_right(starts, work[n].start_ns), []).append(n)
    places: dict[object, list[int]] = {}
    for members in by_step.values():
        for place, n in enumerate(members):
            places.setdefault((place, work[n].name), []).append(n)
    floors = {n: _floor(seen, n, members) for members in places.values() for n in members}
    for members in by_step.values():
        others = [n for n in members[1:] if work[n].name == work[members[0]].name]
        if len(others) >= 3:
            floors[members[0]] = min(floors[members[0]], _floor(seen, members[0], others))
        for n in members:  # and whichever is far longer than all others of its step
            rest = [m for m in members if m != n and work[m].name == work[n].name]
            if len(rest) >= 3 and work[n].duration_ns > _FAR_LONGER * max(work[m].duration_ns for m in rest):
                floors[n] = min(floors[n], round(median(work[m].duration_ns for m in rest)))
    return floors


def _floor(seen: Seen, number: int, alike: list[int]) -> int:
    """Its own time, but for what exceeds the usual one of its kind by far: only that is a wait."""
    usual = median(seen.replay.work[n].duration_ns for n in alike)
    own = seen.replay.work[number].duration_ns
    return own if own <= 2.5 * usual else round(usual)


def _overlapped(seen: Seen, numbers: list[int]) -> float:
    others = merge(intervals_of(k for k in seen.trace.kernels if not is_collective(k)))
    ran = merge(intervals_of(seen.replay.work[n] for n in numbers))
    return sum(overlap(others, interval) for interval in between(ran, seen.window)) / max(seen.trace.span_ns, 1)


def _attention(seen: Seen) -> Iterator[Candidate]:
    """Softmax as a kernel of its own between two matrix products, and no fused attention anywhere."""
    if any(_FUSED_ATTENTION.search(k.name) for k in seen.trace.kernels) or _uses_fused_attention(seen):
        return
    products, scores = _find_attention(seen)
    softmax = [n for n in scores if _SOFTMAX.search(seen.replay.work[n].name)]
    if len(softmax) < 2 * seen.steps:
        return
    share = seen.work_share([*products, *scores])
    yield Candidate(
        "eager-attention",
        f"attention writes its scores to memory: its products, softmax and what is done with the scores take "
        f"{seen.a_step(share)}",
        "Use a fused attention, which never writes them",
        ("strategy.attention=auto",),
        'from_pretrained(..., attn_implementation="sdpa")',
        likely=Change(work=dict.fromkeys(products, _FUSED_PRODUCTS) | dict.fromkeys(scores, 0.0)),
        least=Change(work=dict.fromkeys(scores, 0.3)),
        most=Change(
            work=dict.fromkeys(products, 0.3) | dict.fromkeys(scores, 0.0),
            calls=dict.fromkeys(seen.calls_of(scores), 0.0),
        ),
        evidence={"softmax_kernels_per_step": len(softmax) / seen.steps, "share": share},
    )


def _uses_fused_attention(seen: Seen) -> bool:
    return any(_FUSED_ATTENTION.search(op.name) for op in seen.trace.ops)


def _find_attention(seen: Seen) -> tuple[set[int], set[int]]:
    """The matrix products of attention, and what is done with the scores between them, on one stream:

        forward    product  scale mask SOFTMAX dropout  product
        backward   product product  dropout SOFTMAX scale  product product

    A softmax that has no product on one side, such as that of the loss, is another one.
    """
    by_stream: dict[tuple[int, int], list[int]] = {}
    for number, work in enumerate(seen.replay.work):
        by_stream.setdefault((work.device, work.stream), []).append(number)
    products: set[int] = set()
    scores: set[int] = set()
    for numbers in by_stream.values():
        names = [seen.replay.work[number].name for number in numbers]
        for place, name in enumerate(names):
            if not _SOFTMAX.search(name) or _LOSS_SOFTMAX.search(name):
                continue
            before, after = (_reach_product(names, place, way) for way in (-1, 1))
            if before is None or after is None:
                continue
            count = 2 if "backward" in name.lower() else 1
            wanted = [*(before - n for n in range(count)), *(after + n for n in range(count))]
            products |= {numbers[p] for p in wanted if 0 <= p < len(names) and MATRIX_PRODUCT.search(names[p])}
            scores |= {numbers[p] for p in range(before + 1, after)}
    return products, scores


def _reach_product(names: list[str], place: int, way: int) -> int | None:
    """The next matrix product in this direction, with nothing but elementwise kernels on the way."""
    place += way
    while 0 <= place < len(names) and _ELEMENTWISE.search(names[place]):
        place += way
    return place if 0 <= place < len(names) and MATRIX_PRODUCT.search(names[place]) else None


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


DEVICE_RULES = (_optimizer, _communication, _attention, _fp32, _padding)
