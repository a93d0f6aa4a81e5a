from __future__ import annotations

import os
import signal

import pytest

from seqfit.training.coordination import Stopping, select_handled

pytestmark = pytest.mark.usefixtures("default_signals")


def test_a_signal_is_noted_and_handlers_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stopping() as stopping:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.signal is signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_a_script_has_ignored_stays_ignored() -> None:
    """A script's `seqfit train ... &` ignores SIGINT: the Ctrl-C that ends the script is none of the run's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Stopping() as stopping:
        os.kill(os.getpid(), signal.SIGINT)
        assert not stopping.noted
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.signal is signal.SIGTERM


def test_only_signals_of_a_terminal_can_be_ignored() -> None:
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    heeded = select_handled([signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
    assert heeded == [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
