"""Causes on the device: kernels that could be fewer, faster or left out, and collectives that nothing overlaps.

In: a `TraceContext`. Out: candidates for the optimizer, attention, precision, padding and communication;
trace_findings.py decides. A collective ends on all ranks when the last one has joined, so its length is the
communication itself and the waiting:

    needed (floor)   what one of its size or larger takes, or the same one in other steps, without waiting
    waited           the rest, caused by a straggler
    exposed          of what is needed, the time in which nothing is computed: could be hidden behind the backward
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median

from seqfit.profiling.findings import Cause
from seqfit.profiling.host import COMMUNICATING, COMPUTING
from seqfit.profiling.replay import CandidateFinding, Change, TraceContext, mean_microseconds
from seqfit.profiling.steps import MATRIX_PRODUCT, is_update_kernel
from seqfit.profiling.tables import BACKWARD, NAMES, OPTIMIZER, is_collective
from seqfit.profiling.trace import BACKWARD_PREFIX, PAD_SEQUENCE, Copy, Op, group_by, intervals_of, merge, overlap
from seqfit.units import format_count, format_share

_VALUES_LEFT = 7 / 20  # Adam reads weight, gradient, two moments and writes three; its operators read and write 20
_SHORTEST_KERNEL_NS = 2_000  # of a kernel that has next to nothing to do
_TENSOR_CORES = (7, 0)
_FP32_MATMUL = re.compile(r"sgemm|simt.*gemm|gemm.*simt|gemmSN|f32f32_f32f32|magma_s", re.IGNORECASE)
_REDUCED = re.compile(r"tf32|s1688|s16816|h884|h1688|bf16|f16|half|hgemm|tensorop", re.IGNORECASE)
# Dense bf16 (V100, T4, 20xx: fp16) rate divided by the fp32 rate, from NVIDIA's data sheets.
_PUBLISHED_RATES = (
    (r"A100|A800|A30\b", 16.0),  # 312 / 19.5
    (r"H100|H200|H800|GH200", 14.8),  # 989 / 67
    (r"B200|GB200|B100", 28.0),  # 2,250 / 80
    (r"V100|T4\b|RTX 20|TITAN RTX", 8.0),  # 125 / 15.7, 65 / 8.1
    (r"A10G|RTX 30\d\d|RTX 40\d\d|RTX 50\d\d", 2.0),  # 70 / 35, 71 / 35.6, 165 / 82.6
    (r"A10\b|A40|RTX A\d000|L4\b|L40|RTX \d000 Ada", 4.0),  # 125 / 31.2, 150 / 37.4, 121 / 30.3, 362 / 91.6
)
_BF16_REACHED = 0.6  # of the published rate, by products of a training step
_USUAL_RATE = 1 / 0.35  # where the GPU is not known
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
_LOSS_SOFTMAX = re.compile(r"log_?softmax|nll|cross_?entropy", re.IGNORECASE)
_MODEL_KERNEL = re.compile(
    r"gemm|conv|softmax|attention|flash|fmha|embedding|norm_|nccl|cutlass|dropout|gelu|relu|nll", re.IGNORECASE
)
_ELEMENTWISE = re.compile(r"elementwise|dropout|masked|where|triu|copy|triton_", re.IGNORECASE)
_FUSED_PRODUCTS = 0.7  # of the products' time: a fused attention computes more, but does not write and read scores
_FUSED_ATTENTION = re.compile(r"flash|fmha|mem_?eff|cudnn.*sdpa|cutlassF|scaled_dot_product", re.IGNORECASE)
_FUSED_OPTIMIZER = re.compile(r"fused", re.IGNORECASE)

_HIDDEN = 0.8  # of the communication: the last bucket, with the embedding's gradient, has no backward left to hide it
_FIRST_BUCKET = 0.1  # of a backward, until there is something to communicate
_WAITED = 2.5  # a collective that takes this many times as long as it needs waits for another rank
_NOT_QUEUED_NS = 50_000
_FAR_LONGER = 8  # buckets of one name differ in size by less, except for a small one


def _optimizer(context: TraceContext) -> Iterator[CandidateFinding]:
    updates = merge(intervals_of(s for s in context.trace.ranges if NAMES[OPTIMIZER].search(s.name)))
    if not context.trace.kernels:
        yield from _optimizer_on_cpu(context, updates)
        return
    if updates:
        calls = context.calls_in(updates)
        work = [n for n in sorted(context.work_by(calls)) if not isinstance(context.replay.work[n], Copy)]
    else:
        named = context.find_work(lambda k: "multi_tensor_apply" in k.name or "Adam" in k.name)
        work = max(named, _last_kernels(context), key=len)
        calls = sorted(context.calls_of(work))
    kernels = [context.replay.work[n] for n in work if not is_collective(context.replay.work[n])]
    if not kernels or any(_FUSED_OPTIMIZER.search(kernel.name) for kernel in kernels):
        return
    per_step = len(kernels) / context.steps
    if per_step < 12:  # a fused update is a few
        return
    # A fused update reads and writes each value once instead of about three times.
    shares = {n: 1 - _SHORTEST_KERNEL_NS / max(context.replay.work[n].duration_ns, 1) for n in work}
    left = {n: _VALUES_LEFT * max(share, 0.0) for n, share in shares.items()}
    yield CandidateFinding(
        Cause.UNFUSED_OPTIMIZER,
        f"the optimizer launches {format_count(per_step)} kernels per step of {mean_microseconds(kernels)} us each: "
        f"{context.describe_share(context.work_share(work))} on the GPU",
        "Update all weights in one fused kernel",
        ("strategy.optimizer_kernel=fused",),
        'optim="adamw_torch_fused"',
        likely=Change(calls=dict.fromkeys(calls, 5 / per_step), work=left),
        least=Change(calls=dict.fromkeys(calls, 0.5), work=dict.fromkeys(work, 0.8)),
        most=Change(calls=dict.fromkeys(calls, 0.0), work=left),
        evidence={"kernels_per_step": per_step},
    )


def _last_kernels(context: TraceContext) -> list[int]:
    """Without a range: the kernels after the last one of the model in each step, where they are very many."""
    found: list[int] = []
    for start, end in context.trace.step_intervals_ns:
        tail: list[int] = []
        for number, work in enumerate(context.replay.work):
            if start <= work.start_ns < end and not isinstance(work, Copy):
                if _MODEL_KERNEL.search(work.name):
                    tail.clear()
                else:
                    tail.append(number)
        found += tail if len(tail) >= 100 else []
    return found


def _optimizer_on_cpu(context: TraceContext, updates: list[tuple[int, int]]) -> Iterator[CandidateFinding]:
    share = overlap(updates, context.window) / max(context.trace.span_ns, 1)
    ops = [op for op in context.trace.ops if overlap(updates, (op.start_ns, op.start_ns + 1))]
    if not ops or any(_FUSED_OPTIMIZER.search(op.name) for op in ops) or len(ops) / context.steps < 30:
        return
    computing = max(context.shares.get(COMPUTING, share), share)
    likely, least, most = (Change({COMPUTING: 1 - share * saved / computing}) for saved in (0.6, 0.3, 0.8))
    yield CandidateFinding(
        Cause.UNFUSED_OPTIMIZER,
        f"the optimizer takes {context.describe_share(share)} in {format_count(len(ops) / context.steps)} operators",
        "Update all weights in one fused kernel",
        ("strategy.optimizer_kernel=fused",),
        'optim="adamw_torch_fused"',
        likely=likely,
        least=least,
        most=most,
        evidence={"operators_per_step": len(ops) / context.steps, "share": share},
    )


def _attention(context: TraceContext) -> Iterator[CandidateFinding]:
    """Softmax as a kernel of its own between two matrix products, and no fused attention anywhere."""
    if any(_FUSED_ATTENTION.search(work.name) for work in (*context.trace.kernels, *context.trace.ops)):
        return
    products, scores = _find_attention(context)
    softmax = [n for n in scores if _SOFTMAX.search(context.replay.work[n].name)]
    if len(softmax) < 2 * context.steps:
        return
    share = context.work_share([*products, *scores])
    yield CandidateFinding(
        Cause.EAGER_ATTENTION,
        f"attention writes its scores to memory: its matrix products, softmax, mask and dropout take "
        f"{context.describe_share(share)}",
        "Use a fused attention kernel, which never writes them",
        ("strategy.attention=auto",),
        'from_pretrained(..., attn_implementation="sdpa")',
        likely=Change(work=dict.fromkeys(products, _FUSED_PRODUCTS) | dict.fromkeys(scores, 0.0)),
        least=Change(work=dict.fromkeys(scores, 0.3)),
        most=Change(
            work=dict.fromkeys(products, 0.3) | dict.fromkeys(scores, 0.0),
            calls=dict.fromkeys(context.calls_of(scores), 0.0),
        ),
        evidence={"softmax_kernels_per_step": len(softmax) / context.steps, "share": share},
    )


def _find_attention(context: TraceContext) -> tuple[set[int], set[int]]:
    """The matrix products of attention, and what is done with the scores between them, on one stream:

        forward    product  scale mask SOFTMAX dropout  product
        backward   product product  dropout SOFTMAX scale  product product

    A softmax without a product on both sides, such as that of the loss, does not count.
    """
    work = context.replay.work
    products: set[int] = set()
    scores: set[int] = set()
    for numbers in group_by(range(len(work)), lambda n: (work[n].device, work[n].stream)).values():
        names = [work[number].name for number in numbers]
        for place, name in enumerate(names):
            if not _SOFTMAX.search(name) or _LOSS_SOFTMAX.search(name):
                continue
            before, after = (_reach_product(names, place, direction) for direction in (-1, 1))
            if before is None or after is None:
                continue
            count = 2 if "backward" in name.lower() else 1
            wanted = [*(before - n for n in range(count)), *(after + n for n in range(count))]
            products |= {numbers[p] for p in wanted if 0 <= p < len(names) and MATRIX_PRODUCT.search(names[p])}
            scores |= {numbers[p] for p in range(before + 1, after)}
    return products, scores


def _reach_product(names: list[str], place: int, direction: int) -> int | None:
    """The next matrix product in this direction, with nothing but elementwise kernels in between."""
    place += direction
    while 0 <= place < len(names) and _ELEMENTWISE.search(names[place]):
        place += direction
    return place if 0 <= place < len(names) and MATRIX_PRODUCT.search(names[place]) else None


def _fp32(context: TraceContext) -> Iterator[CandidateFinding]:
    products = context.find_work(lambda k: bool(_FP32_MATMUL.search(k.name)) and not _REDUCED.search(k.name))
    if not products:
        return
    gpu = context.trace.gpus.get(context.replay.work[products[0]].device)
    if gpu is not None and gpu.capability is not None and gpu.capability < _TENSOR_CORES:
        return
    has_bf16 = gpu is None or gpu.capability is None or gpu.capability >= (8, 0)
    share = context.work_share(products)
    name = gpu.name if gpu is not None else "a GPU since 2018"
    # How many times as fast a product is in bf16 (before Ampere: fp16); None for an unknown GPU.
    published = next((rate for pattern, rate in _PUBLISHED_RATES if gpu and re.search(pattern, gpu.name)), None)
    # GPUs with twice the fp32 units (compute capability 8.6 and 8.9) reach less of their fp32 rate.
    fp32_reached = 0.65 if gpu and gpu.capability in ((8, 6), (8, 9), (12, 0)) else 0.9
    times = published * _BF16_REACHED / fp32_reached if published else None
    left = min(1 / (times or _USUAL_RATE), 0.9)
    assumed = f"{times:.1f} times as fast by its published rates" if times else "assumed to be 3 times as fast"
    yield CandidateFinding(
        Cause.FP32,
        f"matrix products run in fp32 for {context.describe_share(share)} and do not use the tensor cores of {name} "
        f"({assumed})",
        f"Compute in {'bf16' if has_bf16 else 'fp16'} (weights and updates stay fp32)",
        (f"strategy.precision={'bf16' if has_bf16 else 'fp16'}",),
        "bf16=True (or tf32=True, which keeps more digits)" if has_bf16 else "fp16=True",
        likely=Change(work=dict.fromkeys(products, left)),
        least=Change(work=dict.fromkeys(products, (1 + left) / 2 if times is None else min(max(2 * left, 0.25), 1.0))),
        most=Change(work=dict.fromkeys(products, left / 2)),
        evidence={"share": share},
        is_lossy=True,
    )


def _padding(context: TraceContext) -> Iterator[CandidateFinding]:
    """By the lengths of rows in the trace. One shape for all batches is no evidence: packed ones have it, too."""
    real = padded = 0
    for step in context.trace.steps:
        ops = [op for op in context.trace.ops if op.shapes and step.holds(op.start_ns)]
        for real_tokens, tokens in _count_tokens(ops):
            real, padded = real + real_tokens, padded + tokens
    share = 1 - real / padded if padded else 0.0
    if share < 0.01:
        return
    yield CandidateFinding(
        Cause.PADDING,
        f"{format_share(share)} of the tokens are padding, by the lengths of the rows in the trace",
        "Compute real tokens only (packed batches), or pad to the longest row of a batch and group rows by length",
        ("strategy.batching=packed",),
        'DataCollatorForSeq2Seq(padding="longest"), train_sampling_strategy="group_by_length"',
        likely=_less_compute(context, 1 - share),
        least=_less_compute(context, 1 - 0.8 * share),  # some kernels are too small to shrink with their rows
        most=_less_compute(context, (1 - share) ** 1.2),  # attention shrinks with the square
        evidence={"padding_share": share},
    )


def _count_tokens(ops: list[Op]) -> Iterator[tuple[int, int]]:
    """Real and all tokens of each batch of a step.

    Either rows are padded on the host, and their lengths are those of the tensors in aten::pad_sequence, or of the
    copies in it. Or attention runs on real tokens only ([tokens, heads, width]), and the rest of the model on all.
    """
    batches = [op.shapes[1] for op in ops if op.name == "aten::embedding" and len(op.shapes) > 1]
    batches = [shape for shape in batches if len(shape) == 2 and shape[0] > 1]
    for op in ops:
        lengths: list[int] = []
        if op.name == PAD_SEQUENCE:
            lengths = [shape[0] for shape in op.shapes if shape]
            if not lengths:
                inside = [o for o in ops if o.name == "aten::copy_" and o.thread == op.thread and op.holds(o.start_ns)]
                lengths = [o.shapes[0][0] for o in inside if len(o.shapes[0]) == 1]
        if lengths:
            widths = [width for rows, width in batches if rows == len(lengths) and width >= max(lengths)]
            yield sum(lengths), len(lengths) * min(widths, default=max(lengths))
    tokens = {op.shapes[0][0] for op in ops if "varlen" in op.name and op.shapes[0]}
    for rows, width in set(batches):  # one kind of attention: it is known whose tokens these are
        if len(tokens) == 1 and max(tokens) <= rows * width:
            yield max(tokens), rows * width


def _less_compute(context: TraceContext, factor: float) -> Change:
    """Of the model: an update takes as long for any batch."""
    kernels = context.find_work(
        lambda w: not isinstance(w, Copy) and not is_collective(w) and not is_update_kernel(w.name)
    )
    return Change(work=dict.fromkeys(kernels, factor)) if kernels else Change({COMPUTING: factor})


def _communication(context: TraceContext) -> Iterator[CandidateFinding]:
    """Collectives that nothing overlaps; what they take beyond others of their kind is waiting for another rank."""
    numbers = context.find_work(is_collective)
    if not numbers:
        share = context.shares.get(COMMUNICATING, 0.0)
        if share and not context.trace.kernels:
            removed = Change({COMMUNICATING: 0.0})
            yield _exposed(context, share, removed, Change({COMMUNICATING: 0.5}), removed, "Communicate less often")
        return
    floors = _floors(context, numbers)
    waiting = {n: floors[n] / max(context.replay.work[n].duration_ns, 1) for n in numbers}
    waited = sum(context.replay.work[n].duration_ns - floors[n] for n in numbers) / max(context.trace.span_ns, 1)
    if waited > 0.02:
        yield CandidateFinding(
            Cause.STRAGGLER,
            f"collectives take up to {max(1 / max(f, 1e-6) for f in waiting.values()):.0f} times as long as others of "
            f"their kind: this GPU waits for another one for {context.describe_share(waited)}",
            "Profile the slowest rank; balance the work of the ranks (batches by tokens); check for a slow data loader "
            "or a GPU that others use",
            ("strategy.batching=packed",),
            'train_sampling_strategy="group_by_length", a profile of every rank',
            likely=Change(work=waiting),
            least=Change(work={n: (1 + f) / 2 for n, f in waiting.items()}),
            evidence={"waiting_share": waited},
        )
    yield from _exposed_on_gpu(context, numbers, waiting if waited > 0.02 else {})


def _exposed_on_gpu(
    context: TraceContext, numbers: list[int], waiting: Mapping[int, float]
) -> Iterator[CandidateFinding]:
    """Communication itself, without waiting for others. A backward can hide no more of it than its own length."""
    others = merge(intervals_of(k for k in context.trace.kernels if not is_collective(k)))
    bare = {  # number -> time that nothing overlaps, less what is waited for
        n: waiting.get(n, 1.0) * work.duration_ns - overlap(others, (work.start_ns, work.end_ns))
        for n in numbers
        for work in (context.replay.work[n],)
    }
    bare = {n: time_ns for n, time_ns in bare.items() if time_ns > 0}
    exposed = sum(bare.values())
    overlapped = sum(overlap(others, (context.replay.work[n].start_ns, context.replay.work[n].end_ns)) for n in numbers)
    free = max(_backward_ns(context) - overlapped, 0)
    if not exposed:
        return
    hidden = min(_HIDDEN * exposed, (1 - _FIRST_BUCKET) * free)
    is_hidden_already = hidden < 0.25 * exposed
    likely = 0.5 * exposed if is_hidden_already else hidden  # half: one all-reduce for two micro-batches
    most = max(min(exposed, free), likely)

    def shorten(by_ns: float) -> Change:
        """The waiting stays: the straggler causes it, and it must not make this the larger cause."""
        return Change(
            work={n: 1 - by_ns / exposed * time_ns / context.replay.work[n].duration_ns for n, time_ns in bare.items()}
        )

    yield _exposed(
        context,
        exposed / max(context.trace.span_ns, 1),
        shorten(likely),
        shorten(likely / 2),
        shorten(most),
        "Communicate less often (gradient accumulation), or use fewer GPUs: the backward is too short to hide all of it"
        if is_hidden_already
        else "Overlap it with the backward (ddp), communicate less often (gradient accumulation), or use fewer GPUs",
    )


def _backward_ns(context: TraceContext) -> float:
    """Time of the kernels of the backward; where nothing marks them, two thirds of all: it is two products for one."""
    compute = [w for w in context.replay.work if not isinstance(w, Copy) and not is_collective(w)]
    nodes = intervals_of(op for op in context.trace.ops if op.name.startswith(BACKWARD_PREFIX))
    marked = merge([*nodes, *intervals_of(s for s in context.trace.ranges if NAMES[BACKWARD].search(s.name))])
    if not marked:
        return sum(work.duration_ns for work in compute) * 2 / 3
    launched = context.trace.launch_times()
    moments = ((work, launched.get(work.correlation)) for work in compute)
    return sum(w.duration_ns for w, moment in moments if moment is not None and overlap(marked, (moment, moment + 1)))


def _exposed(
    context: TraceContext, share: float, likely: Change, least: Change, most: Change, advice: str
) -> CandidateFinding:
    sizes = any(work.message_elements for work in context.replay.work)
    unsure = "" if sizes else "; without message sizes in the trace, waiting for a slower rank can't be ruled out"
    return CandidateFinding(
        Cause.COMMUNICATION,
        f"ranks communicate gradients or weights for {context.describe_share(share)} while nothing is computed{unsure}",
        advice,
        ("strategy.parallel=ddp",),
        "gradient_accumulation_steps=N, ddp_bucket_cap_mb=25, ddp_static_graph=True",
        likely=likely,
        least=least,
        most=most,
        evidence={"exposed_share": share},
    )


def _floors(context: TraceContext, numbers: list[int]) -> dict[int, int]:
    """How long each collective takes without waiting for another rank.

    Where sizes are known, that is at most what the fastest of its size or larger takes. Where they are not, it is what
    the same one takes in most steps; and the first one of a step, in which an early rank waits, takes no longer than
    the others.
    """
    work = context.replay.work
    if all(work[n].message_elements for n in numbers):
        alike = group_by(numbers, lambda n: (work[n].device, work[n].name)).values()
        return {n: floor for members in alike for n, floor in _floors_by_size(context, members).items()}
    starts = [start for start, _ in context.trace.step_intervals_ns]
    by_step = group_by(numbers, lambda n: (bisect.bisect_right(starts, work[n].start_ns), work[n].device, work[n].name))
    place_of = {n: place for members in by_step.values() for place, n in enumerate(members)}
    same = group_by(place_of, lambda n: (place_of[n], work[n].device, work[n].name)).values()
    floors = {n: _floor(context, n, members) for members in same for n in members}
    for members in by_step.values():
        if len(members) < 4:
            continue
        floors[members[0]] = min(floors[members[0]], _floor(context, members[0], members[1:]))
        shortest = min(work[n].duration_ns for n in members)
        for n in members:
            if _lags_behind(context, members):
                floors[n] = min(floors[n], shortest)
            rest = [m for m in members if m != n]  # and whichever is far longer than all others of its step
            if work[n].duration_ns > _FAR_LONGER * max(work[m].duration_ns for m in rest):
                floors[n] = min(floors[n], round(median(work[m].duration_ns for m in rest)))
    return floors


def _floors_by_size(context: TraceContext, alike: list[int]) -> dict[int, int]:
    """No rate is assumed, since it grows with the size: one that took longer than a larger one has waited."""
    work = context.replay.work
    fastest = max(work[n].duration_ns for n in alike)
    by_size = group_by((work[n] for n in alike), lambda item: item.message_elements or 0)
    fastest_of: dict[int, int] = {}
    for size in sorted(by_size, reverse=True):
        fastest = min(fastest, *(item.duration_ns for item in by_size[size]))
        fastest_of[size] = fastest
    floors = {n: fastest_of[work[n].message_elements or 0] for n in alike}
    return {n: floor if work[n].duration_ns > _WAITED * floor else work[n].duration_ns for n, floor in floors.items()}


def _lags_behind(context: TraceContext, members: list[int]) -> bool:
    """Whether another rank is slower in all of a step's backward, only by the lengths of its collectives.

    Buckets of ddp are about equal, but for a smaller first one. A rank that is ahead waits in the first for all that
    the other has lost in the forward, or a little longer in each; the last one, at the end, is short again:

        17 6 6 6 6 6 6 0.6        or        4.7 5.3 5.8 6.5 7.0 7.0 7.1 0.6
    """
    work = [context.replay.work[n] for n in members]
    usual = median(item.duration_ns for item in work)
    at_once = [b.duration_ns for a, b in pairwise(work) if b.start_ns > a.end_ns + _NOT_QUEUED_NS]
    at_once.insert(0, work[0].duration_ns)
    grows = len(at_once) >= 3 and at_once[-1] > 1.15 * at_once[0] and at_once == sorted(at_once)
    return work[-1].duration_ns < usual / 3 and (work[0].duration_ns > 1.5 * usual or grows)


def _floor(context: TraceContext, number: int, alike: list[int]) -> int:
    """Its own time, unless it exceeds the usual one of its kind by far: only that is a wait."""
    usual = median(context.replay.work[n].duration_ns for n in alike)
    own = context.replay.work[number].duration_ns
    return own if own <= _WAITED * usual else round(usual)


DEVICE_RULES = (_optimizer, _communication, _attention, _fp32, _padding)
