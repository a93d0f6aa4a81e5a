"""Each library recipe trains some steps, evaluates and predicts on real files with the real tokenizers.

The models are small, random and of the right class: this is about the path, not about quality.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.recipe.library import library_names

STEPS = 4
QUICK = [
    f"train.steps={STEPS}",
    "train.log_every=2",
    "train.batch_examples=4",
    "eval.limit=3",
    "eval.max_new_tokens=8",
    "~eval.every_steps",
]
LIMIT = "data.limit={train: 20, validation: 3, test: 3}"

# The path of each recipe is tested here; tests/journeys have both.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")

# recipe -> (model class, data below the shared folder, overrides, a row to ask)
CASES: dict[str, tuple[str, str, list[str], dict[str, Any]]] = {
    "mt5-squad-es": (
        "mt5",
        "squad_es/dev-v1.1-es_small.json",
        [],
        {"question": "¿Quién ganó?", "context": "Ganó el equipo de Denver."},
    ),
    "t5-summarize": ("t5", "dialogsum", [], {"dialogue": "#Person1#: Hello.\n#Person2#: Hi."}),
    "unifiedqa-causal": ("t5", "causal_qa", [], {"question_processed": "why did it rain", "context_processed": ""}),
    "t5-gsm8k": ("t5", "gsm8k", [], {"question": "Two and three apples are how many?"}),
    "t5-bioqa": ("t5", "pubmedqa", [], {"QUESTION": "Do leaves move?", "CONTEXTS": ["They do."]}),
    "bert-agnews": ("bert", "ag_news", [], {"title": "Match won", "description": "The team won."}),
    "t5-wmt14": ("t5", "multi30k", ["~train.batch_tokens"], {"en": "A dog runs."}),
}


@pytest.mark.parametrize("name", CASES)
def test_library_recipe_trains_evaluates_and_predicts(
    name: str, shared_data: Path, small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    import seqfit

    kind, folder, overrides, row = CASES[name]
    where = [f"model.path={small_model(kind)}", f"data.path={shared_data / folder}"]
    run = seqfit.train(name, [*where, *overrides, *QUICK, LIMIT], out=tmp_path / "run")
    assert run.status == "finished"
    assert run.steps()[-1]["step"] == STEPS
    assert run.evaluations()[-1]["loss"] > 0

    report = seqfit.evaluate(run)
    assert json.loads((run.path / "evaluation-test.json").read_text())["metrics"] == report["metrics"]
    assert 0 < len(report["predictions"]) <= 3
    assert all(prediction["references"] for prediction in report["predictions"])

    (answer,) = seqfit.predict(run, [row])
    assert isinstance(answer, str)


def test_every_library_recipe_is_tried_here() -> None:
    assert set(library_names()) - {"demo"} == set(CASES)


def test_bert_agnews_with_a_pretrained_encoder_reaches_80_percent(
    shared_data: Path, minilm: Path, tmp_path: Path
) -> None:
    import seqfit

    run = seqfit.train(
        "bert-agnews",
        [
            f"model.path={minilm}",
            f"data.path={shared_data / 'ag_news'}",
            "data.limit={train: 1000, validation: 20, test: 100}",
            "data.balance=label",
            "task.max_source_tokens=32",  # the ends of long rows take time and add little
            "train.batch_examples=16",
            "train.steps=30",
            "train.learning_rate=3e-4",
            "train.schedule.warmup_steps=3",
        ],
        out=tmp_path / "run",
    )
    report = seqfit.evaluate(run)
    assert report["rows"] == 100
    assert report["metrics"]["accuracy"] >= 80
