"""A run that is stopped goes on by the very command that it printed, and ends as if nothing had happened."""

from __future__ import annotations

import hashlib
import re
import signal
from pathlib import Path

import pytest

from tests.journeys.person import Person, check_readable

RUN = (
    "seqfit train demo train.steps=14 train.batch_examples=8 train.log_every=1 train.snapshot.every_steps=3 "
    "eval.every_steps=7 eval.limit=4 --out 'my runs/first'"
)


@pytest.fixture(scope="module")
def undisturbed(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A hash of the weights of a run that nobody stops."""
    person = Person(tmp_path_factory.mktemp("undisturbed") / "work", installed)
    person.types(RUN)
    return hash_weights(person)


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGKILL, -9)],
    ids=["Ctrl-C", "SIGTERM", "kill -9"],
)
def test_a_stopped_run_goes_on_by_the_command_it_prints(
    number: signal.Signals, exit_code: int, undisturbed: str, installed: Path, tmp_path: Path
) -> None:
    person = Person(tmp_path / "work", installed)
    with person.starts(f"exec {RUN}") as going:
        going.wait_for(r"step 5/14")
        going.interrupt(number)
        stopped = going.wait()
    assert stopped.exit_code == exit_code, str(stopped)
    if number == signal.SIGKILL:
        command = "seqfit train 'my runs/first' --resume"  # nobody is left to print it; docs/reliability.md has it
    else:
        check_readable(stopped)
        found = re.search(r"seqfit train .*--resume", stopped.text)
        assert found is not None, f"it does not say how to go on:\n{stopped}"
        command = found.group()
    resumed = person.types(command)
    assert "step 14/14" in resumed.text, str(resumed)
    assert not re.search(r"step 1/14", resumed.text), f"it began from the start:\n{resumed}"
    assert hash_weights(person) == undisturbed


def hash_weights(person: Person) -> str:
    file = person.folder / "my runs" / "first" / "checkpoint" / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()
