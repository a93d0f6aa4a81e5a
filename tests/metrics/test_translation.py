from __future__ import annotations

import math

import pytest

from seqfit.metrics.scores import Pairs
from seqfit.metrics.texts import score_bleu, score_chrf


def test_bleu_has_the_value_computed_by_hand() -> None:
    # 4 of 5, 3 of 4, 2 of 3, 1 of 2 n-grams right, no brevity penalty.
    scores = score_bleu(Pairs([["a b c d e"]], ["a b c d x"]))
    assert scores.values["bleu"] == pytest.approx(100 * math.prod([4 / 5, 3 / 4, 2 / 3, 1 / 2]) ** 0.25)


def test_the_signatures_are_those_of_sacrebleu() -> None:
    pairs = Pairs([["a b c d"]], ["a b c d"])
    assert score_bleu(pairs).signatures["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert score_chrf(pairs).signatures["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_rows_may_have_different_numbers_of_references() -> None:
    pairs = Pairs([["x y z w v"], ["q", "a b c d e"]], ["x y z w v", "a b c d e"])
    bleu, chrf = score_bleu(pairs), score_chrf(pairs)
    assert bleu.values["bleu"] == pytest.approx(100.0)
    assert chrf.values["chrf"] == pytest.approx(100.0)
    assert bleu.signatures["bleu"].startswith("nrefs:var")


def test_bleu_is_absent_where_even_a_perfect_copy_would_get_0() -> None:
    for prediction in ("good morning", "a very good morning to you"):
        scores = score_bleu(Pairs([["good morning"]], [prediction]))
        assert scores.values == {}
        assert "no reference has 4 words" in scores.absent["bleu"]


def test_bleu_is_0_where_the_predictions_are_too_short() -> None:
    assert score_bleu(Pairs([["a b c d e"]], [""])).values == {"bleu": 0.0}


def test_chinese_has_its_own_tokenizer() -> None:
    assert "tok:zh" in score_bleu(Pairs([["今天天气好"]], ["今天天气好"], language="zh-CN")).signatures["bleu"]


def test_bleu_is_absent_with_the_command_that_installs_a_missing_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("\nJapanese needs extras.\n\n    pip install sacrebleu[ja]\n")

    monkeypatch.setattr("sacrebleu.metrics.bleu.BLEU", refuse)
    assert score_bleu(Pairs([["x"]], ["x"], language="ja")).absent == {
        "bleu": "Japanese needs extras. pip install sacrebleu[ja]"
    }
