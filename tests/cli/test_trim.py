from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from seqfit.cli.main import main
from seqfit.system import quiet_transformers


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(json.dumps({"q": f"w{n} w{n + 1}", "a": "w60"}) for n in range(10, 20)))
    return path


def test_a_folder_is_trimmed_to_the_tokens_of_a_file(
    tiny_model: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["trim", str(tiny_model("mt5")), str(out), "--data", str(data)]) == 0
    said = capsys.readouterr().out
    for part in ("15 of 100 tokens kept", "data: occur in the data", "savings", "dropped", "w3", f"model: {out}"):
        assert part in said
    with quiet_transformers():
        model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.lm_head.weight.shape[0] == len(tokenizer) == 15
    assert tokenizer("w10 w60 w99").input_ids == [3, 14, 2, 1]


def test_a_recipes_data_and_mode_are_taken(
    tiny_model: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_model("t5")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"model: {{path: {folder}, trim_vocabulary: 5}}\nallow: [trim]\ndata: {{path: {data.name}}}\n"
        "task: {name: qa, source: 'w70 {q}', target: '{a}'}\n"
    )
    assert main(["trim", str(folder), str(tmp_path / "five"), "--recipe", str(recipe)]) == 0
    assert "21 of 100 tokens kept" in capsys.readouterr().out
    assert main(["trim", str(folder), str(tmp_path / "all"), "--recipe", str(recipe), "--mode", "language"]) == 0
    assert "100 of 100 tokens kept" in capsys.readouterr().out
    argv = ["trim", str(folder), str(tmp_path / "other"), "task.source={q}", "--recipe", str(recipe), "--mode", "0"]
    assert main(argv) == 0
    assert "15 of 100 tokens kept" in capsys.readouterr().out


def test_a_trimmed_checkpoint_is_still_one_and_answers_the_same(
    tiny_model: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"model: {{path: {tiny_model('t5')}, dropout: 0}}\ndata: {{path: {data}}}\n"
        "task: {name: qa, prefix: 'w80 ', source: '{q} w70', target: '{a} w90'}\n"
        "train: {steps: 30, learning_rate: 0.01, batch_examples: 8}\neval: {max_new_tokens: 7}\n"
    )
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(["train", str(recipe), "--out", str(run)]) == 0
    assert main(["trim", str(run / "checkpoint"), str(out), "--data", str(data)]) == 0
    assert "18 of 100 tokens kept" in capsys.readouterr().out  # the file's 15, and the task's w70, w80 and w90
    assert (out / "seqfit.json").read_bytes() == (run / "checkpoint" / "seqfit.json").read_bytes()
    answers = []
    for model in (run, out):
        assert main(["predict", str(model), "q=w10 w11"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] == "w60 w90\n"


def test_mistakes_are_reported_in_three_parts_and_write_nothing(
    tiny_model: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = str(tiny_model("t5")), str(tmp_path / "out")
    assert main(["trim", model, out]) == 2
    assert "neither data files nor a recipe is given" in capsys.readouterr().err
    assert main(["trim", model, out, "--data", str(data), "--mode", "all"]) == 2
    assert "--mode is 'all'. It must be data, language or a number" in capsys.readouterr().err
    assert main(["trim", model, out, "--data", str(data), "more.txt"]) == 2
    assert "Write --data before each file" in capsys.readouterr().err
    assert main(["trim", model, str(tmp_path), "--data", str(data)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert not Path(out).exists()
