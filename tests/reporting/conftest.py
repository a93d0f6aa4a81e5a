"""A small run directory, written by the writer that training uses, a small data report, and a browser."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from seqfit.comparison.records import (
    TRIAL_RUNS,
    Candidate,
    CandidateResult,
    Comparison,
    FairnessCheck,
    Figure,
    Matrix,
    Prediction,
    Trial,
    dump_matrix,
    dump_results,
)
from seqfit.errors import SeqfitError
from seqfit.inspection.report import (
    DataReport,
    Duplicates,
    ExampleView,
    LostCharacter,
    Overlap,
    RoundTrip,
    SplitReport,
    Token,
    TokenCount,
    TokenUse,
    TokenView,
)
from seqfit.inspection.statistics import measure_padding, summarise_lengths
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.reporting.export_figures import find_browser
from seqfit.rundir import RunWriter, files
from seqfit.rundir.records import EvaluationRecord, GpuReading, HostReading, StepRecord, TelemetryRecord
from tests.switched_off import prediction_off

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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


def write_run(path: Path) -> Path:
    """A finished run of 400 steps with five evaluations and one evaluated split."""
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
    writer.event("data", "12 of 5,267 train rows were truncated at 512 tokens")
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


@pytest.fixture(scope="session")
def make_run() -> Callable[[Path], Path]:
    """Writes the run of `run_path` to a place of the test's own."""
    return write_run


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return write_run(tmp_path / "mt5-squad-es-20260202")


Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="session")
def edit_lines() -> Callable[[Path, str, Change], None]:
    """Writes a record file of a run again, each record changed."""

    def edit(run: Path, name: str, change: Change) -> None:
        lines = [json.loads(line) for line in (run / name).read_text("utf-8").splitlines()]
        (run / name).write_text("".join(json.dumps(change(line)) + "\n" for line in lines), "utf-8")

    return edit


@pytest.fixture(scope="session")
def edit_manifest() -> Callable[..., None]:
    """Sets entries of a run's manifest."""

    def edit(run: Path, **entries: Any) -> None:
        manifest = json.loads((run / files.MANIFEST).read_text("utf-8"))
        (run / files.MANIFEST).write_text(json.dumps(manifest | entries), "utf-8")

    return edit


@pytest.fixture(scope="session")
def add_telemetry() -> Callable[..., None]:
    """Samples of five seconds in the middle of the run: a host, and up to two GPUs of which the first works."""

    def add(run: Path, gpus: list[dict[str, Any]], absent: dict[str, str]) -> None:
        host = HostReading([0.5, 0.1], 1.0, 1, 0.6, 2**30, 2**30, None, None, None, None)
        busy = GpuReading(0, 0.9, 0.5, 17 * 2**30, 84, 340.0, 3_600.0, throttle_reasons=["power_cap"])
        readings = [busy, GpuReading(1, 0.0, memory_bytes=2**20)][: len(gpus)]
        samples = [TelemetryRecord(START + 60 + second, host, readings, 0.01 * second) for second in range(5)]
        (run / files.TELEMETRY).write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in samples))
        (run / files.SENSORS).write_text(json.dumps({"hz": 1, "gpus": gpus, "absent": absent}))

    return add


@pytest.fixture
def comparison_path(tmp_path: Path, edit_lines: Callable[[Path, str, Change], None]) -> Path:
    """Three candidates with two seeds each; ddp2 is predicted only, and recompute is slower and smaller."""
    folder = tmp_path / "comparisons" / "squad-es"
    candidates = (
        Candidate("baseline", (), "baseline"),
        Candidate("recompute", ("strategy.recompute=blocks",), "lossless"),
        Candidate("bf16", ("strategy.precision=bf16",), "lossy", why="<bf16> rounds"),
        Candidate("ddp2", ("strategy.parallel=ddp",), "lossless", processes=2, unavailable="one core is here"),
    )
    matrix = Matrix("squad-es", _recipe_text(), candidates, (0, 1), 1, 400, 2, targets=("v100",))
    for candidate, slower in (("baseline", 1.0), ("recompute", 1.25), ("bf16", 0.8)):
        for seed in matrix.seeds:
            run = write_run(folder / TRIAL_RUNS / Trial(candidate, seed, 0).folder)
            edit_lines(run, files.STEPS, lambda line, s=slower: line | {"step_seconds": s * line["step_seconds"]})
    dump_matrix(matrix, folder, command="seqfit compare squad-es --strategies baseline,recompute,bf16,ddp2")
    dump_results(_build_comparison(matrix, folder), folder)
    return folder


def _build_comparison(matrix: Matrix, folder: Path) -> Comparison:
    def figures(step: float, rate: float, size: float, score: float, noise: bool | None) -> dict[str, Figure]:
        is_baseline = noise is None

        def figure(mean: float, baseline: float, within: bool) -> Figure:
            change = None if is_baseline else mean / baseline - 1
            return Figure((mean, mean), mean, 0.01 * mean, change, is_significant=None if is_baseline else not within)

        return {
            "step_seconds": figure(step, 1.9, False),
            "tokens_per_second": figure(rate, 4_100, False),
            "resident_bytes": figure(size, 3.2e9, False),
            "f1": figure(score, 67.9, True),
        }

    measured = {
        "baseline": figures(1.9, 4_100, 3.2e9, 67.9, None),
        "recompute": figures(2.4, 3_300, 2.1e9, 67.9, False),
        "bf16": figures(1.5, 5_200, 2.6e9, 67.7, False),
    }

    def predict(candidate: Candidate, number: int) -> tuple[Prediction, ...]:
        card = "Tesla V100" if candidate.processes == 1 else "2 x Tesla V100"
        tensors = int(2e9 - 1e8 * number)
        parts = {"weights": int(6e8), "activations": tensors - int(6e8)}
        here = Prediction(candidate.name, "this machine", tensors, 2.0, 4_000.0, True, parts=parts)
        shown = {} if candidate.processes > 1 else parts
        there = Prediction(
            candidate.name, card, tensors + int(1e9), 0.1, 80_000.0 * (1 + number / 4), True, parts=shown
        )
        return (here, there) if not candidate.unavailable else (there,)

    results = tuple(
        CandidateResult(
            candidate,
            "not_available" if candidate.unavailable else "finished",
            candidate.unavailable,
            0 if candidate.unavailable else 2,
            measured.get(candidate.name, {}),
            predict(candidate, number),
        )
        for number, candidate in enumerate(matrix.candidates)
    )
    checks = (
        FairnessCheck("same data order", True, "400 steps of 2 seeds"),
        FairnessCheck("same versions", True, "torch 2.13.0"),
    )
    verdict = "recompute takes 34% less memory for 26% more time."
    machine = {"absent": {"gpu_busy_share": "no driver <library>"}}
    command = "seqfit compare squad-es --strategies baseline,recompute,bf16,ddp2"
    return Comparison("squad-es", str(folder), command, machine, matrix, checks, results, verdict)


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[[str], Path]) -> Path:
    """A real run of twelve steps with evaluations, snapshots and telemetry; tests copy it before they spoil it."""
    from seqfit.training.train import train

    rows = tmp_path_factory.mktemp("rows")
    for split, count in (("train", 48), ("validation", 8)):
        lines = [
            {"text": f"w{3 + n % 9} w{3 + n % 7} w{3 + n % 5}"[: 5 + n % 5], "answer": f"w{3 + n % 7}"}
            for n in range(count)
        ]
        (rows / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recipe = {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(rows)},
        "train": {"steps": 12, "batch_examples": 8, "log_every": 2, "snapshot": {"every_steps": 4}},
        "eval": {"every_steps": 4, "at_start": True},
        "strategy": {"telemetry_hz": 20.0, "threads": 1},
    }
    with prediction_off():  # pages about predictions have made-up ones
        return train(recipe, out=tmp_path_factory.mktemp("runs") / "words").path


@pytest.fixture
def real_run(trained_run: Path, tmp_path: Path) -> Path:
    """A copy that may be corrupted."""
    return Path(shutil.copytree(trained_run, tmp_path / "words"))


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
        repeats=Duplicates(2, 1, hostile),
        examples=(example,),
    )
    overlap = Overlap("validation", 3, 5, 40, hostile)
    findings = ("the tokenizer loses 'ñ' in 80.0% of the train rows",)
    return DataReport("questions", ("squad", "<own>"), "t5", (train,), (overlap,), (), findings)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser, for a look at what the scripts of a page do."""
    try:
        return find_browser()
    except SeqfitError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")  # not longer: tests that run an event loop of their own can't while it is there
def browser(chromium: str) -> Iterator[Browser]:
    """One for all tests of a file: it takes a second to start."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; the extra test has it")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium)
        yield found
        found.close()


@dataclass
class Tab:
    """A page in a browser, and all that it asked for, said and wanted to show."""

    page: Page
    asked: list[str]
    said: list[str]


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Opens an address in a browser without a network; options are those of a context, such as viewport."""
    contexts = []

    def open_in_tab(address: str, **options: object) -> Tab:
        context = browser.new_context(**options)
        contexts.append(context)
        tab = Tab(context.new_page(), [], [])
        context.set_default_timeout(240_000)  # the pages are large, and other tests may need the core
        is_file = address.startswith("file:")
        context.set_offline(is_file)
        context.route("**", lambda route: route.abort())
        context.route(address if is_file else f"{address}**", lambda route: route.continue_())
        tab.page.on("request", lambda request: tab.asked.append(request.url))
        tab.page.on("console", lambda message: tab.said.append(f"{message.type}: {message.text}"))
        tab.page.on("pageerror", lambda error: tab.said.append(f"error: {error}"))
        tab.page.on("dialog", lambda dialog: (tab.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.page.goto(address)
        _wait_until_drawn(tab.page)
        return tab

    yield open_in_tab
    for context in contexts:
        context.close()


def _wait_until_drawn(page: Page) -> None:
    from playwright.sync_api import expect

    expect(page.locator(".plot:not([data-drawn])")).to_have_count(0, timeout=240_000)


@pytest.fixture
def open_page(chromium: str, tmp_path: Path) -> Callable[[Path], str]:
    """The document of a page after its scripts ran."""

    def open_in_browser(page: Path) -> str:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
        options += ["--virtual-time-budget=20000", "--dump-dom", page.resolve().as_uri()]
        return subprocess.run([chromium, *options], capture_output=True, text=True, check=True, timeout=400).stdout

    return open_in_browser
