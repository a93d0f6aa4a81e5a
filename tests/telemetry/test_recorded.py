from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.rundir import files
from seqfit.telemetry.gpu import NoReadings, RecordedReader, open_gpu_reader


def test_a_recording_plays_back_sample_by_sample_and_begins_again(recording: Path) -> None:
    reader = RecordedReader(recording)
    assert [gpu.name for gpu in reader.gpus] == ["NVIDIA GeForce RTX 3090", "Tesla K80"]
    played = [reader.read() for _ in range(301)]
    written = [json.loads(line)["gpus"] for line in (recording / files.TELEMETRY).read_text().splitlines()]
    assert [readings[0].temperature_celsius for readings in played[:300]] == [
        sample[0]["temperature_celsius"] for sample in written
    ]
    assert played[300] == played[0]


def test_missing_fields_of_one_gpu_stay_missing(recording: Path) -> None:
    hot, idle = RecordedReader(recording).read()
    assert (idle.energy_joules, idle.throttle_reasons, idle.pcie_send_bytes_per_second) == (None, None, None)
    assert None not in (hot.energy_joules, hot.throttle_reasons, hot.pcie_send_bytes_per_second)


def test_a_recording_without_gpus_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / files.TELEMETRY).write_text('{"time": 1, "gpus": []}\n')
    with pytest.raises(NoReadings, match=r"telemetry\.jsonl has no GPU readings"):
        RecordedReader(tmp_path)
    reader, reason = open_gpu_reader([lambda: RecordedReader(tmp_path)])
    assert reader is None
    assert "has no GPU readings" in reason
