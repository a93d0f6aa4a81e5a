"""The profile of `traces.py` as files: a Chrome trace, and an Nsight database."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.profiling.traces import CALLS, COPY, KERNELS, Event, gpu_events


@pytest.fixture
def write_kineto(tmp_path: Path) -> Callable[..., Path]:
    """Events -> a Chrome trace file, compressed where its name ends in .gz."""

    def write(events: list[Event], name: str = "trace.json") -> Path:
        text = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events, "traceName": "x"})
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


@pytest.fixture
def nsight_file(tmp_path: Path) -> Path:
    """The same events as nsys exports them: names in StringIds, nanoseconds, a version behind a call's name."""
    path = tmp_path / "report.sqlite"
    names = ["cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020", "cudaMemcpyAsync_v3020", "gemm", "softmax"]
    numbers = {name.split("_v")[0]: number for number, name in enumerate(names, 1)}
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
                globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER,
                dstKind INTEGER);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
                globalTid INTEGER);
        """)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names, 1))
        for name, start, length, correlation in CALLS:
            row = (start * 1000, (start + length) * 1000, 0, 7, correlation, numbers[name], 0, None)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        for name, start, length, correlation in KERNELS:
            kernel = (start * 1000, (start + length) * 1000, 0, 1, 7, correlation, 1, numbers[name], numbers[name])
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", kernel)
        copy = (COPY[1] * 1000, (COPY[1] + COPY[2]) * 1000, 0, 7, COPY[3], 1, 4096, 1, 0, 2)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", copy)
        ranges = [(0, 30_000, 59, "encoder", None, 7), (85_000, 120_000, 59, None, 5, 7), (1, None, 34, "a", None, 7)]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", ranges)
    database.close()
    return path


@pytest.fixture
def both(write_kineto: Callable[..., Path], nsight_file: Path) -> dict[str, Path]:
    """The same profile in both formats."""
    return {"kineto": write_kineto(gpu_events()), "nsight": nsight_file}


@pytest.fixture(scope="session")
def word_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of a few words, whose answer is the second one."""
    folder = tmp_path_factory.mktemp("profile-rows")
    draw = random.Random(0)
    for split, rows in (("train", 64), ("validation", 8)):
        texts = [[f"w{draw.randrange(3, 12)}" for _ in range(draw.randrange(2, 9))] for _ in range(rows)]
        lines = [json.dumps({"text": " ".join(words), "answer": words[1]}) for words in texts]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def word_recipe(word_rows: Path, tiny_model: Callable[[str], Path]) -> dict[str, Any]:
    """A recipe whose steps take milliseconds; it is the same for all, and nobody changes it."""
    return {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(word_rows)},
        "train": {"steps": 12, "batch_examples": 8},
        "strategy": {"name": "default"},
    }


@pytest.fixture(scope="session")
def build_word_job(word_recipe: dict[str, Any]) -> Callable[..., Any]:
    """Overrides -> the job that `seqfit train` would run."""

    def build(*overrides: str) -> Any:
        from seqfit.recipe.load import load_recipe
        from seqfit.training.setup import build_setup, resolve_recipe
        from seqfit.training.view import SilentView

        return build_setup(resolve_recipe(load_recipe(word_recipe, overrides)), SilentView())[0]

    return build
