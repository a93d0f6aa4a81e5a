"""Programs with one cause each, in three sizes, and the same programs without it.

In: a cause's name, a size from 0 to 2, a seed. Out: (steps with the cause, steps without it), for `simulate.py`. A
healthy step is a small T5: kernels of 40 to 400 us, launched far ahead, a loader that is fast, a fused optimizer. The
truth is what the second program takes less than the first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from benchmarks.diagnosis.simulate import Action, Begin, CopyData, End, Launch, Sync, Work

STEPS = 8
PADDED = (1.4, 2.0, 4.0)  # tokens with padding, as a multiple of the real ones
FP32_PRODUCT = 10.0  # times as long as in bf16, on the A100 of these traces: 19.5 and 312 TFLOP/s, 90% and 60% reached
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
OPTIMIZER = "Optimizer.step#AdamW.step"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
FLASH = "flash_fwd_kernel"
ELEMENTWISE = "vectorized_elementwise_kernel"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SGEMM = "ampere_sgemm_128x64_nn"
Step = list[Action]
Program = list[Step]


def healthy_step(draw: random.Random, layers: int = 6, scale: float = 1.0) -> Step:
    """Forward, backward, update."""
    forward: Step = []
    for _ in range(layers):
        forward += [Launch(GEMM, scale * draw.uniform(150, 400)) for _ in range(4)]
        forward += [Launch(FLASH, scale * draw.uniform(100, 200)), *[Launch(ELEMENTWISE, draw.uniform(40, 60))] * 3]
    backward = [replace(a, device_us=2 * a.device_us) for a in reversed(forward) if isinstance(a, Launch)]
    update: Step = [Begin(OPTIMIZER), *[Launch("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 200.0)] * 3, End()]
    load: Step = [Work(200, LOADER), CopyData("HtoD", 65536 * 2, 12, pageable=False)]
    return [*load, *forward, *backward, *update]


def healthy(seed: int) -> Program:
    """Steps that differ a little, as batches do."""
    draw = random.Random(seed)
    layers, scale = draw.choice((4, 6, 8)), draw.uniform(0.6, 1.6)
    return [healthy_step(draw, layers, scale * draw.uniform(0.9, 1.1)) for _ in range(STEPS)]


def step_us(step: Step) -> float:
    """Device time of a step."""
    return sum(action.device_us for action in step if isinstance(action, Launch))


def _loader(program: Program, size: int) -> tuple[Program, Program]:
    def slow(step: Step) -> Step:
        wait = step_us(step) * (0.3, 1.0, 4.0)[size]
        return [Work(wait, LOADER), *step[1:], Sync()]

    # Training that reads its loss once per step, as most loops do: without the sync a loader would be hidden.
    return [slow(step) for step in program], [[*step, Sync()] for step in program]


def _syncs(program: Program, size: int) -> tuple[Program, Program]:
    every = (8, 4, 2)[size]  # kernels
    result = []
    for step in program:
        changed: Step = []
        for number, action in enumerate(step):
            changed.append(action)
            if number % every == every - 1:
                changed += [CopyData("DtoH", 4, 2, blocking=True, pageable=True), Sync(), Work(90)]
        result.append(changed)
    unsynced = [
        [a for a in step if not isinstance(a, Sync) and not (isinstance(a, CopyData) and a.kind == "DtoH")]
        for step in result
    ]
    return result, unsynced


def _launches(program: Program, size: int) -> tuple[Program, Program]:
    host = (20.0, 40.0, 80.0)[size]

    def split(step: Step) -> Step:
        changed: Step = []
        for action in step:
            if isinstance(action, Launch):
                pieces = 8
                changed += [replace(action, device_us=action.device_us / pieces / 2, host_us=host)] * pieces
            else:
                changed.append(action)
        return changed

    slow = [split(step) for step in program]
    fast = [[replace(a, host_us=0.0) if isinstance(a, Launch) else a for a in step] for step in slow]
    return slow, fast


def _copies(program: Program, size: int) -> tuple[Program, Program]:
    count = (100, 300, 1000)[size]
    small: Step = [CopyData("HtoD", 2048, 12.0, blocking=True, pageable=True)] * count
    return [[*step[:2], *small, *step[2:], Sync()] for step in program], [[*step, Sync()] for step in program]


def _optimizer(program: Program, size: int) -> tuple[Program, Program]:
    count = (300, 900, 2700)[size]
    loop: Step = [
        Begin(OPTIMIZER),
        *[Launch("vectorized_elementwise_kernel<addcmul>", 9.0, host_us=12.0)] * count,
        End(),
    ]
    fused: Step = [
        Begin(OPTIMIZER),
        *[Launch("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 3.0 * count / 4)] * 4,
        End(),
    ]
    bare = [step[:-5] for step in program]
    return [[*step, *loop] for step in bare], [[*step, *fused] for step in bare]


def _attention(program: Program, size: int) -> tuple[Program, Program]:
    scores = (60.0, 200.0, 500.0)[size]
    eager: list[Action] = [
        Launch("ampere_bf16_s16816gemm_bf16_64x64", 60.0),
        Launch("vectorized_elementwise_kernel<masked_fill>", scores / 2),
        Launch("softmax_warp_forward<float>", scores),
        Launch("fused_dropout_kernel_vec", scores / 2),
        Launch("ampere_bf16_s16816gemm_bf16_64x64", 60.0),
    ]
    fused: list[Action] = [Launch(FLASH, 120.0)]

    def swap(step: Step, attention: list[Action]) -> Step:
        changed: Step = []
        for action in step:
            changed += attention if isinstance(action, Launch) and action.kernel == FLASH else [action]
        return changed

    return [swap(step, eager) for step in program], [swap(step, fused) for step in program]


def _fp32(program: Program, size: int) -> tuple[Program, Program]:
    share = (0.4, 0.7, 1.0)[size]
    draw = random.Random(1)

    def slow(step: Step) -> Step:
        return [
            replace(a, kernel=SGEMM, device_us=a.device_us * FP32_PRODUCT)
            if isinstance(a, Launch) and a.kernel == GEMM and draw.random() < share
            else a
            for a in step
        ]

    return [slow(step) for step in program], program


def _communicate(program: Program, size: int) -> tuple[Program, Program]:
    """Gradients are reduced after the backward, and the update waits; else during it, an eighth at a time."""
    share = (0.15, 0.5, 1.5)[size]

    def add(step: Step, overlapped: bool) -> Step:
        bare, update = step[:-5], step[-5:]
        bucket = Launch(NCCL, step_us(step) * share / 8, stream=20, after_stream=7)
        forward, backward = bare[: 2 + (len(bare) - 2) // 2], bare[2 + (len(bare) - 2) // 2 :]
        first = update[1]
        assert isinstance(first, Launch)
        update = [update[0], replace(first, after_stream=20), *update[2:]]
        if not overlapped:
            return [*bare, *[bucket] * 8, *update]
        edges = [len(backward) * n // 8 for n in range(9)]
        return [*forward, *(a for x, y in pairwise(edges) for a in (*backward[x:y], bucket)), *update]

    return [add(step, False) for step in program], [add(step, True) for step in program]


def _straggler(program: Program, size: int) -> tuple[Program, Program]:
    """The first of many equal collectives waits until another rank is there."""
    wait = (0.15, 0.5, 1.5)[size]

    def add(step: Step, late: float) -> Step:
        bare, update = step[:-5], step[-5:]
        each = 60.0
        buckets: Step = [Launch(NCCL, each + late, stream=20, after_stream=7)]
        buckets += [Launch(NCCL, each, stream=20) for _ in range(7)]
        first = update[1]
        assert isinstance(first, Launch)
        return [*bare, *buckets, update[0], replace(first, after_stream=20), *update[2:]]

    return [add(step, step_us(step) * wait) for step in program], [add(step, 0.0) for step in program]


def _evaluation(program: Program, size: int) -> tuple[Program, Program]:
    batches = (4, 12, 40)[size]
    changed = [list(step) for step in program]
    forward = [a for a in program[0] if isinstance(a, Launch)][: len(program[0]) // 3]
    changed[STEPS // 2] += [Begin("evaluate"), *([*forward, Sync()] * batches), End()]
    return changed, [[*step, Sync()] if n == STEPS // 2 else step for n, step in enumerate(program)]


def _checkpoint(program: Program, size: int) -> tuple[Program, Program]:
    seconds = (0.5, 2.0, 8.0)[size]
    changed = [list(step) for step in program]
    total = sum(map(step_us, program))
    copy = CopyData("DtoH", 2**28, total * seconds / 6, blocking=True, pageable=True)
    changed[STEPS // 2] += [Begin("save_checkpoint"), Sync(), copy, Work(total * seconds / 3), End()]
    return changed, [[*step, Sync()] if n == STEPS // 2 else step for n, step in enumerate(program)]


def _padding(program: Program, size: int) -> tuple[Program, Program]:
    """Every kernel works on padded rows, and much of the work is for nothing: traces.py has the rows' lengths."""
    factor = PADDED[size]
    padded = [
        [replace(a, device_us=a.device_us * factor) if isinstance(a, Launch) else a for a in step] for step in program
    ]
    return padded, program


CAUSES: dict[str, Callable[[Program, int], tuple[Program, Program]]] = {
    "waiting-for-data": _loader,
    "host-syncs": _syncs,
    "launch-bound": _launches,
    "small-copies": _copies,
    "unfused-optimizer": _optimizer,
    "padding": _padding,
    "eager-attention": _attention,
    "fp32": _fp32,
    "communication": _communicate,
    "straggler": _straggler,
    "evaluation": _evaluation,
    "checkpoint": _checkpoint,
}
NEEDS_SHAPES = ("padding",)  # which Nsight does not record
