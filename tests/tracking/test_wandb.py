from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seqfit.tracking.track import export_runs
from seqfit.tracking.tracker import open_tracker
from tests.tracking.records import START

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library and those that it imports
pytest.importorskip("wandb", reason="wandb is not installed; pip install 'seqfit[wandb]' has it")
_BLOCK_BYTES, _HEADER_BYTES = 32768, 7


@pytest.fixture
def export(run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Exports the run offline and gives the one file that it wrote."""
    import wandb

    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.delenv("WANDB_MODE", raising=False)

    def run() -> Path:
        export_runs([run_path], partial(open_tracker, "wandb"), "p")
        wandb.teardown()  # as at the end of a process: only then is the file whole
        (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
        return file

    return run


def read_records(file: Path) -> Iterator[Any]:
    """The records of a .wandb file: a log of LevelDB's format, in blocks, after a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, part = file.read_bytes(), _HEADER_BYTES, b""
    while position + _HEADER_BYTES <= len(data):
        room = _BLOCK_BYTES - position % _BLOCK_BYTES
        if room < _HEADER_BYTES:
            position += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        part += data[position + _HEADER_BYTES : position + _HEADER_BYTES + length]
        position += _HEADER_BYTES + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(part)
            part = b""
            yield record


def read_history(file: Path) -> list[dict[str, Any]]:
    return [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in read_records(file)
        if record.WhichOneof("record_type") == "history"
    ]


def test_rows_read_back_have_the_records_steps_and_times(export: Any) -> None:
    rows = read_history(export())
    losses = [(row["step"], row["_timestamp"], row["train/loss"]) for row in rows if "train/loss" in row]
    assert losses == [(10, START + 10, 0.5), (20, START + 13, 0.25)]
    busy = [(row["step"], row["seconds"]) for row in rows if "gpu/0/busy_share" in row]
    assert busy == [(0, 5), (10, 11), (10, 12), (20, 13.5)]
    assert [row["_step"] for row in rows] == sorted({row["_step"] for row in rows})


def test_charts_use_the_steps_of_the_run_and_seconds_for_the_machine(export: Any) -> None:
    axes = {record.metric.glob_name: record.metric.step_metric for record in read_records(export())}
    assert (axes["*"], axes["host/*"], axes["gpu/*"]) == ("step", "seconds", "seconds")


def test_final_scores_are_in_the_summary(export: Any) -> None:
    updates = [update for record in read_records(export()) for update in record.summary.update]
    assert {update.value_json for update in updates if update.key == "final/test/f1"} == {"58.5"}


def test_a_second_export_replaces_the_first(export: Any) -> None:
    assert len(read_history(export())) == len(read_history(export())) == 9


def test_neither_secrets_nor_files_nor_the_host_name_are_written(export: Any) -> None:
    file = export()
    assert b"hunter2" not in file.read_bytes()
    assert [path.name for path in (file.parent / "files").iterdir()] == []
    hosts = {record.run.host for record in read_records(file) if record.WhichOneof("record_type") == "run"}
    assert hosts == {"-"}
