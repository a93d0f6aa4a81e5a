"""`seqfit profile`: a trace of others, a recipe, and what is wrong to ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.cli.main import main

EVENTS = [
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "tid": 1, "ts": 0, "dur": 499},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": 500, "dur": 274},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "tid": 1, "ts": 800, "dur": 227},
    {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": 0, "dur": 490, "args": {"device": 0, "stream": 7}},
]


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS}))
    return path


def test_a_trace_of_others_is_shown_as_the_api_table(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(trace_file)]) == 0
    without_option = capsys.readouterr().out
    assert main(["profile", "--trace", str(trace_file)]) == 0
    shown = capsys.readouterr().out
    assert shown == without_option
    assert "49.9%" in shown
    assert "cudaStreamSynchronize" in shown
    assert "GPU 0: computing" in shown


def test_a_trace_can_be_had_as_json(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--trace", str(trace_file), "--json"]) == 0
    calls = json.loads(capsys.readouterr().out)["summary"]["calls"]
    assert [row["share"] for row in calls] == pytest.approx([0.499, 0.274, 0.227])


def test_a_recipe_is_profiled_and_its_findings_come_last(
    tmp_path: Path, tiny_model: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [json.dumps({"text": f"w{3 + n % 9} w4", "answer": "w5"}) for n in range(40)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    (tmp_path / "validation.jsonl").write_text("\n".join(rows[:4]))
    (tmp_path / "mine.yaml").write_text(
        f"model: {{path: {tiny_model('t5')}}}\n"
        'task: {name: qa, source: "{text}", target: "{answer}", max_source_tokens: 128}\n'
        f"data: {{path: {tmp_path}}}\ntrain: {{steps: 9, batch_examples: 8}}\nstrategy: {{batching: max_length}}\n"
    )
    out = tmp_path / "out"
    assert main(["profile", str(tmp_path / "mine.yaml"), "--steps", "2", "--out", str(out)]) == 0
    shown = capfd.readouterr().out
    assert "a step takes" in shown
    assert "1. padding:" in shown
    assert "strategy.batching=packed" in shown
    assert (out / "trace.json.gz").is_file()
    assert (out / "summary.json").is_file()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "neither a recipe nor --trace is given"),
        (["demo", "--trace", "x.json"], "both given"),
        (["--trace", "nowhere.json"], "can't be opened"),
        (["nowhere.json.gz"], "can't be opened"),
        (["demo", "strategy.prefetch=-1"], "prefetch"),
    ],
)
def test_wrong_arguments_are_reported_in_three_parts(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *words]) == 2
    assert expected in capsys.readouterr().err
