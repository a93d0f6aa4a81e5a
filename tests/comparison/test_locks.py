from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from seqfit.comparison.compare import locked, stopped_by_signals
from seqfit.errors import RunError, Stopped


def test_a_second_one_is_refused_or_waits(tmp_path: Path) -> None:
    order: list[str] = []

    def wait() -> None:
        with locked(tmp_path, waits=True):
            order.append("waited")

    with locked(tmp_path):
        with pytest.raises(RunError, match="another process runs the comparison"), locked(tmp_path):
            pass
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", "waited"]


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_says_how_to_go_on(number: signal.Signals) -> None:
    with (
        pytest.raises(Stopped, match=rf"received {number.name}\. .* Resume with: seqfit submit c"),
        stopped_by_signals("seqfit submit c"),
    ):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.usefixtures("default_signals")
def test_a_comparison_under_nohup_outlives_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stopped_by_signals("seqfit compare c --resume"):
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
