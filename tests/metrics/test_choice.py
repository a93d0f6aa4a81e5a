from __future__ import annotations

from seqfit.metrics.registry import available_scores, find_metric_mistakes


def test_the_loss_can_always_be_chosen() -> None:
    assert available_scores(["bleu"]) == ["loss", "bleu"]
    assert find_metric_mistakes(["bleu"], "loss") == find_metric_mistakes(["bleu"], None) == []


def test_a_score_of_another_metric_names_that_metric() -> None:
    [(path, sentence)] = find_metric_mistakes(["numeric"], "bleu")
    assert path == ("eval", "best")
    assert "numeric_em. Choose one of them, or set eval.metrics=[numeric, bleu]." in sentence


def test_every_unknown_metric_is_found_and_the_best_score_is_not_blamed_for_it() -> None:
    found = find_metric_mistakes(["rogue", "squad", "bleurt"], "rougeL_f1")
    assert [path for path, _ in found] == [("eval", "metrics")] * 2
