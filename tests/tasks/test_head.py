from __future__ import annotations

from seqfit.recipe import TaskRecipe
from seqfit.tasks import ClassifierHead, head_of


def test_a_head_has_transformers_problem_type() -> None:
    classify = TaskRecipe(name="classify", source="{t}", target="{l}", labels=["a", "b"])
    assert head_of(classify) == ClassifierHead(("a", "b"), "single_label_classification")
    multilabel = TaskRecipe(name="multilabel", source="{t}", label_columns=["a", "b"], missing_target="neither")
    assert head_of(multilabel) == ClassifierHead(("a", "b"), "multi_label_classification", "neither")
    regression = TaskRecipe(name="regression", source="{t}", target="{s}")
    assert head_of(regression) == ClassifierHead(("score",), "regression")


def test_a_task_of_texts_has_no_head() -> None:
    assert head_of(TaskRecipe(name="generate", source="{a}", target="{b}")) is None
