from __future__ import annotations

import pytest

from seqfit import progress as progress_lines
from seqfit.cli.arguments import progress_bar
from seqfit.progress import RowProgress


def test_without_a_terminal_progress_is_lines_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(progress_lines.time, "monotonic", lambda: now[0])
    with progress_bar() as show:
        for done in (0, 50):
            now[0] += 5
            show("mine.csv: tokenizing train", RowProgress(done), 100)
    assert capsys.readouterr().err == "mine.csv: tokenizing train: 50 rows, 50% (10 rows/s, about 5 s left)\n"
