from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from seqfit.evaluation.evaluate import predict
from seqfit.export import export_run
from tests.export.exported import ROWS

CheckpointOf = Callable[[str], Path]


@pytest.mark.parametrize("name", ["t5", "t5-untied", "mt5", "mt5-untied", "bart", "marian", "nllb"])
def test_plain_transformers_answers_like_the_checkpoint(
    name: str, checkpoint_of: CheckpointOf, rows: Path, tmp_path: Path
) -> None:
    report = export_run(checkpoint_of(name), out=tmp_path / "out", data=rows)
    assert report.problems == []
    assert (report.check.rows, report.check.identical, report.check.long_rows) == (ROWS, ROWS, 8)
    assert report.check.largest_difference < 1e-4
    assert json.loads((tmp_path / "out" / "export.json").read_text("utf-8"))["passed"] is True


def test_a_classifier_gives_the_same_labels(checkpoint_of: CheckpointOf, rows: Path, tmp_path: Path) -> None:
    report = export_run(checkpoint_of("classifier"), out=tmp_path / "out", data=rows)
    assert (report.passed, report.check.identical, report.check.largest_difference) == (True, ROWS, 0.0)


def test_an_untied_umt5_fails_because_transformers_5_scales_it(
    checkpoint_of: CheckpointOf, rows: Path, tmp_path: Path
) -> None:
    """Its greedy answers are the same, the probabilities of its tokens are not."""
    report = export_run(checkpoint_of("umt5-untied"), out=tmp_path / "out", data=rows)
    assert (report.passed, report.check.identical) == (False, ROWS)
    assert report.check.largest_difference > 0.1
    assert report.folder == str(tmp_path / "out.failed")
    assert [path.name for path in tmp_path.iterdir()] == ["out.failed"]
    assert "failed its check" in (tmp_path / "out.failed" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "is_tied"), [("t5", True), ("t5-untied", False), ("mt5", False), ("mt5-untied", False)]
)
def test_the_config_means_the_same_to_transformers_4(
    name: str, is_tied: bool, checkpoint_of: CheckpointOf, rows: Path, tmp_path: Path
) -> None:
    """Version 4 scales the decoder's output if and only if the config ties the head; mT5 is not scaled in version 5."""
    export_run(checkpoint_of(name), out=tmp_path / "out", data=rows, rows=2)
    config = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert config["tie_word_embeddings"] is is_tied
    assert ("lm_head.weight" in load_file(tmp_path / "out" / "model.safetensors")) is not is_tied


def test_the_tokenizer_is_written_in_names_that_transformers_4_knows(
    checkpoint_of: CheckpointOf, rows: Path, tmp_path: Path, tiny_tokenizer: Path
) -> None:
    export_run(checkpoint_of("t5"), out=tmp_path / "out", data=rows, rows=2)
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text("utf-8"))
    assert not isinstance(config.get("extra_special_tokens"), list)
    assert {"is_local", "local_files_only", "backend", "name_or_path"}.isdisjoint(config)


def test_seqfit_predicts_from_the_folder_as_from_the_checkpoint(
    checkpoint_of: CheckpointOf, rows: Path, tmp_path: Path
) -> None:
    export_run(checkpoint_of("marian"), out=tmp_path / "out", data=rows, rows=2)
    texts = [row["en"] for row in map(json.loads, rows.read_text("utf-8").splitlines()[:6])]
    assert predict(tmp_path / "out", texts) == predict(checkpoint_of("marian"), texts)
    assert len(set(predict(tmp_path / "out", texts))) > 2


def test_adapters_are_merged_and_their_folder_stays_behind(
    checkpoint_of: CheckpointOf, rows: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_of("t5"), copied)
    (copied / "adapter").mkdir()
    (copied / "adapter" / "adapter_config.json").write_text("{}")
    report = export_run(copied, out=tmp_path / "out", data=rows, rows=2)
    assert report.passed
    assert not (tmp_path / "out" / "adapter").exists()


def test_damaged_weights_are_found_and_named(
    checkpoint_of: CheckpointOf, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqfit.export.huggingface import HuggingFaceExporter

    write = HuggingFaceExporter.write

    def write_damaged(*given: object) -> None:
        write(*given)  # type: ignore[arg-type]
        file = Path(str(given[2])) / "model.safetensors"
        weights = load_file(file)
        name = next(name for name in weights if "decoder" in name and weights[name].ndim == 2)
        weights[name] = weights[name].roll(1, 0)
        save_file(weights, file, metadata={"format": "pt"})

    monkeypatch.setattr(HuggingFaceExporter, "write", write_damaged)
    report = export_run(checkpoint_of("t5"), out=tmp_path / "out", data=rows)
    assert not report.passed
    assert report.check.changed > 0
    assert report.check.differences[0].checkpoint != report.check.differences[0].exported
    assert f"{report.check.changed} of {ROWS} rows" in report.problems[0]
