"""A small run directory, written by the writer that training uses, a small data report, and a browser."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seqfit.data.data_report import (
    DataReport,
    ExampleView,
    LostCharacter,
    Overlap,
    Repeats,
    RoundTrip,
    SplitReport,
    Token,
    TokenCount,
    TokenUse,
    TokenView,
)
from seqfit.data.lengths import measure_padding, summarise_lengths
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.rundir import EvaluationRecord, RunWriter, StepRecord, files

START = 1_770_000_000.0


def _recipe_text() -> str:
    recipe = load_recipe(
        {
            "description": "Short answers to questions about a text, in Spanish",
            "model": {"name": "google/mt5-small"},
            "task": {"name": "qa", "source": "{question} {context}", "target": "{answer}", "language": "es"},
            "data": {"hub": "squad_es", "hub_config": "v1.1.0"},
            "train": {"steps": 400, "batch_examples": 32},
        }
    )
    return dump_recipe(recipe)


def _step(step: int) -> StepRecord:
    loss = 0.4 + 9 * math.exp(-step / 60) + 0.15 * math.sin(step * 1.7)
    return StepRecord(
        step=step,
        epoch=step / 165,
        loss=loss,
        learning_rate=3e-4 * min(1, step / 40) * (1 - step / 420),
        gradient_norm=1 + loss / 3,
        examples=32,
        source_tokens=7_800 + 40 * (step % 7),
        target_tokens=170,
        padded_tokens=900,
        micro_batches=2,
        step_seconds=1.9,
        tokens_per_second=4_100 + 90 * math.sin(step),
        memory_bytes=3_200_000_000 + 400_000 * step,
        time=START + 2 * step,
    )


def _evaluation(step: int) -> EvaluationRecord:
    share = 1 - math.exp(-step / 120)
    scores = {"f1": 3 + 68 * share, "em": 0.5 + 55 * share}
    return EvaluationRecord(step, "validation", 9.6 - 8.7 * share, scores, 660, 21.5, START + 2 * step)


def _predictions() -> list[dict[str, object]]:
    plain = [
        {
            "id": f"q{number}",
            "source": f"¿Cuál es la capital del país {number}? " + "El texto cuenta su historia con todo detalle. " * 8,
            "prediction": f"Ciudad {number}" if number % 3 else "otra ciudad",
            "references": [f"Ciudad {number}", f"la Ciudad {number}"],
        }
        for number in range(60)
    ]
    hostile = {
        "id": "x",
        "source": "<script>alert('source')</script>",
        "prediction": "<script>alert('prediction')</script>",
        "references": ["</script><b>bold</b>"],
    }
    return [hostile, *plain]


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """A finished run of 400 steps with five evaluations and one evaluated split."""
    path = tmp_path / "mt5-squad-es-20260202"
    writer = RunWriter.create(path)
    writer.write_text(files.RECIPE, _recipe_text())
    writer.write_text(files.STRATEGY, "name: default\nprecision: fp32\n")
    writer.write_manifest(
        status="finished",
        started=START,
        command="seqfit train mt5-squad-es",
        versions={"python": "3.11.9", "torch": "2.13.0", "transformers": "5.22.2"},
        hardware={"device": "cpu", "name": "8-core processor", "cores": 8, "memory_bytes": 16 * 1024**3},
        precision="fp32",
        parameters=300_176_768,
        commit=None,
        data={"fingerprint": "5f0c", "rows": {"train": 5_267, "validation": 660, "test": 656}},
    )
    for step in range(2, 401, 2):
        writer.step(_step(step))
    for step in range(0, 401, 80):
        writer.evaluation(_evaluation(step))
    writer.event("precision", "fp32: this processor has no fast bf16")
    writer.event("data", "12 of 5,267 train rows were cut at 512 tokens")
    writer.close()
    evaluation = {
        "checkpoint": "checkpoint",
        "split": "test",
        "step": 400,
        "metrics": {"em": 52.4, "f1": 67.9},
        "signatures": {"squad": "squad|normalisation:es"},
        "absent": {},
        "by_source": {},
        "predictions": _predictions(),
    }
    (path / files.evaluation("test")).write_text(json.dumps(evaluation), "utf-8")
    return path


@pytest.fixture
def data_report() -> DataReport:
    """One split with a limit, a lost character and hostile texts."""
    lengths = np.append(np.arange(1, 200), 900)
    hostile = "<script>alert('row')</script>"
    tokens = TokenView((Token("▁a", 3, False), Token("<unk>", 2, True)), 12, (Token("</s>", 1, True),))
    example = ExampleView("q1", hostile, "answer & more", tokens, tokens)
    train = SplitReport(
        name="train",
        rows=200,
        rows_by_source={"squad": 150, "<own>": 50},
        source=summarise_lengths(lengths, 150),
        target=summarise_lengths(lengths // 10 + 1, None),
        tokens=TokenUse(40_000, 32_100, 20_000, 7, (TokenCount("▁de", 269, 900), TokenCount("<unk>", 2, 7))),
        padding=tuple(measure_padding(lengths, lengths // 10 + 1, 16, (900, 91), seed=0)),
        batch_examples=16,
        round_trip=RoundTrip(200, 0.8, False, (LostCharacter("ñ", "LATIN SMALL LETTER N WITH TILDE", 300, 0.8),)),
        repeats=Repeats(2, 1, hostile),
        examples=(example,),
    )
    overlap = Overlap("validation", 3, 5, 40, hostile)
    findings = ("the tokenizer loses 'ñ' in 80.0% of the train rows",)
    return DataReport("questions", ("squad", "<own>"), "t5", (train,), (overlap,), (), findings)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser, for a look at what the scripts of a page do."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.skip("no chromium here to open the page with")
    return found


@pytest.fixture
def open_page(chromium: str, tmp_path: Path) -> Callable[[Path], str]:
    """The document of a page after its scripts ran."""

    def open_in_browser(page: Path) -> str:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
        options += ["--virtual-time-budget=20000", "--dump-dom", page.resolve().as_uri()]
        return subprocess.run([chromium, *options], capture_output=True, text=True, check=True, timeout=120).stdout

    return open_in_browser
