from __future__ import annotations

from pathlib import Path

from seqfit.data.tokenized import PartFacts


def test_facts_come_back_as_they_were_written(tmp_path: Path) -> None:
    facts = PartFacts(rows=3, truncated_sources=1, source_tokens=50, longest_source=20, events=["train: ñ"])
    facts.write(tmp_path)
    assert PartFacts.read(tmp_path) == facts
