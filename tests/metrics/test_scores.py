from __future__ import annotations

import pytest

from seqfit.metrics.scores import Scores, base_language, mean_percent


def test_joined_scores_hold_both() -> None:
    joined = Scores({"em": 1.0}, {"squad": "s"}).joined(Scores({"bleu": 2.0}, absent={"chrf": "why"}))
    assert joined == Scores({"em": 1.0, "bleu": 2.0}, {"squad": "s"}, {"chrf": "why"})


@pytest.mark.parametrize("language", ["es", "ES", "es_MX", "es-419"])
def test_a_regional_language_is_scored_as_its_base(language: str) -> None:
    assert base_language(language) == "es"


def test_shares_are_meaned_in_per_cent() -> None:
    assert mean_percent([1.0, 0.0, 0.5]) == 50.0
