"""What other tests start their processes with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import has_ended, started, wait_until

PARENT = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


def test_a_process_of_a_test_that_fails_ends_with_all_it_has_started() -> None:
    with (  # noqa: PT012, what fails is inside the block
        pytest.raises(ZeroDivisionError),
        started([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        child = int(process.stdout.readline())
        raise ZeroDivisionError
    assert process.returncode == -9
    wait_until(lambda: has_ended(child))
