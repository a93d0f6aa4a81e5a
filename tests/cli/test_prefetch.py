from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.cli.main import main


def test_it_says_what_it_has_found(
    tmp_path: Path, tiny_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "w3", "answer": "w4"}\n' * 20)
    (tmp_path / "mine.yaml").write_text(
        f"model: {{path: {tiny_model('t5')}}}\ndata: {{path: rows.jsonl}}\n"
        "task: {name: qa, source: '{question}', target: '{answer}'}\n"
    )
    assert main(["prefetch", str(tmp_path / "mine.yaml"), "--no-tokenize"]) == 0
    model, data = capsys.readouterr().out.splitlines()
    assert model.startswith(f"model: {tiny_model('t5')}, ")
    assert data == f"data: {tmp_path}/rows.jsonl (all)"


def test_a_mistake_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prefetch", "nothing.yaml"]) == 2
    assert "There is no recipe 'nothing.yaml'." in capsys.readouterr().err
