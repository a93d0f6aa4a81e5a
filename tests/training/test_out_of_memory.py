"""OOM at any point of a step: training continues with the same update."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import seqfit
from seqfit.errors import OutOfMemory
from seqfit.rundir.reader import Run
from seqfit.step.step import TrainStep
from seqfit.training.oom import find_smaller_micro_batches, is_out_of_memory
from seqfit.training.snapshot_files import find_snapshots
from seqfit.training.view import SilentView

Recipe = dict[str, Any]

# A plan would choose other micro-batches than those whose splitting is tested here.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")
CPU_MESSAGE = (
    "[enforce fail at alloc_cpu.cpp:125] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4096 bytes. Error code 12 (Cannot allocate memory)"
)


class FailAt(TorchDispatchMode):
    """Raises as the CPU allocator does at one operation of the run, counted from the first step."""

    def __init__(self, operation: int) -> None:
        super().__init__()
        self.left = operation
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        self.seen += 1
        if self.left == 0:
            raise RuntimeError(CPU_MESSAGE)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """{"mode": FailAt(...)} makes the second step from then on fail there."""
    chosen: dict[str, Any] = {}
    step = TrainStep.run
    made: list[int] = []

    def fail(self: TrainStep, batch: Any) -> Any:
        if "mode" not in chosen or not made:
            made.extend([1] if "mode" in chosen else [])
            return step(self, batch)
        with chosen.pop("mode"):
            return step(self, batch)

    monkeypatch.setattr(TrainStep, "run", fail)
    return chosen


@pytest.fixture
def exact(word_recipe: Recipe) -> Recipe:
    word_recipe["model"]["dropout"] = 0.0
    word_recipe["train"] |= {"steps": 4, "log_every": 1}
    word_recipe["eval"] = {"every_steps": 4}
    word_recipe["strategy"] = {"precision": "fp32"}
    return word_recipe


def test_what_is_out_of_memory() -> None:
    assert is_out_of_memory(RuntimeError(CPU_MESSAGE))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA driver error: out of memory",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "HIP out of memory. Tried to allocate 2.00 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    ],
)
def test_the_oom_messages_of_all_gpu_libraries_are_recognised(message: str) -> None:
    assert is_out_of_memory(RuntimeError(message))


@pytest.mark.parametrize("last", ["Cuda failure 2 'out of memory'", "Failed to CUDA calloc async 608 bytes"])
def test_nccl_that_gets_no_memory_is_out_of_memory(last: str) -> None:
    text = f"NCCL error in: NCCLUtils.cpp:94, unhandled cuda error, NCCL version 2.29.3\nLast error:\n{last}"
    assert is_out_of_memory(torch.distributed.DistBackendError(text))
    other = text.replace(last, "Cuda failure 1 'invalid argument'")
    assert not is_out_of_memory(torch.distributed.DistBackendError(other))


@pytest.mark.parametrize("operation", [3, 40, 150, 300, 420])
def test_the_update_is_the_same_wherever_oom_happened(
    exact: Recipe, undisturbed: Callable[[Recipe], Run], tmp_path: Path, failing: dict[str, Any], operation: int
) -> None:
    whole = undisturbed(exact)
    failing["mode"] = FailAt(operation)
    run = _train_failing(exact, tmp_path / "run", failing)
    (event,) = [event for event in run.events() if event["kind"] == "out-of-memory"]
    assert event["data"]["step"] == 2
    assert run.steps()[-1]["micro_batches"] > whole.steps()[-1]["micro_batches"]
    for left, right in zip(whole.steps(), run.steps(), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-4)


def _train_failing(recipe: Recipe, out: Path, failing: dict[str, Any]) -> Run:
    run = seqfit.train(recipe, out=out)
    assert "mode" not in failing, "the step never came to the chosen operation"
    return run


def test_one_example_that_does_not_fit_is_an_error_in_three_parts(
    exact: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: TrainStep, batch: Any) -> Any:
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(TrainStep, "run", never)
    with pytest.raises(OutOfMemory, match=r"1 example, .*recompute=blocks"):
        seqfit.train(exact, out=tmp_path / "run")
    assert Run(tmp_path / "run").status == "failed"


class StopAtStep3(SilentView):
    def advance(self, step: int) -> None:
        if step == 3:
            raise SystemExit


@pytest.fixture
def evaluation_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens per batch of every evaluation that was tried; the first one is out of memory."""
    from seqfit.training import evaluator

    score: Any = evaluator.generate_split
    tried: list[int] = []

    def once(generator: Any, *rest: Any, **settings: Any) -> Any:
        tried.append(generator.batch_tokens)
        if len(tried) == 1:
            raise RuntimeError(CPU_MESSAGE)
        return score(generator, *rest, **settings)

    monkeypatch.setattr(evaluator, "generate_split", once)
    return tried


def test_an_evaluation_is_repeated_in_smaller_batches(
    exact: Recipe, tmp_path: Path, evaluation_batches: list[int]
) -> None:
    run = seqfit.train(exact, out=tmp_path / "run")
    assert evaluation_batches[1] == evaluation_batches[0] // 2
    assert [event for event in run.events() if event["kind"] == "out-of-memory"]
    assert run.status == "finished"


def test_the_smaller_micro_batches_are_kept_across_a_resume(
    exact: Recipe, tmp_path: Path, failing: dict[str, Any]
) -> None:
    exact["train"]["snapshot"] = {"every_steps": 1}
    failing["mode"] = FailAt(40)

    with pytest.raises(SystemExit):
        seqfit.train(exact, out=tmp_path / "run", view=StopAtStep3())
    (event,) = [event for event in Run(tmp_path / "run").events() if event["kind"] == "out-of-memory"]
    run = seqfit.train(tmp_path / "run", resume=True)
    facts = json.loads((find_snapshots(run.path)[0] / "snapshot.json").read_text())
    assert (facts["step"], facts["micro_batch_tokens"]) == (4, event["data"]["micro_batch_tokens"])


def test_a_split_after_the_last_snapshot_is_repeated_at_the_same_step(
    exact: Recipe, tmp_path: Path, failing: dict[str, Any]
) -> None:
    exact["train"] |= {"steps": 6, "snapshot": {"every_steps": 1, "keep": 9}}
    exact["eval"] = {"every_steps": 6}
    failing["mode"] = FailAt(40)
    whole = seqfit.train(exact, out=tmp_path / "whole")  # split smaller at its second step

    shutil.copytree(whole.path, tmp_path / "run")  # as if it had been killed before it took a second snapshot
    for snapshot in find_snapshots(tmp_path / "run")[:-1]:
        shutil.rmtree(snapshot)
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"status": "running"}))
    run = seqfit.train(tmp_path / "run", resume=True)
    kept = ("step", "loss", "micro_batches")
    assert [[r[k] for k in kept] for r in run.steps()] == [[r[k] for k in kept] for r in whole.steps()]
    assert run.steps()[0]["micro_batches"] < run.steps()[1]["micro_batches"]


def test_smaller_evaluation_batches_are_kept_across_a_resume(
    exact: Recipe, tmp_path: Path, evaluation_batches: list[int]
) -> None:
    exact["train"]["snapshot"] = {"every_steps": 1}
    exact["eval"] = {"every_steps": 2}
    with pytest.raises(SystemExit):
        seqfit.train(exact, out=tmp_path / "run", view=StopAtStep3())
    seqfit.train(tmp_path / "run", resume=True)
    assert evaluation_batches == [evaluation_batches[0], evaluation_batches[0] // 2, evaluation_batches[0] // 2]


def test_oom_elsewhere_is_an_error_in_three_parts(
    exact: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_arguments: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr("seqfit.data.loader.Loader.split_again", never)
    with pytest.raises(OutOfMemory, match=r"outside a step.*no room.*--resume"):
        seqfit.train(exact, out=tmp_path / "run")


def test_an_update_broken_in_the_middle_goes_back_to_the_snapshot(exact: Recipe, tmp_path: Path) -> None:
    exact["train"] |= {"clip_norm": None, "snapshot": {"every_steps": 1}}
    exact["strategy"] |= {"optimizer_in_backward": True}
    whole = seqfit.train(exact, out=tmp_path / "whole")
    from seqfit.step.optimizers import InBackward

    update, count = InBackward._update, [0]

    def fail_once(self: InBackward, index: int, parameter: torch.Tensor) -> None:
        count[0] += 1
        if count[0] == 60:
            raise RuntimeError(CPU_MESSAGE)
        update(self, index, parameter)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InBackward, "_update", fail_once)
        run = seqfit.train(exact, out=tmp_path / "run")
    assert "restore" in [event["data"]["action"] for event in run.events() if event["kind"] == "out-of-memory"]
    for left, right in zip(whole.steps(), run.steps(), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-4)


def test_oom_after_an_update_does_not_repeat_it(exact: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact["train"]["snapshot"] = {"every_steps": 1}
    whole = seqfit.train(exact, out=tmp_path / "whole")
    zero, seen = torch.optim.AdamW.zero_grad, [0]

    def fail_once(self: torch.optim.AdamW, set_to_none: bool = True) -> None:
        seen[0] += 1
        if seen[0] == 3:
            raise RuntimeError(CPU_MESSAGE)
        zero(self, set_to_none)

    monkeypatch.setattr(torch.optim.AdamW, "zero_grad", fail_once)
    run = seqfit.train(exact, out=tmp_path / "run")
    assert any("back to the snapshot" in event["message"] for event in run.events())
    for left, right in zip(whole.steps(), run.steps(), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-4)


def test_a_resume_splits_micro_batches_as_the_events_after_its_snapshot_say() -> None:
    def event(step: int, tokens: int | None, kind: str = "out-of-memory") -> dict[str, Any]:
        return {"kind": kind, "message": "", "data": {"step": step, "micro_batch_tokens": tokens}}

    events = [event(3, 900), event(7, 400), event(7, 200), event(8, None), event(9, 100, "plan"), {"kind": "plan"}]
    assert find_smaller_micro_batches(events, after=3) == {7: 200}
