"""`seqfit audit`: exit codes, JSON, the page, and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.cli.main import main
from tests.comparison.test_audit import write_strategies


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    write_strategies(tmp_path)
    return ["vanilla.py", "fp16.py", "grad_accumulation.py", "all.py"]


def test_an_answered_question_ends_with_0_and_a_check_with_1(
    scripts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *scripts]) == 0
    assert "gradient accumulation (inverted)" in capsys.readouterr().out
    assert main(["audit", *scripts, "--check"]) == 1
    assert main(["audit", "vanilla.py", "fp16.py", "--check"]) == 0
    assert main(["audit", "vanilla.py", "fp16.py", "--meant", "checkpointing", "--check"]) == 1


def test_json_on_standard_output_and_the_page_beside_it(scripts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *scripts, "--json", "--html", "audit.html"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["findings"][0]["aspect"] == "accumulation"
    assert printed.err == "page: audit.html\n"
    assert "Was it fair? No" in Path("audit.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["vanilla.py"], "only 'vanilla' is given"),
        (["vanilla.py", "missing.py"], "There is no recipe"),
        (["vanilla.py", "fp16.py", "--meant", "colour"], "--meant names 'colour'"),
        (["vanilla.py", "fp16.py", "--baseline", "fp61"], "Did you mean 'fp16'?"),
        (["vanilla.py", "fp16.py", "--html", "page"], "Use --html page.html"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    argv: list[str], message: str, scripts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(Path().iterdir())
    assert main(["audit", *argv]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert set(Path().iterdir()) == before
