from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import seqfit
from seqfit.rundir.reader import Run
from seqfit.rundir.records import EventRecord
from seqfit.training import snapshots as module
from seqfit.training.snapshot_files import SnapshotWriter
from seqfit.training.view import SilentView

Recipe = dict[str, Any]

# Snapshots are the same without them, and each takes longer than these runs.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")


class Heard(SilentView):
    """The kinds of events that a user sees."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def event(self, record: EventRecord) -> None:
        self.kinds.append(record.kind)


def with_snapshots(recipe: Recipe) -> Recipe:
    """After steps 4, 8 and 12, and with the best evaluation, of step 6 or 12."""
    return recipe | {"train": recipe["train"] | {"snapshot": {"every_steps": 4}}}


def spans_of(run: Run) -> list[dict[str, Any]]:
    return [event["data"] for event in run.events() if event["kind"] == "snapshot"]


def test_every_snapshot_is_recorded_with_start_and_end(word_recipe: Recipe, tmp_path: Path) -> None:
    heard = Heard()
    run = seqfit.train(with_snapshots(word_recipe), out=tmp_path / "run", view=heard)
    spans = spans_of(run)
    assert {4, 8, 12} <= {span["step"] for span in spans}
    moments = [moment for span in spans for moment in (span["began"], span["ended"])]
    assert moments == sorted(moments)
    assert run.manifest["started"] < moments[0]
    assert moments[-1] < run.manifest["ended"]
    waited = sum(span["waited_seconds"] for span in spans)
    assert waited == pytest.approx(run.manifest["phase_seconds"]["snapshot"], rel=0.1, abs=0.01)
    assert "snapshot" not in heard.kinds


def test_those_in_the_background_are_recorded_too(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_background(run: Path, *, keep: int, in_background: bool) -> SnapshotWriter:
        return SnapshotWriter(run, keep=keep, in_background=True)

    monkeypatch.setattr(module, "SnapshotWriter", in_background)
    run = seqfit.train(with_snapshots(word_recipe), out=tmp_path / "run")
    spans = spans_of(run)
    assert {4, 8, 12} <= {span["step"] for span in spans}
    assert all(span["waited_seconds"] < span["ended"] - span["began"] for span in spans)
    assert all(before["ended"] <= after["began"] + after["waited_seconds"] for before, after in pairwise(spans))
