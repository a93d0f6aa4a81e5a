"""A real finished run, damaged in many ways: each page is built, and names what is missing."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.reporting.page import build_parts
from seqfit.rundir import files

VALUES: list[Any] = [None, True, -1, 2**70, 1e308, "", "<script>alert(1)", "\ud800", [], [[1]], {}, {"x": {}}]
RECORDS = (files.STEPS, files.EVALUATIONS, files.EVENTS, files.TELEMETRY)


def page_of(*paths: Path) -> str:
    return "\n".join(build_parts(list(paths))[1])


def gaps_of(page: str) -> str:
    return page.split("What is missing")[1].split("</section>")[0] if "What is missing" in page else ""


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text("utf-8")))), "utf-8")


def test_a_complete_run_has_no_gap_and_every_section(real_run: Path) -> None:
    page = page_of(real_run)
    assert gaps_of(page) == ""
    assert "Not shown" not in page
    for part in ("Overview", "Training", "Memory", "Where the time went", "Telemetry", "Scores", "Data", "Events"):
        assert f"<h2>{part}</h2>" in page
    assert "shaded: evaluation, snapshot" in page
    assert 'data-name="lengths-train-source"' in page


@pytest.mark.parametrize("name", RECORDS)
def test_a_truncated_last_line_is_named(name: str, real_run: Path) -> None:
    content = (real_run / name).read_bytes()
    (real_run / name).write_bytes(content[:-20])
    page = page_of(real_run)
    assert f"The last line of {name} is truncated" in gaps_of(page)
    assert "Not shown" not in page


@pytest.mark.parametrize("name", RECORDS)
def test_corrupted_lines_in_the_middle_are_named_and_the_rest_is_shown(name: str, real_run: Path) -> None:
    first, *others = (real_run / name).read_bytes().splitlines(keepends=True)
    damage = b'#####\n[]\n"text"\n{}\n\xff\xfe\n{"step": null}\n'
    (real_run / name).write_bytes(first + damage + b"".join(others))
    page = page_of(real_run)
    assert f"6 lines of {name} are corrupted and skipped, the first is line 2" in gaps_of(page)
    assert "Not shown" not in page


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (files.STEPS, "No step is recorded"),
        (files.EVALUATIONS, "No evaluation is recorded"),
        (files.TELEMETRY, "No telemetry: telemetry.jsonl is missing"),
        (files.RECIPE, "recipe.yaml is missing or can&#x27;t be read"),
        (files.STRATEGY, "strategy.yaml is missing or can&#x27;t be read"),
    ],
)
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_file_that_is_gone_or_empty_is_named(name: str, said: str, how: str, real_run: Path) -> None:
    if how == "gone":
        (real_run / name).unlink()
    else:
        (real_run / name).write_bytes(b"")
    page = page_of(real_run)
    assert said in gaps_of(page)
    assert "Not shown" not in page


@pytest.mark.parametrize("name", [files.EVENTS, files.SENSORS, files.LOCK])
def test_other_files_may_be_gone(name: str, real_run: Path) -> None:
    (real_run / name).unlink()
    assert "Not shown" not in page_of(real_run)


def test_a_run_that_died_is_distinguished_from_one_that_runs(real_run: Path) -> None:
    rewrite(real_run / files.MANIFEST, lambda manifest: manifest | {"status": "running"})
    page = page_of(real_run)
    assert '<span class="badge bad">died</span>' in page
    assert '<p class="verdict">Died at step 12' in page
    assert "no process writes the run" in gaps_of(page)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff"])
def test_a_manifest_that_can_not_be_read_is_named(content: bytes, real_run: Path) -> None:
    (real_run / files.MANIFEST).write_bytes(content)
    assert "manifest.json" in gaps_of(page_of(real_run))


@pytest.mark.parametrize("seed", range(10))
def test_strange_values_anywhere_make_a_page(seed: int, real_run: Path) -> None:
    draw = random.Random(seed)

    def spoil(record: dict[str, Any]) -> dict[str, Any]:
        return {name: draw.choice(VALUES) if draw.random() < 0.2 else value for name, value in record.items()}

    rewrite(real_run / files.MANIFEST, spoil)
    for name in RECORDS:
        lines = [json.loads(line) for line in (real_run / name).read_text("utf-8").splitlines()]
        (real_run / name).write_text("".join(json.dumps(spoil(line)) + "\n" for line in lines), "utf-8")
    page = page_of(real_run)
    assert "seqfit run" in page
    assert "How to reproduce" in page
    assert "<script>alert" not in page


def test_half_of_a_run_is_shown_as_far_as_it_is(real_run: Path) -> None:
    """As a kill leaves it before its first evaluation."""
    for name in RECORDS:
        lines = (real_run / name).read_bytes().splitlines(keepends=True)
        (real_run / name).write_bytes(b"".join(lines[:2]))
    shutil.rmtree(real_run / files.CHECKPOINT)
    rewrite(real_run / files.MANIFEST, lambda found: {key: found[key] for key in ("status", "started", "hardware")})
    assert "Not shown" not in page_of(real_run)


def test_a_file_that_may_not_be_read_is_named(real_run: Path) -> None:
    (real_run / files.STEPS).unlink()
    (real_run / files.STEPS).mkdir()
    assert "steps.jsonl can&#x27;t be read" in gaps_of(page_of(real_run))


def test_a_run_that_vanishes_leaves_a_page(real_run: Path) -> None:
    shutil.rmtree(real_run)
    assert "holds no run yet" in page_of(real_run)


def test_corruption_of_one_run_is_reported_with_its_name(real_run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(real_run, tmp_path / "other"))
    os.truncate(other / files.STEPS, (other / files.STEPS).stat().st_size - 5)
    (other / files.TELEMETRY).unlink()
    gaps = gaps_of(page_of(real_run, other))
    assert "<li>other: the last line of steps.jsonl is truncated" in gaps
    assert "<li>other: no telemetry" in gaps
