"""Several processes of one run: the same as one process, and what happens when one of them meets a fault."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

import seqfit
from seqfit.rundir.notes import read_notes
from seqfit.rundir.run import Run
from seqfit.train.snapshot import find_snapshots

Recipe = dict[str, Any]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def recipe(word_recipe: Recipe) -> Recipe:
    word_recipe["model"]["dropout"] = 0.0
    word_recipe["train"] |= {"steps": 10, "log_every": 1, "snapshot": {"every_steps": 2}}
    word_recipe["eval"] = {"every_steps": 5}
    word_recipe["strategy"] = {"micro_batch_tokens": 40}
    return word_recipe


def start_ranks(recipe: Recipe, out: Path, fault: str, *more: str, size: int = 2) -> list[tuple[int, str]]:
    """Exit code and what was printed to stderr, by rank."""
    place = out.parent / f"{out.name}.json"
    place.write_text(json.dumps(recipe))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    environment |= {"MASTER_PORT": port, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.train.rank_with_fault", str(place), str(out), fault, *more],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(size)
    ]
    try:
        printed = [process.communicate(timeout=120)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    return [(process.returncode, text) for process, text in zip(ranks, printed, strict=True)]


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
def test_two_processes_train_as_one_does_and_resume_to_the_bit(recipe: Recipe, tmp_path: Path, parallel: str) -> None:
    recipe["strategy"]["parallel"] = parallel
    alone = seqfit.train(recipe, out=tmp_path / "alone")
    assert start_ranks(recipe, tmp_path / "two", "none") == [(0, ""), (0, "")]
    two = Run(tmp_path / "two")
    assert two.status == "finished"
    assert_alike(alone, two)
    stopped = start_ranks(recipe, tmp_path / "parts", "signal")
    assert [code for code, _ in stopped] == [75, 75]
    assert Run(tmp_path / "parts").status == "interrupted"
    assert start_ranks(recipe, tmp_path / "parts", "none", "--resume") == [(0, ""), (0, "")]
    parts = Run(tmp_path / "parts")
    assert [record["loss"] for record in parts.steps()] == [record["loss"] for record in two.steps()]
    left, right = weights_of(two), weights_of(parts)
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(
    ("parallel", "before", "after"),
    [("ddp", 2, 3), ("fsdp", 2, 3), ("fsdp", 1, 2), ("fsdp", 2, 1), ("pipeline", 3, 2)],
)
def test_a_snapshot_loads_on_another_number_of_processes(
    recipe: Recipe, tmp_path: Path, parallel: str, before: int, after: int
) -> None:
    recipe["strategy"]["parallel"] = parallel
    alone = seqfit.train(recipe, out=tmp_path / "alone")
    stopped = start_ranks(recipe, tmp_path / "run", "signal", size=before)
    assert [code for code, _ in stopped] == [75] * before, stopped
    resumed = start_ranks(recipe, tmp_path / "run", "none", "--resume", size=after)
    assert resumed == [(0, "")] * after
    run = Run(tmp_path / "run")
    assert_alike(alone, run)
    assert any(f"processes: {before} then, {after} now" in event["message"] for event in run.events())


@pytest.mark.parametrize("parallel", ["fsdp", "pipeline"])
def test_weights_that_do_not_learn_are_the_same_for_all_processes(
    recipe: Recipe, tmp_path: Path, parallel: str
) -> None:
    recipe["model"]["freeze"] = ["embeddings"]
    recipe["strategy"]["parallel"] = parallel
    assert [code for code, _ in start_ranks(recipe, tmp_path / "run", "signal")] == [75, 75]
    assert start_ranks(recipe, tmp_path / "run", "none", "--resume") == [(0, ""), (0, "")]


def test_a_disk_that_is_full_for_one_process_ends_all_in_three_parts(recipe: Recipe, tmp_path: Path) -> None:
    recipe["strategy"]["parallel"] = "fsdp"
    ended = start_ranks(recipe, tmp_path / "run", "disk-full")
    assert [code for code, _ in ended] == [3, 3], ended
    assert all("No space left" in text and "Make room" in text for _, text in ended)
    assert Run(tmp_path / "run").status == "failed"
    assert not list((tmp_path / "run" / "snapshots").glob(".*"))


def test_memory_that_runs_out_in_one_process_makes_all_cut_smaller(recipe: Recipe, tmp_path: Path) -> None:
    alone = seqfit.train(recipe, out=tmp_path / "alone")
    ended = start_ranks(recipe, tmp_path / "run", "out-of-memory")
    assert [code for code, _ in ended] == [0, 0], ended
    run = Run(tmp_path / "run")
    (event,) = [event for event in run.events() if event["kind"] == "out-of-memory"]
    assert event["message"].startswith("rank 1, step 5")
    assert_alike(alone, run)


def test_memory_that_runs_out_in_an_exchange_begins_anew_from_the_snapshot(recipe: Recipe, tmp_path: Path) -> None:
    alone = seqfit.train(recipe, out=tmp_path / "alone")
    ended = start_ranks(recipe, tmp_path / "run", "out-of-memory-in-exchange")
    assert [code for code, _ in ended] == [76, 76]
    assert "in the middle of an exchange" in ended[1][1]
    assert "another process of this run is gone" in ended[0][1]
    (note,) = read_notes(tmp_path / "run")
    assert note["data"]["step"] == 5
    assert [code for code, _ in start_ranks(recipe, tmp_path / "run", "none", "--resume")] == [0, 0]
    run = Run(tmp_path / "run")
    assert [event["data"]["step"] for event in run.events() if event["kind"] == "out-of-memory"] == [5]
    assert run.steps()[-1]["micro_batches"] > run.steps()[0]["micro_batches"]
    assert_alike(alone, run)


def test_a_number_that_is_none_in_one_process_is_skipped_by_all(recipe: Recipe, tmp_path: Path) -> None:
    recipe["train"]["when_not_finite"] = "skip"
    assert start_ranks(recipe, tmp_path / "run", "not-finite") == [(0, ""), (0, "")]
    run = Run(tmp_path / "run")
    (event,) = [event for event in run.events() if event["kind"] == "not-finite" and "step" in event["data"]]
    assert event["data"]["step"] == 5
    losses = [record["loss"] for record in run.steps()]
    assert losses[4] is None
    assert all(loss is not None for loss in losses[5:])


def test_a_rank_that_fails_ends_the_others_at_once(recipe: Recipe, tmp_path: Path) -> None:
    started = time.monotonic()
    first, last = start_ranks(recipe, tmp_path / "run", "error")
    assert time.monotonic() - started < 30
    assert (first[0], last[0]) == (76, 1)
    assert "the disk of rank 1 is on fire" in last[1]
    assert len(first[1].splitlines()) == 1


def launch(recipe: Recipe, out: Path, *more: str) -> subprocess.Popen[str]:
    place = out.parent / f"{out.name}.json"
    place.write_text(json.dumps(recipe))
    command = [sys.executable, "-m", "seqfit", "train", str(place), "--out", str(out), "--nproc", "2", *more]
    settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **settings)


def test_nproc_starts_them_and_a_killed_one_is_started_again(recipe: Recipe, tmp_path: Path) -> None:
    recipe["train"]["steps"] = 60
    recipe["eval"] = {"every_steps": 60}
    whole = launch(recipe, tmp_path / "whole")
    printed, errors = whole.communicate(timeout=120)
    assert whole.returncode == 0, errors
    assert f"run: {tmp_path / 'whole'}" in printed
    assert printed.count("next: seqfit evaluate") == 1
    draw = random.Random(1)
    broken = launch(recipe, tmp_path / "broken")
    wait_for_step(tmp_path / "broken", 5 + draw.randrange(20))
    workers = [child for child in psutil.Process(broken.pid).children(recursive=True) if is_worker(child)]
    assert len(workers) == 2
    draw.choice(workers).kill()
    _, errors = broken.communicate(timeout=120)
    assert broken.returncode == 0, errors
    left, right = weights_of(Run(tmp_path / "whole")), weights_of(Run(tmp_path / "broken"))
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert any(event["kind"] == "resume" for event in Run(tmp_path / "broken").events())


def is_worker(process: psutil.Process) -> bool:
    return process.cmdline()[1:4] == ["-m", "seqfit", "train"]


def wait_for_step(run: Path, step: int) -> None:
    for _ in range(600):
        if (run / "steps.jsonl").is_file() and len((run / "steps.jsonl").read_text().splitlines()) >= step:
            return
        time.sleep(0.1)
    raise AssertionError(f"no step {step} within a minute")


def test_a_signal_to_the_launcher_leaves_a_snapshot_to_go_on_from(recipe: Recipe, tmp_path: Path) -> None:
    recipe["train"] |= {"steps": 400, "snapshot": {"every_steps": None}}
    recipe["eval"] = {"every_steps": 400}
    started = launch(recipe, tmp_path / "run")
    wait_for_step(tmp_path / "run", 5)
    started.send_signal(signal.SIGTERM)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 75, errors
    assert "--resume" in errors
    assert Run(tmp_path / "run").status == "interrupted"
    assert len(find_snapshots(tmp_path / "run")) == 1


def test_a_refused_start_does_not_become_a_resume(recipe: Recipe, tmp_path: Path) -> None:
    assert [code for code, _ in start_ranks(recipe, tmp_path / "run", "signal")] == [75, 75]
    before = (tmp_path / "run" / "steps.jsonl").read_text()
    recipe["train"]["steps"] = 7
    refused = launch(recipe, tmp_path / "run")
    _, errors = refused.communicate(timeout=60)
    assert refused.returncode == 2, errors
    assert "already exists" in errors.splitlines()[-1]
    assert (tmp_path / "run" / "steps.jsonl").read_text() == before


def test_the_error_of_the_rank_that_failed_is_what_is_shown(recipe: Recipe, tmp_path: Path) -> None:
    recipe["train"] |= {"learning_rate": 1e38, "clip_norm": None}
    failed = launch(recipe, tmp_path / "run", "--max-restarts", "1")
    started = time.monotonic()
    _, errors = failed.communicate(timeout=60)
    assert time.monotonic() - started < 45
    assert failed.returncode == 3, errors
    assert "Lower train.learning_rate" in errors.splitlines()[-1]
