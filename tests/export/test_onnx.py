from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seqfit.export import export_run
from seqfit.export.decoders import DecodingRule
from seqfit.export.rows import CheckedRow
from tests.export.exported import ROWS

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package, reason="needs pip install 'seqfit[onnx]'")


def test_a_classifier_is_one_graph_with_the_same_labels(
    checkpoint_of: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    report = export_run(checkpoint_of("classifier"), "onnx", out=tmp_path / "out", data=rows)
    assert (report.problems, report.check.identical) == ([], ROWS)
    assert 0 < report.check.largest_difference < 1e-5
    assert [file.name for file in (tmp_path / "out").glob("*.onnx")] == ["model.onnx"]
    assert str(Path(np.__file__).parents[1]).encode() not in (tmp_path / "out" / "model.onnx").read_bytes()


@pytest.mark.journey  # three graphs are traced, which takes ten seconds
@pytest.mark.parametrize("name", ["mt5-untied", "marian"])
def test_encoder_and_cached_decoder_answer_like_the_checkpoint(
    name: str, checkpoint_of: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    from onnxruntime import InferenceSession

    from seqfit.export.onnx import OnnxDecoder

    report = export_run(checkpoint_of(name), "onnx", out=tmp_path / "out", data=rows)
    assert (report.problems, report.check.identical, report.check.long_changed) == ([], ROWS, 0)
    assert 0 < report.check.largest_difference < 1e-4
    config = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    session = InferenceSession(tmp_path / "out" / "decoder_with_past_model.onnx")
    names = {value.name for value in session.get_inputs()}
    assert {"input_ids", "encoder_attention_mask", "past_key_values.1.encoder.value"} <= names
    assert "encoder_hidden_states" not in names
    # Each matrix is there once: the embedding alone is in all three graphs.
    stored = (tmp_path / "out" / "weights.onnx_data").read_bytes()
    assert len(stored) < report.checkpoint_bytes * 1.2
    # A row's answer does not depend on what it is padded with.
    decoder = OnnxDecoder(tmp_path / "out", DecodingRule(config["pad_token_id"], (config["eos_token_id"],), ()))
    start = config["decoder_start_token_id"]
    short, long = CheckedRow("", (5, 6, 7), start), CheckedRow("", tuple(range(5, 30)), start)
    assert decoder.generate([short], 30, exactly=True) == decoder.generate([short, long], 30, exactly=True)[:1]
