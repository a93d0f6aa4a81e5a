from __future__ import annotations

import signal
from pathlib import Path

import pytest

from seqfit.launch.local import SIGNALS, LaunchSpec, _configure


@pytest.mark.usefixtures("default_signals")
def test_the_launcher_ends_its_processes_at_a_hangup_unless_nohup_started_it() -> None:
    def name_signals() -> list[str]:
        config = _configure(Path("logs"), LaunchSpec(2), max_restarts=0, grace_seconds=1)
        return str(config.signals_to_handle).split(",")

    assert name_signals() == SIGNALS.split(",")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert name_signals() == [name for name in SIGNALS.split(",") if name != "SIGHUP"]
