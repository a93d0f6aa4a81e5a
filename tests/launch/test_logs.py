from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from seqfit.errors import RunError
from seqfit.launch import slurm
from seqfit.launch.slurm import read_log
from tests.launch.fixtures import FakeSlurm


@pytest.fixture
def log(submitted_run: Path) -> Path:
    return submitted_run / "slurm-17.out"


def test_the_whole_log_or_its_last_lines(log: Path) -> None:
    log.write_text("one\ntwo\nthree\n")
    assert "".join(read_log(log.parent)) == "one\ntwo\nthree\n"
    assert "".join(read_log(log.parent, lines=2)) == "two\nthree\n"


def test_a_log_that_is_not_there_yet_is_an_error_in_three_parts(log: Path) -> None:
    with pytest.raises(RunError, match=r"is not there yet\. .*\. Wait for it: seqfit logs runs/demo --follow"):
        list(read_log(log.parent))


def test_following_waits_for_the_job_and_ends_with_it(
    log: Path, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it sleeps, one more thing happens."""

    def append(text: str, state: str) -> None:
        with log.open("a") as stream:
            stream.write(text)
        fake_slurm.says(state)

    fake_slurm.says("PENDING", Reason="Priority")
    last_words = "seqfit: try 1 of job 17 ended with code 0\n"
    happens = iter([("step 1\nste", "RUNNING"), ("p 2\n", "RUNNING"), (last_words, "COMPLETED")])
    clock = SimpleNamespace(sleep=lambda _: append(*next(happens)), monotonic=time.monotonic)
    monkeypatch.setattr(slurm, "time", clock)
    reported: list[str] = []
    pieces = [piece for piece in read_log(log.parent, follow=True, report=reported.append) if piece]
    assert pieces == ["step 1\n", "step 2\n", last_words]
    assert reported == ["job 17: PENDING (Priority)"]


@pytest.mark.usefixtures("fake_slurm")
def test_following_a_job_that_is_over_prints_its_log(log: Path) -> None:
    log.write_text("one\ntwo\n")
    assert "".join(read_log(log.parent, 1, follow=True, report=pytest.fail)) == "two\n"
