from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqfit.profiling.profile import Profile, profile
from seqfit.profiling.readers import read_trace

# A plan takes longer than the steps that are looked at, and a strategy is stated.
pytestmark = pytest.mark.usefixtures("no_prediction")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile") / "out"


@pytest.fixture(scope="module")
def result(no_prediction: None, word_recipe: dict[str, Any], out: Path) -> Profile:
    overrides = ["strategy.batching=max_length", "task.max_source_tokens=256"]
    return profile(word_recipe, overrides, steps=2, out=out)


def test_a_planted_cause_is_the_first_finding_and_all_is_written(result: Profile, out: Path) -> None:
    assert result.findings[0].cause == "padding"
    written = json.loads((out / "summary.json").read_text())
    assert written["findings"][0]["change"] == ["strategy.batching=packed"]
    assert written["summary"]["operators"]
    assert written["proof"] is None
    assert read_trace(result.trace).step_count == 2


def test_evidence_has_the_machine_and_the_memory(result: Profile) -> None:
    evidence = result.evidence
    assert evidence.threads is not None
    assert evidence.cores is not None
    assert evidence.logits_bytes is not None
    assert evidence.peak_bytes is not None
    assert evidence.free_bytes is not None
    assert evidence.padding_share is not None
    assert evidence.padding_share > 0.9


def test_the_trace_tells_values_read_on_the_host_by_their_line(word_recipe: dict[str, Any], tmp_path: Path) -> None:
    result = profile(word_recipe, ["train.log_every=1"], steps=2, out=tmp_path)
    assert any("training/log.py:" in row.place for row in result.summary.syncs)
