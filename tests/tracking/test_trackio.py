from __future__ import annotations

import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seqfit.tracking.track import export_runs
from seqfit.tracking.tracker import open_tracker
from tests.tracking.records import START

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library and those that it imports
pytest.importorskip("trackio", reason="trackio is not installed; pip install 'seqfit[trackio]' has it")


@pytest.fixture
def export(run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Exports the run and gives the rows of a query."""
    import trackio.sqlite_storage

    monkeypatch.setattr(trackio.sqlite_storage, "TRACKIO_DIR", tmp_path / "trackio")

    def run(query: str) -> list[tuple[Any, ...]]:
        export_runs([run_path], partial(open_tracker, "trackio"), "p")
        with sqlite3.connect(tmp_path / "trackio" / "p.db") as database:
            return database.execute(query).fetchall()

    return run


def test_rows_read_back_have_the_records_steps_and_times(export: Any) -> None:
    rows = [
        (step, at, json.loads(metrics)) for step, at, metrics in export("SELECT step, timestamp, metrics FROM metrics")
    ]
    losses = [(step, at, metrics["train/loss"]) for step, at, metrics in rows if "train/loss" in metrics]
    assert losses == [(10, "2026-02-02T02:40:10+00:00", 0.5), (20, "2026-02-02T02:40:13+00:00", 0.25)]
    assert [(step, metrics) for step, _, metrics in rows if "final/test/f1" in metrics] == [
        (20, {"final/test/f1": 58.5})
    ]
    assert START == 1_770_000_000


def test_events_are_alerts_and_the_config_is_kept(export: Any) -> None:
    assert ("data", "3 rows were truncated", 10) in export("SELECT title, text, step FROM alerts")
    ((config,),) = export("SELECT config FROM configs")
    assert json.loads(config)["recipe.train.steps"] == 20
    assert b"hunter2" not in (config if isinstance(config, bytes) else config.encode())


def test_a_second_export_adds_nothing(export: Any) -> None:
    counts = "SELECT (SELECT COUNT(*) FROM metrics), (SELECT COUNT(*) FROM alerts)"
    assert export(counts) == export(counts) == [(9, 2)]
