from __future__ import annotations

from typing import Any

from benchmarks.telemetry.measure import find_interval, make_table


def sample(time: float, cpu: float) -> dict[str, Any]:
    host = dict.fromkeys(("cores_used", "peak_memory_bytes", "disk_read_bytes_per_second"), None)
    return {"time": time, "sampler_cpu_seconds": cpu, "gpus": [], "host": {"core_shares": [0.5], **host}}


def test_cpu_time_is_over_all_blocks_and_without_the_start() -> None:
    blocks = [[sample(10, 0.1), sample(20, 0.12)], [sample(50, 0.1), sample(80, 0.16)]]
    rows = make_table([1.0, 1.02, 0.99], blocks, hz=2)
    assert "| the sampler's CPU time, of the wall time | 0.20% (4 samples) |" in rows
    assert "| its start, once | 100 ms of CPU time |" in rows


def test_the_interval_holds_the_median_and_shrinks_with_agreement() -> None:
    low, high = find_interval([0.9, 1.0, 1.1, 1.0, 0.95, 1.05])
    assert 0.9 <= low <= 1.0 <= high <= 1.1
    assert find_interval([1.0] * 5) == (1.0, 1.0)
