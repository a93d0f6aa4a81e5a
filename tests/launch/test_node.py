"""torchrun on one node: its own code is 1 whatever happened, ours says what did."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqfit.launch.local import choose_code, main
from tests.processes import started, wait_until

NODE = [sys.executable, "-m", "seqfit.launch.local", "--nnodes", "1", "--nproc-per-node", "2"]
SIGNALS = ["--signals-to-handle", "SIGTERM,SIGUSR1", "--shutdown-timeout", "20"]
STOPS = """
import os, pathlib, signal, sys, time
asked = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: asked.append(1))
pathlib.Path(sys.argv[1], "ready" + os.environ["RANK"]).touch()
while not asked:
    time.sleep(0.05)
time.sleep(1.5)
pathlib.Path(sys.argv[1], "saved" + os.environ["RANK"]).touch()
sys.exit(75)
"""


@pytest.mark.parametrize(
    ("codes", "node"),
    [
        ([75], 75),
        ([75, -15], 75),
        ([-9, 76], 137),
        ([1, -15], 1),
        ([-15, 3], 203),
        ([2, 75], 202),
    ],
)
def test_a_nodes_own_fault_goes_before_all_and_else_the_first_to_end_decides(codes: list[int], node: int) -> None:
    assert choose_code(codes) == node


@pytest.mark.parametrize(("code", "node"), [(0, 0), (3, 203)])
def test_the_code_of_the_processes_is_that_of_the_node(tmp_path: Path, code: int, node: int) -> None:
    script = tmp_path / "ends.py"
    script.write_text(f"raise SystemExit({code})")
    done = subprocess.run([*NODE, str(script)], capture_output=True, check=False, timeout=240)
    assert done.returncode == node, done.stderr


def test_a_node_that_finds_nobody_any_more_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError

    def lose(_: object) -> None:
        raise RendezvousConnectionError("the connection has failed")

    monkeypatch.setattr(run, "run", lose)
    assert main(["--nnodes", "2", "train.py"]) == 76
    assert capsys.readouterr().err == "error: the rendezvous node is gone (the connection has failed)\n"


def test_two_signals_leave_the_processes_the_time_to_save(tmp_path: Path) -> None:
    """Slurm sends the one of --signal and then SIGTERM; torchrun by itself ends at the second, with its processes."""
    script = tmp_path / "stops.py"
    script.write_text(STOPS)
    with started([*NODE, *SIGNALS, str(script), str(tmp_path)], stderr=subprocess.DEVNULL) as node:
        wait_until(lambda: len(list(tmp_path.glob("ready*"))) == 2)
        node.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        node.send_signal(signal.SIGTERM)
        assert node.wait(240) == 75
    assert sorted(path.name for path in tmp_path.glob("saved*")) == ["saved0", "saved1"]
