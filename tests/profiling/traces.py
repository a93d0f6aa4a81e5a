"""Traces of known content: a Kineto file and an Nsight database that say the same, and their numbers.

    host   0 launch (5)   10 launch (5)   20 sync (60)            90 launch (10)            130 copy (20)
    GPU            10..40 gemm        40..80 softmax                        100..130 gemm            140..150 HtoD

Starts and lengths in microseconds. API total 100: sync 60, launches 20, copy 20. Window 0..150: computing 100, only
copying 10, idle 40, of which 0..10 and 130..140 for a late launch and 80..100 for the sync.
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
CALLS = [
    ("cudaLaunchKernel", 0, 5, 1),
    ("cudaLaunchKernel", 10, 5, 2),
    ("cudaStreamSynchronize", 20, 60, 3),
    ("cudaLaunchKernel", 90, 10, 4),
    ("cudaMemcpyAsync", 130, 20, 5),
]
KERNELS = [("gemm", 10, 30, 1), ("softmax", 40, 40, 2), ("gemm", 100, 30, 4)]
COPY = ("Memcpy HtoD (Pageable -> Device)", 140, 10, 5)


def span(category: str, name: str, start: float, length: float, **arguments: Any) -> Event:
    """One complete event of thread 7."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 7,
        "ts": start,
        "dur": length,
        "args": arguments,
    }


def gpu_events() -> list[Event]:
    """The picture above."""
    events = [span("cuda_runtime", name, start, length, correlation=number) for name, start, length, number in CALLS]
    events += [
        span("kernel", name, start, length, correlation=number, device=0, stream=7)
        for name, start, length, number in KERNELS
    ]
    name, start, length, number = COPY
    events.append(span("gpu_memcpy", name, start, length, correlation=number, device=0, stream=7, bytes=4096))
    return events
