"""What a person is told of a trace: the mistakes that were once made, each as a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.diagnosis.programs import healthy
from benchmarks.diagnosis.simulate import (
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
from seqfit.profile.diagnosis import diagnose
from seqfit.profile.findings import Finding
from seqfit.profile.load import read_trace
from seqfit.profile.summary import summarise
from seqfit.profile.trace_findings import find_in_trace

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
    summary = summarise(diagnose(read_trace(write_nsight(simulate([step] * 10), tmp_path / "r.db", nvtx_steps=marked))))
    assert summary.steps == 10
    assert summary.steps_by == ("ranges named like a step" if marked else "the kernels that repeat")
    assert summary.step_seconds == pytest.approx(6.4e-3, rel=0.05)
    assert summary.syncs[0].calls_per_step == pytest.approx(1.0, abs=0.11)


def test_a_trace_in_which_nothing_ran_is_refused(tmp_path: Path) -> None:
    """(d) it had 'nothing found'."""
    with pytest.raises(DataError, match=r"no kernel, no operator and no CUDA call.*repeat=1"):
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
