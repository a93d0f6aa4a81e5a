"""What other tests start their processes with."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from tests.processes import started

PARENT = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
time.sleep(60)
"""


def test_a_process_of_a_test_that_fails_ends_with_all_it_has_started() -> None:
    with (  # noqa: PT012, what fails is inside the block
        pytest.raises(ZeroDivisionError),
        started([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        raise ZeroDivisionError
    assert process.returncode == -9
    deadline = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
