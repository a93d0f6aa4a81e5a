"""A real limit of the system on the process: the allocator fails, training continues."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seqfit.errors import RecipeError
from seqfit.hardware.process_memory import MemoryLimits
from seqfit.rundir.reader import Run
from seqfit.training import oom as memory_limit
from seqfit.training.oom import limited_memory

Recipe = dict[str, Any]

# A plan would split the micro-batch that has to fail.
pytestmark = pytest.mark.usefixtures("no_prediction")
CPU = torch.device("cpu")


def test_the_limit_holds_inside_the_block_only() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited_memory(64 * 2**30, CPU) as limit_bytes:
        assert limit_bytes is not None
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] == limit_bytes
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_less_than_the_process_has_already_is_refused() -> None:
    with pytest.raises(RecipeError, match="libraries already use"), limited_memory(2**20, CPU):
        pass


def test_a_gpu_has_its_own_limit() -> None:
    with pytest.raises(RecipeError, match="limits the memory of a process that trains on a CPU"):
        limited_memory(2**30, torch.device("cuda")).__enter__()


@pytest.mark.parametrize("sharers", [1, 4])
def test_in_a_container_each_process_gets_its_share_of_the_free_memory(
    sharers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_bytes = 64 * 2**30
    monkeypatch.setattr(memory_limit, "read_limits", lambda: MemoryLimits(left_bytes + 2**30, 2**30))
    monkeypatch.setattr(memory_limit, "_read_used_bytes", lambda: 5 * 2**30)
    with limited_memory(None, CPU, sharers) as limit_bytes:
        assert limit_bytes == 5 * 2**30 + left_bytes // sharers
    with limited_memory(16 * 2**30, CPU, sharers) as limit_bytes:  # a given limit holds for each
        assert limit_bytes == 16 * 2**30


def test_a_run_under_a_real_limit_makes_the_same_losses_in_smaller_micro_batches(
    long_recipe: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(long_recipe))
    free = _train(tmp_path, "free", None)
    grown_bytes = free.manifest["peak_bytes"] - free.manifest["before_resident_bytes"]
    tight = _train(tmp_path, "tight", free.manifest["before_bytes"] + grown_bytes * 7 // 10)
    events = [event for event in tight.events() if event["kind"] == "out-of-memory"]
    assert events
    for left, right in zip(free.steps(), tight.steps(), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-4)


def _train(folder: Path, name: str, limit_bytes: int | None) -> Run:
    """In a process of its own, because limit and heap are the process's."""
    script = """
import json, sys
from pathlib import Path
import seqfit.training.train
def read_bytes(name):
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))
recipe, out, limit = sys.argv[1:]
facts = {"before_bytes": read_bytes("VmData"), "before_resident_bytes": read_bytes("VmRSS")}
seqfit.train(json.loads(Path(recipe).read_text()), out=out, memory_limit_bytes=int(limit) or None)
manifest = Path(out) / "manifest.json"
values = json.loads(manifest.read_text()) | facts | {"peak_bytes": read_bytes("VmHWM")}
manifest.write_text(json.dumps(values))
"""
    place = folder / name
    command = [sys.executable, "-c", script, str(folder / "recipe.json"), str(place), str(limit_bytes or 0)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return Run(place)


@pytest.fixture
def long_recipe(word_recipe: Recipe, tmp_path: Path) -> Recipe:
    """32 rows of 400 tokens with eager attention: all of them in one micro-batch take some hundreds of MiB."""
    folder = tmp_path / "long"
    folder.mkdir()
    for split, rows in (("train", 32), ("validation", 2)):
        lines = [json.dumps({"text": " ".join(["w3", f"w{3 + row % 9}"] * 200), "answer": "w5"}) for row in range(rows)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    word_recipe["data"] = {"path": str(folder)}
    word_recipe["model"]["dropout"] = 0.0
    word_recipe["task"]["max_source_tokens"] = 500
    word_recipe["train"] |= {"steps": 3, "batch_examples": 32, "log_every": 1}
    word_recipe["strategy"] = {"micro_batch_tokens": 100_000, "batching": "padded", "attention": "eager"}
    return word_recipe
