from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from seqfit.reporting.html import Html, element
from seqfit.reporting.live import LivePage
from seqfit.rundir import RunWriter, files


def append_step(run: Path) -> None:
    last = json.loads((run / files.STEPS).read_text("utf-8").splitlines()[-1])
    with open(run / files.STEPS, "a", encoding="utf-8") as stream:
        stream.write(json.dumps({**last, "step": last["step"] + 2}) + "\n")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The runs that pages were built of, by name; the pages themselves are short."""
    asked: list[list[str]] = []

    def build(paths: Sequence[Path]) -> tuple[str, list[Html]]:
        asked.append([path.name for path in paths])
        json.loads((paths[0] / files.MANIFEST).read_text("utf-8"))
        return "title", [element("p", f"build {len(asked)}")]

    monkeypatch.setattr("seqfit.reporting.live.build_parts", build)
    return asked


def test_the_version_changes_with_a_record_and_with_nothing_else(run_path: Path) -> None:
    page = LivePage([run_path])
    first = page.look()
    (run_path / files.SUMMARY).write_text("a page", "utf-8")
    (run_path / files.CHECKPOINT).mkdir()
    (run_path / files.CHECKPOINT / "config.json").write_text("{}", "utf-8")
    assert page.look() == first
    append_step(run_path)
    assert page.look() != first


def test_a_run_whose_process_has_gone_is_noticed(run_path: Path) -> None:
    writer = RunWriter.reopen(run_path)
    page = LivePage([run_path])
    first = page.look()
    writer.close()
    assert page.look() != first


def test_a_page_is_built_once_for_all_who_ask(run_path: Path, built: list[list[str]]) -> None:
    page = LivePage([run_path])
    first = page.build()
    assert page.build() is first
    append_step(run_path)
    assert page.build().version != first.version
    assert len(built) == 2


def test_runs_that_start_later_are_shown(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    folder = tmp_path / "runs"
    page = LivePage([folder])
    assert "holds no run yet" in "".join(page.build().parts)
    make_run(folder / "first")
    assert page.build().title == "first · seqfit"
    make_run(folder / "second")
    assert page.build().title == "2 runs · seqfit"


def test_a_run_that_vanishes_is_waited_for(run_path: Path) -> None:
    page = LivePage([run_path])
    page.build()
    shutil.rmtree(run_path)
    assert "holds no run yet" in "".join(page.build().parts)


def test_what_is_half_written_leaves_the_last_page_under_a_note(run_path: Path, built: list[list[str]]) -> None:
    page = LivePage([run_path])
    page.build()
    whole = (run_path / files.MANIFEST).read_text("utf-8")
    for truncated in (whole[:50], whole[:60]):
        (run_path / files.MANIFEST).write_text(truncated, "utf-8")
        parts = page.build().parts
        assert parts[1] == "<p>build 1</p>"
        assert [part.count("Not up to date") for part in parts] == [1, 0]
    (run_path / files.MANIFEST).write_text(whole, "utf-8")
    assert [part for part in page.build().parts if "Not up to date" in part] == []


def test_the_runs_of_a_comparison_are_looked_at(comparison_path: Path) -> None:
    page = LivePage([comparison_path.parent])
    first = page.look()
    append_step(next((comparison_path / "runs").iterdir()))
    assert page.look() != first
