"""Several processes of one run: the same as one process, and what happens when one of them meets a fault."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

import seqfit
from seqfit.rundir.notes import RankNotes
from seqfit.rundir.reader import Run
from seqfit.training.snapshot_files import find_snapshots
from tests.processes import ROOT, run_forks, started, wait_until
from tests.training.rank_with_fault import main

Recipe = dict[str, Any]
Ended = list[tuple[int | None, str]]  # exit code and what was printed to stderr, by rank


# Several processes are planned one by one, in time that these runs do not take.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")


@pytest.fixture(scope="module")
def make_recipe(word_rows: Path, tiny_model: Callable[[str], Path]) -> Callable[[], Recipe]:
    return lambda: {
        "model": {"path": str(tiny_model("t5")), "dropout": 0.0},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(word_rows)},
        "train": {"steps": 10, "batch_examples": 16, "learning_rate": 1e-2, "log_every": 1}
        | {"snapshot": {"every_steps": 2}},
        "eval": {"every_steps": 5},
        "strategy": {
            "micro_batch_tokens": 40,
            "telemetry_hz": 0,
        },  # in processes of their own, which a fixture can not reach
    }


@pytest.fixture
def recipe(make_recipe: Callable[[], Recipe]) -> Recipe:
    return make_recipe()


@pytest.fixture(scope="module")
def single(make_recipe: Callable[[], Recipe], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What one process makes of the recipe."""
    return seqfit.train(make_recipe(), out=tmp_path_factory.mktemp("single") / "run")


@pytest.fixture(scope="module")
def stopped(
    make_recipe: Callable[[], Recipe], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, int, Path], Path]:
    """A copy of a run that so many processes have begun, and that a signal to the last of them has stopped."""

    @cache
    def stop(parallel: str, size: int) -> Path:
        recipe = make_recipe()
        recipe["strategy"]["parallel"] = parallel
        place = tmp_path_factory.mktemp("stopped") / "run"
        ended = start_ranks(recipe, place, "signal", size=size)
        assert [code for code, _ in ended] == [75] * size, ended
        assert Run(place).status == "interrupted"
        return place

    return lambda parallel, size, place: Path(shutil.copytree(stop(parallel, size), place))


def start_ranks(
    recipe: Recipe, out: Path, fault: str, *more: str, size: int = 2, own: Mapping[str, str] | None = None
) -> Ended:
    """Forked ranks, of which the last one meets a fault, with variables of their own perhaps."""
    argv = store(recipe, out), str(out), fault, *more
    environments = [environment | (own or {}) for environment in list_environments(size)]
    return run_forks(main, [argv] * size, environments, out.parent)


def store(recipe: Recipe, out: Path) -> str:
    place = out.parent / f"{out.name}.yaml"
    place.write_text(json.dumps(recipe))
    return str(place)


def list_environments(size: int) -> list[dict[str, str]]:
    """As torchrun makes them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    common = os.environ | meeting | {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint / "model.safetensors")


def assert_alike(one: Run, other: Run) -> None:
    """Up to rounding: losses within 1e-4, and the same answers."""
    for left, right in zip(one.steps(), other.steps(), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-4)
        assert left["target_tokens"] == right["target_tokens"]
    for left, right in zip(one.evaluations(), other.evaluations(), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-4)
        assert left["rows"] == right["rows"]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "pipeline"])
def test_two_processes_train_like_one_and_resume_bit_exactly(
    recipe: Recipe, single: Run, stopped: Callable[[str, int, Path], Path], tmp_path: Path, parallel: str
) -> None:
    recipe["strategy"]["parallel"] = parallel
    assert start_ranks(recipe, tmp_path / "two", "none") == [(0, ""), (0, "")]
    two = Run(tmp_path / "two")
    assert two.status == "finished"
    assert_alike(single, two)
    parts = Run(stopped(parallel, 2, tmp_path / "parts"))
    assert start_ranks(recipe, parts.path, "none", "--resume") == [(0, ""), (0, "")]
    assert [record["loss"] for record in parts.steps()] == [record["loss"] for record in two.steps()]
    left, right = weights_of(two), weights_of(parts)
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(
    ("parallel", "before", "after"),
    [("ddp", 2, 3), ("fsdp", 2, 3), ("fsdp", 1, 2), ("fsdp", 2, 1), ("pipeline", 3, 2)],
)
def test_a_snapshot_loads_on_another_number_of_processes(
    recipe: Recipe,
    single: Run,
    stopped: Callable[[str, int, Path], Path],
    tmp_path: Path,
    parallel: str,
    before: int,
    after: int,
) -> None:
    recipe["strategy"]["parallel"] = parallel
    run = Run(stopped(parallel, before, tmp_path / "run"))
    assert start_ranks(recipe, run.path, "none", "--resume", size=after) == [(0, "")] * after
    assert_alike(single, run)
    assert any(f"processes: {before} then, {after} now" in event["message"] for event in run.events())
    assert run.manifest["processes"] == after
    taken = [event["data"] for event in run.events() if event["kind"] == "snapshot"]
    assert taken  # by all processes together or by the first, each is recorded once
    assert len(taken) == len({span["began"] for span in taken})


@pytest.mark.parametrize("parallel", ["fsdp", "pipeline"])
def test_frozen_weights_are_the_same_on_all_ranks(recipe: Recipe, tmp_path: Path, parallel: str) -> None:
    recipe["model"]["freeze"] = ["embeddings"]
    recipe["strategy"]["parallel"] = parallel
    assert [code for code, _ in start_ranks(recipe, tmp_path / "run", "signal")] == [75, 75]
    assert start_ranks(recipe, tmp_path / "run", "none", "--resume") == [(0, ""), (0, "")]


def test_a_disk_that_is_full_for_one_process_ends_all_in_three_parts(recipe: Recipe, tmp_path: Path) -> None:
    recipe["strategy"]["parallel"] = "fsdp"
    ended = start_ranks(recipe, tmp_path / "run", "disk-full")
    assert [code for code, _ in ended] == [3, 3], ended
    assert [(text.count("No space left"), text.count("Make room")) for _, text in ended] == [(1, 1), (1, 1)], ended
    assert Run(tmp_path / "run").status == "failed"
    assert not list((tmp_path / "run" / "snapshots").glob(".*"))


def test_oom_on_one_rank_makes_all_split_into_smaller_micro_batches(
    recipe: Recipe, single: Run, tmp_path: Path
) -> None:
    ended = start_ranks(recipe, tmp_path / "run", "out-of-memory")
    assert [code for code, _ in ended] == [0, 0], ended
    run = Run(tmp_path / "run")
    (event,) = [event for event in run.events() if event["kind"] == "out-of-memory"]
    assert (event["data"]["rank"], event["data"]["step"], event["data"]["action"]) == (1, 5, "retry")
    assert_alike(single, run)


def test_oom_during_a_collective_restarts_all_from_the_snapshot(recipe: Recipe, single: Run, tmp_path: Path) -> None:
    ended = start_ranks(recipe, tmp_path / "run", "out-of-memory-in-collective")
    assert [code for code, _ in ended] == [76, 76]
    assert "during a collective" in ended[1][1]
    assert "another process of this run has exited" in ended[0][1]
    (note,) = RankNotes(tmp_path / "run").read()
    assert note.data["step"] == 5
    assert [code for code, _ in start_ranks(recipe, tmp_path / "run", "none", "--resume")] == [0, 0]
    run = Run(tmp_path / "run")
    assert [event["data"]["step"] for event in run.events() if event["kind"] == "out-of-memory"] == [5]
    assert run.steps()[-1]["micro_batches"] > run.steps()[0]["micro_batches"]
    assert_alike(single, run)


def test_a_non_finite_step_on_one_rank_is_skipped_by_all(recipe: Recipe, tmp_path: Path) -> None:
    recipe["train"]["when_not_finite"] = "skip"
    assert start_ranks(recipe, tmp_path / "run", "not-finite") == [(0, ""), (0, "")]
    run = Run(tmp_path / "run")
    (event,) = [
        event for event in run.events() if event["kind"] == "non-finite" and event["data"]["action"] != "recorded"
    ]
    assert event["data"]["step"] == 5
    losses = [record["loss"] for record in run.steps()]
    assert losses[4] is None
    assert all(loss is not None for loss in losses[5:])


def test_a_rank_that_fails_ends_the_others_at_once(recipe: Recipe, tmp_path: Path) -> None:
    """In processes that come to Python's own end, where a group that was left might wait for its half an hour."""
    command = [sys.executable, "-m", "tests.training.rank_with_fault", store(recipe, tmp_path / "run")]
    command += [str(tmp_path / "run"), "error"]
    settings: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    with ExitStack() as stack:
        first, last = (
            stack.enter_context(started(command, env=environment, **settings)) for environment in list_environments(2)
        )
        printed = [process.communicate(timeout=400)[1] for process in (first, last)]
    assert (first.returncode, last.returncode) == (76, 1)
    assert "the disk of rank 1 is on fire" in printed[1]
    assert len(printed[0].splitlines()) == 1


def launch(recipe: Recipe, out: Path, *more: str) -> AbstractContextManager[subprocess.Popen[str]]:
    argv = ["train", store(recipe, out), "--out", str(out), "--nproc", "2", *more]
    settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return started([sys.executable, "-m", "seqfit", *argv], cwd=ROOT, **settings)


@pytest.mark.journey
def test_nproc_starts_ranks_and_restarts_them_after_a_kill(recipe: Recipe, tmp_path: Path) -> None:
    recipe["train"]["steps"] = 60
    recipe["eval"] = {"every_steps": 60}
    assert start_ranks(recipe, tmp_path / "whole", "none") == [(0, ""), (0, "")]
    draw = random.Random(1)
    with launch(recipe, tmp_path / "broken") as broken:
        wait_for_step(tmp_path / "broken", 5 + draw.randrange(20))
        workers = [child for child in psutil.Process(broken.pid).children(recursive=True) if is_worker(child)]
        assert len(workers) == 2
        draw.choice(workers).kill()
        printed, errors = broken.communicate(timeout=400)
    assert broken.returncode == 0, errors
    assert f"run: {tmp_path / 'broken'}" in printed
    assert printed.count("next: seqfit evaluate") == 1
    left, right = weights_of(Run(tmp_path / "whole")), weights_of(Run(tmp_path / "broken"))
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert any(event["kind"] == "resume" for event in Run(tmp_path / "broken").events())


def is_worker(process: psutil.Process) -> bool:
    return process.cmdline()[1:4] == ["-m", "seqfit", "train"]


def wait_for_step(run: Path, step: int) -> None:
    steps = run / "steps.jsonl"
    wait_until(lambda: steps.is_file() and len(steps.read_text().splitlines()) >= step, f"step {step}")


def test_a_signal_to_the_launcher_leaves_a_snapshot_to_resume_from(recipe: Recipe, tmp_path: Path) -> None:
    recipe["train"] |= {"steps": 400, "snapshot": {"every_steps": None}}
    recipe["eval"] = {"every_steps": 400}
    with launch(recipe, tmp_path / "run") as launched:
        wait_for_step(tmp_path / "run", 5)
        launched.send_signal(signal.SIGTERM)
        _, errors = launched.communicate(timeout=400)
    assert launched.returncode == 75, errors
    assert "--resume" in errors
    assert Run(tmp_path / "run").status == "interrupted"
    assert len(find_snapshots(tmp_path / "run")) == 1


def test_a_refused_start_does_not_become_a_resume(
    recipe: Recipe, stopped: Callable[[str, int, Path], Path], tmp_path: Path
) -> None:
    """Started twice, as --max-restarts does it: a run that started continues, a refused one does not."""
    place = stopped("ddp", 2, tmp_path / "run")
    before = (place / "steps.jsonl").read_text()
    recipe["train"]["steps"] = 7
    launcher = {RankNotes.FAULTS: str(tmp_path / "faults"), "TORCHELASTIC_RUN_ID": "another"}
    for restarts in ("0", "1"):
        own = launcher | {"TORCHELASTIC_RESTART_COUNT": restarts}
        first, _ = start_ranks(recipe, place, "none", own=own)
        assert first[0] == 2
        assert "already exists" in first[1].splitlines()[-1]
    assert (place / "steps.jsonl").read_text() == before


def test_the_error_of_the_rank_that_failed_is_what_is_shown(recipe: Recipe, tmp_path: Path) -> None:
    recipe["train"] |= {"learning_rate": 1e38, "clip_norm": None}
    with launch(recipe, tmp_path / "run", "--max-restarts", "0") as failed:
        _, errors = failed.communicate(timeout=400)
    assert failed.returncode == 3, errors
    assert "Lower train.learning_rate" in errors.splitlines()[-1]
