"""Variants traced here and in a second process."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from seqfit.planning import second_process as tracing
from seqfit.planning.second_process import WORTH_IT, Tracers

MANY = list(range(WORTH_IT + 3))


def double(request: int, variant: int) -> int:
    return request * variant


def test_a_few_are_traced_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with Tracers(2, double, second_process=True) as tracers:
        assert tracers.trace([1, 3], lambda *_: None) == {1: 2, 3: 6}


def test_a_second_process_that_dies_is_an_event_and_its_variants_are_traced_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing.os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(tracing.sys, "executable", "/bin/false")
    with Tracers(2, double, second_process=True) as tracers:
        assert tracers.trace(MANY, lambda *_: None) == {number: 2 * number for number in MANY}


def test_results_of_the_second_process_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results are marked, and every variant has one, from here or from there."""
    script = (
        "import pickle, sys\n"
        "question = pickle.load(sys.stdin.buffer)\n"
        "pickle.dump('ready', sys.stdout.buffer)\n"
        "sys.stdout.buffer.flush()\n"
        "while True:\n"
        "    variant = pickle.load(sys.stdin.buffer)\n"
        "    pickle.dump(-question * variant, sys.stdout.buffer)\n"
        "    sys.stdout.buffer.flush()\n"
    )
    start = subprocess.Popen

    def other(command: list[str], **settings: Any) -> Any:
        return start([command[0], "-c", script], **settings)

    monkeypatch.setattr(tracing.os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(tracing.subprocess, "Popen", other)

    def slow(request: int, variant: int) -> int:
        import time

        time.sleep(0.3)
        return request * variant

    with Tracers(2, slow, second_process=True) as tracers:
        done = tracers.trace(MANY, lambda *_: None)
    assert {abs(value) for value in done.values()} == {2 * number for number in MANY}
    assert any(value < 0 for value in done.values())
    assert tracers.events == []


def test_a_process_that_is_not_ready_yet_takes_nothing_and_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen
    monkeypatch.setattr(tracing.os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(
        tracing.subprocess,
        "Popen",
        lambda command, **settings: start([command[0], "-c", "import time; time.sleep(60)"], **settings),
    )
    with Tracers(2, double, second_process=True, expected=WORTH_IT) as tracers:
        assert tracers.trace([1, 3], lambda *_: None) == {1: 2, 3: 6}
        assert tracers.trace([4, 5], lambda *_: None) == {4: 8, 5: 10}
    assert tracers.events == []
