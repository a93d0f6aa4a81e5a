"""What a person learns from a trace: the mistakes that were once made, each as a test."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.diagnosis.programs import NCCL, healthy
from benchmarks.diagnosis.simulate import (
    Action,
    CopyData,
    Launch,
    Recording,
    Sync,
    Work,
    simulate,
    write_kineto,
    write_nsight,
)
from seqfit.errors import DataError
from seqfit.profiling.findings import Finding
from seqfit.profiling.readers import read_trace
from seqfit.profiling.steps import BY_KERNELS, BY_RANGES, find_steps
from seqfit.profiling.tables import diagnose, summarise_trace
from seqfit.profiling.trace import Call, HostSpan, KernelSpan, Op, Trace, TracedGpu
from seqfit.profiling.trace_findings import find_in_trace

GEMM = "ampere_bf16_s16816gemm_bf16"


def findings(path: Path) -> list[Finding]:
    return find_in_trace(diagnose(read_trace(path)))


def write(recording: Recording, folder: Path, kind: str) -> Path:
    return write_kineto(recording, folder / "t.json") if kind == "kineto" else write_nsight(recording, folder / "t.db")


@pytest.mark.parametrize("kind", ["kineto", "nsight"])
def test_a_slow_loader_is_found_with_its_options(tmp_path: Path, kind: str) -> None:
    """(a) 'computing 20%, idle 80% (data wait 80%)' ended in 'nothing found'."""
    step = [Work(40_000, "enumerate(DataLoader)#x"), *[Launch(GEMM, 500.0)] * 20, Sync()]
    first, *_ = findings(write(simulate([step] * 6), tmp_path, kind))
    assert first.cause == "waiting-for-data"
    assert first.gain == pytest.approx(0.8, abs=0.02)
    assert first.change == ("strategy.prefetch=4",)
    assert "dataloader_num_workers" in first.trainer
    assert first.gain_range is not None
    assert first.gain_range[0] < first.gain <= first.gain_range[1]


def test_a_sync_that_ended_before_the_gap_began_is_not_its_reason(tmp_path: Path) -> None:
    """(b) nsys, an unnamed loader of 400 ms: the sync got all of the 78%; removing it would save about 20%."""
    batch = CopyData("HtoD", 1 << 20, 100.0)
    step = [Work(400_000), batch, *[Launch(GEMM, 1000.0)] * 100, CopyData("DtoH", 4, 2.0), Sync()]
    path = write_nsight(simulate([step] * 8), tmp_path / "report.sqlite")
    diagnosis = diagnose(read_trace(path))
    (gpu,) = diagnosis.gpus
    assert gpu.causes["waiting in a sync"] < 0.01
    assert gpu.causes["loading data"] == pytest.approx(0.8, abs=0.02)
    first, *others = find_in_trace(diagnosis)
    assert first.cause == "waiting-for-data"
    assert "inferred" in first.sentence
    assert sum(finding.gain for finding in (first, *others)) <= 1


def test_a_cpu_trace_with_stacks_does_not_blame_the_function_that_runs_everything(tmp_path: Path) -> None:
    """(c) 'host syncs take 100% of it': main() reads the loss, and main() is the whole run."""
    path = tmp_path / "trace.json"
    subprocess.run([sys.executable, "-c", RECORD_WITH_STACKS, str(path)], check=True, capture_output=True)
    found = findings(path)
    assert "host-syncs" not in [finding.cause for finding in found if finding.gain > 0.1]


RECORD_WITH_STACKS = """
import sys, torch
from torch.profiler import ProfilerActivity, profile
def main():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(400, 400) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters())
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        for _ in range(4):
            loss = model(torch.randn(64, 400)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
            profiler.step()
    profiler.export_chrome_trace(sys.argv[1])
main()
"""


@pytest.mark.parametrize("marked", [True, False])
def test_a_foreign_trace_has_steps_and_times_per_step(tmp_path: Path, marked: bool) -> None:
    """(d) ten steps counted as one, also with NVTX ranges named step."""
    step = [Work(300, None), CopyData("HtoD", 1 << 20, 50.0), *[Launch(f"k{n}", 300.0) for n in range(20)], Sync()]
    summary = summarise_trace(
        diagnose(read_trace(write_nsight(simulate([step] * 10), tmp_path / "r.db", nvtx_steps=marked)))
    )
    assert summary.steps == 10
    assert summary.steps_by == (BY_RANGES if marked else BY_KERNELS)
    assert summary.step_seconds == pytest.approx(6.4e-3, rel=0.05)
    assert summary.syncs[0].calls_per_step == pytest.approx(1.0, abs=0.11)


def test_a_trace_in_which_nothing_ran_is_refused(tmp_path: Path) -> None:
    """(d) it had 'nothing found'."""
    with pytest.raises(DataError, match=r"no kernel, no operator and no copy.*repeat=1"):
        read_trace(write_kineto(Recording(steps=[(0.0, 10.0)]), tmp_path / "empty.json"))


@pytest.mark.parametrize("kind", ["kineto", "nsight"])
@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_trace_has_no_findings(tmp_path: Path, kind: str, seed: int) -> None:
    assert findings(write(simulate(healthy(seed)), tmp_path, kind)) == []


def test_an_idle_gpu_is_never_called_healthy(tmp_path: Path) -> None:
    """Kernels for 50% of the time and no calls: no rule explains it, and that is said."""
    recording = simulate([[Launch(GEMM, 100.0), Work(200.0)]] * 10)
    recording.calls, recording.ops = [], []
    (finding,) = findings(write_nsight(recording, tmp_path / "r.db", nvtx_steps=False))
    assert finding.cause == "unexplained"
    assert "with_stack=True" in finding.advice


def test_gains_add_up_to_no_more_than_the_step(tmp_path: Path) -> None:
    """Many causes at once: each counts only what those above it have left."""
    step = [Work(9000, "data_wait"), *[Launch("ampere_sgemm_128", 50.0, 60.0), Sync()] * 40]
    found = findings(write_kineto(simulate([step] * 6), tmp_path / "t.json"))
    assert len(found) >= 2
    assert sum(finding.gain for finding in found) <= 1


FORWARD = [Launch("embed", 100.0), *[Launch(GEMM, 500.0), Launch("norm", 100.0)] * 8, Launch("loss", 50.0)]
BACKWARD = [Launch("d_loss", 50.0), *[Launch(f"{GEMM}_d", 500.0), Launch("d_norm", 100.0)] * 16]
TRAINING = [CopyData("HtoD", 1 << 18, 20.0), *FORWARD, *BACKWARD, *[Launch("FusedAdam", 200.0)] * 3]
ONE_STEP_US = sum(action.device_us for action in TRAINING if isinstance(action, Launch))


def unmarked(steps: list[list[Action]], folder: Path) -> list[Finding]:
    """Of an Nsight export without any range."""
    recording = simulate(steps)
    recording.ranges = []
    return findings(write_nsight(recording, folder / "r.db", nvtx_steps=False))


def test_an_evaluation_without_a_name_is_seen_by_its_forwards(tmp_path: Path) -> None:
    evaluation: list[Action] = [*FORWARD, Sync()] * 6
    (finding,) = unmarked([TRAINING] * 4 + [[*evaluation, *TRAINING]] + [TRAINING] * 3, tmp_path)
    assert finding.cause == "evaluation"
    forward_us = 6 * sum(action.device_us for action in FORWARD if isinstance(action, Launch))
    assert finding.gain == pytest.approx(forward_us / (7 * ONE_STEP_US + forward_us), abs=0.02)


def test_a_checkpoint_without_a_name_is_seen_by_the_weights_that_are_copied_back(tmp_path: Path) -> None:
    copies: list[Action] = [CopyData("DtoH", 1 << 22, 1000.0, blocking=True, pageable=True)] * 10
    (finding,) = unmarked([TRAINING] * 4 + [[*copies, Work(20_000), *TRAINING]] + [TRAINING] * 3, tmp_path)
    assert finding.cause == "checkpoint"
    assert finding.gain == pytest.approx(30_000 / (7 * ONE_STEP_US + 30_000), abs=0.02)


def test_an_evaluation_after_the_last_step_counts_and_a_truncated_step_does_not(tmp_path: Path) -> None:
    evaluation: list[Action] = [*FORWARD, Sync()] * 8
    (finding,) = unmarked([TRAINING] * 5 + [[*TRAINING, *evaluation]], tmp_path)
    assert finding.cause == "evaluation"
    assert unmarked([TRAINING] * 5 + [[*TRAINING, *FORWARD]], tmp_path) == []


def test_an_evaluation_with_kernels_of_its_own_is_seen(tmp_path: Path) -> None:
    """Its batches are larger, so the library takes another kernel for the same product."""
    forward = [replace(action, kernel=f"{action.kernel}_256") for action in FORWARD if isinstance(action, Launch)]
    steps = [TRAINING] * 4 + [[*[*forward, Sync()] * 6, *TRAINING]] + [TRAINING] * 3
    assert [finding.cause for finding in unmarked(steps, tmp_path)] == ["evaluation"]


def test_a_pause_before_the_profilers_step_is_no_loader(tmp_path: Path) -> None:
    """prof.step() is called at the end of the loop's body: a callback ran there."""
    first, *_ = findings(write_kineto(simulate([[*TRAINING, Sync(), Work(20_000)]] * 6), tmp_path / "t.json"))
    assert first.cause == "host-syncs"


def test_a_long_step_by_itself_is_no_evaluation(tmp_path: Path) -> None:
    """Twice as many kernels of all kinds, as with twice the micro-batches, are no forward-only stretch."""
    twice = [*FORWARD, *BACKWARD, *TRAINING]
    assert unmarked([TRAINING] * 4 + [twice] + [TRAINING] * 3, tmp_path) == []


@pytest.mark.parametrize("kind", ["kineto", "nsight"])
def test_a_sync_is_named_before_the_python_behind_it(tmp_path: Path, kind: str) -> None:
    """Without item() the metrics' Python, 1 of each 3 ms, would run while the GPU computes."""
    read = [CopyData("DtoH", 4, 2.0, blocking=True, pageable=True), Sync(), Work(1000)]
    step = [Work(100), *[*[Launch(GEMM, 500.0)] * 4, *read] * 8]
    first, *others = findings(write(simulate([step] * 8), tmp_path, kind))
    assert first.cause == "host-syncs"
    assert first.gain == pytest.approx(1 / 3, abs=0.03)
    assert others == []


def test_launches_into_a_full_queue_do_not_make_a_step_launch_bound(tmp_path: Path) -> None:
    """The host is 1,024 kernels ahead and waits in each launch; faster attention kernels leave it far ahead."""
    attention = [
        Launch(GEMM, 100.0),
        *[Launch("vectorized_elementwise_kernel", 400.0)] * 2,
        Launch("softmax_warp", 400.0),
    ]
    step = [Launch("embed", 10.0), *[*attention, Launch(GEMM, 100.0)] * 80]
    found = findings(write_kineto(simulate([step] * 8), tmp_path / "t.json"))
    assert [finding.cause for finding in found] == ["eager-attention"]


def test_the_softmax_of_the_loss_is_no_attention(tmp_path: Path) -> None:
    loss = [Launch(GEMM, 500.0), Launch("cunn_SoftMaxForward", 900.0), Launch("nll_loss", 10.0)]
    step = [*[Launch(GEMM, 500.0)] * 10, *loss * 3, *[Launch("FusedAdam", 100.0)] * 2]
    assert findings(write_kineto(simulate([step] * 6), tmp_path / "t.json")) == []


def communicating(lengths_us: list[float], sizes: list[int | None], compute_us: float = 400.0) -> Trace:
    """Six steps: a forward, a backward with a collective for each kernel, and an update that waits for all of them."""
    calls: list[Call] = []
    kernels: list[KernelSpan] = []
    steps: list[HostSpan] = []
    now = 0.0

    def run(name: str, start: float, length: float, stream: int, size: int | None = None) -> float:
        number = len(kernels)
        calls.append(Call("cudaLaunchKernel", 1000 * number, 500, "1", number))  # the host is far ahead
        span = (round(1000 * start), round(1000 * length))
        kernels.append(KernelSpan(name, *span, 0, stream, number, message_elements=size))
        return start + length

    for step in range(6):
        begin = len(calls)
        now = run(GEMM, now + 5, len(lengths_us) * compute_us / 2, 7)
        free = now
        for length, size in zip(lengths_us, sizes, strict=True):
            now = run(f"{GEMM}_d", now, compute_us, 7)
            free = run(NCCL, max(now, free), length, 20, size)
        now = run("FusedAdam", max(now, free), 100.0, 7)
        steps.append(HostSpan(f"ProfilerStep#{step}", 1000 * begin, 1000 * (len(calls) - begin), "1"))
    return find_steps(Trace("x", "kineto", calls=tuple(calls), kernels=tuple(kernels), steps=tuple(steps)))


@pytest.mark.parametrize(
    ("lengths_us", "sizes"),
    [
        ([450.0] * 11 + [60.0], [7] * 11 + [23]),  # the largest is the fastest
        ([1700.0, *[480.0] * 10, 60.0], [None] * 12),
        ([300.0, 330, 360, 390, *[470.0] * 7, 60.0], [None] * 12),
    ],
)
def test_collectives_that_wait_for_a_slower_rank_are_a_straggler(
    lengths_us: list[float], sizes: list[int | None]
) -> None:
    first, *others = find_in_trace(diagnose(communicating(lengths_us, sizes)))
    assert first.cause == "straggler"
    assert others == []


def test_what_is_waited_for_is_not_also_counted_as_communication() -> None:
    """Each collective needs 300 us of the backward's 400, and the first of each step waits for 6 ms more."""
    found = find_in_trace(diagnose(communicating([6300.0, *[300.0] * 11], [7] * 12)))
    assert found[0].cause == "straggler"
    assert sum(finding.gain for finding in found) < 0.55


@pytest.mark.parametrize("sizes", [[7] * 12, [None] * 12])
def test_collectives_that_take_what_their_size_needs_are_communication(sizes: list[int | None]) -> None:
    first, *_ = find_in_trace(diagnose(communicating([600.0] * 12, sizes)))
    assert first.cause == "communication"


def test_a_backward_hides_no_more_communication_than_its_own_length(tmp_path: Path) -> None:
    """30 ms of compute, 20 of them backward, and 60 ms of communication behind it: of these 20 can be hidden."""
    update = Launch("FusedAdam", 300.0, after_stream=20)
    communication = [Launch(NCCL, 7500.0, stream=20, after_stream=7)] * 8
    step = [*[Launch(GEMM, 500.0)] * 20, *[Launch(f"{GEMM}_d", 1000.0)] * 20, *communication, update]
    first, *_ = findings(write_kineto(simulate([step] * 6), tmp_path / "t.json"))
    assert first.cause == "communication"
    assert first.gain == pytest.approx(20 / 90, abs=0.03)
    assert first.gain_range is not None
    assert first.gain_range[1] < 0.25


@pytest.mark.parametrize(
    ("gpu", "left"),
    [(TracedGpu("NVIDIA A100-SXM4-40GB", (8, 0)), 0.09), (TracedGpu("NVIDIA GeForce RTX 4090", (8, 9)), 0.54)],
)
def test_what_fp32_costs_depends_on_the_gpu(gpu: TracedGpu, left: float) -> None:
    calls = tuple(Call("cudaLaunchKernel", 1000 * n, 500, "1", n) for n in range(40))
    kernels = tuple(KernelSpan("ampere_sgemm_128x64", 10_000 + 100_000 * n, 100_000, 0, 7, n) for n in range(40))
    (finding,) = find_in_trace(diagnose(Trace("x", "kineto", calls=calls, kernels=kernels, gpus={0: gpu})))
    assert finding.cause == "fp32"
    assert finding.gain == pytest.approx(1 - left, abs=0.02)
    assert "published" in finding.sentence


def padded(ops: list[Op]) -> Trace:
    """Four steps of a kernel on 4 x 100 tokens."""
    calls = [Call("cudaLaunchKernel", 1_000_000 * n, 500, "1", n) for n in range(4)]
    calls += [Call("cudaStreamSynchronize", 1_000_000 * n + 1000, 998_000, "1") for n in range(4)]
    kernels = tuple(KernelSpan(GEMM, 1_000_000 * n + 5000, 990_000, 0, 7, n) for n in range(4))
    steps = tuple(HostSpan(f"ProfilerStep#{n}", 1_000_000 * n, 1_000_000, "1") for n in range(4))
    looked_up = Op("aten::embedding", 600, 10, "1", shapes=((1000, 8), (4, 100), ()))
    each = [replace(op, start_ns=op.start_ns + step.start_ns) for step in steps for op in (looked_up, *ops)]
    return find_steps(Trace("x", "kineto", calls=tuple(calls), kernels=kernels, ops=tuple(each), steps=steps))


@pytest.mark.parametrize(
    "ops",
    [
        [Op("aten::pad_sequence", 10, 400, "1", shapes=((20,), (40,), (60,), (40,)))],
        [
            Op("aten::pad_sequence", 10, 400, "1", shapes=((), (), ())),
            *[Op("aten::copy_", 20 + n, 1, "1", shapes=((n,), (n,), ())) for n in (20, 40, 60, 40)],
        ],
        [Op("flash_attn::_flash_attn_varlen_forward", 700, 10, "1", shapes=((160, 8, 64), (160, 8, 64)))],
    ],
)
def test_padding_is_counted_where_lengths_are_in_the_trace(ops: list[Op]) -> None:
    (finding,) = find_in_trace(diagnose(padded(ops)))
    assert finding.cause == "padding"
    assert not finding.is_guess
    assert finding.evidence["padding_share"] == pytest.approx(0.6)
    assert finding.gain == pytest.approx(0.6, abs=0.02)


def test_batches_of_one_shape_are_no_sign_of_padding() -> None:
    assert find_in_trace(diagnose(padded([]))) == []
