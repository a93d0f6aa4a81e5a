from __future__ import annotations

from seqfit.comparison.candidates import WHOLE_BATCH, build_base
from seqfit.recipe.load import load_recipe
from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import Strategy
from tests.comparison.comparisons import recipe_values


def test_the_base_is_the_baseline_with_the_whole_batch_at_once_and_stated_threads() -> None:
    base, notes = build_base(load_recipe(recipe_values()), 2)
    assert load_strategy(base) == Strategy(
        name="baseline", precision="fp32", batching="padded", micro_batch_tokens=WHOLE_BATCH, threads=2
    )
    assert any("whole global batch at once" in note for note in notes)


def test_every_step_is_recorded_and_only_the_end_is_scored() -> None:
    given = recipe_values(
        train={"epochs": 2, "log_every": 10}, eval={"at_start": True, "early_stopping": {"patience": 1}}
    )
    base, _ = build_base(load_recipe(given), 1)
    assert (base.train.log_every, base.train.epochs) == (1, None)
    assert (base.train.snapshot.every_minutes, base.train.snapshot.every_steps) == (None, None)
    assert (base.eval.at_start, base.eval.early_stopping) == (False, None)


def test_what_the_recipes_own_strategy_states_holds_for_all_and_is_noted() -> None:
    stated = {"batching": "max_length", "threads": 1, "micro_batch_tokens": 512}
    base, notes = build_base(load_recipe(recipe_values(strategy=stated)), 8)
    strategy = load_strategy(base)
    assert (strategy.batching, strategy.threads, strategy.micro_batch_tokens) == ("max_length", 1, 512)
    assert strategy.precision == "fp32"
    assert len(notes) == 1
    assert "strategy.batching=max_length" in notes[0]


def test_a_strategy_that_is_named_counts_as_its_fields() -> None:
    base, notes = build_base(load_recipe(recipe_values(strategy="bf16")), 1)
    assert load_strategy(base).precision == "bf16"
    assert "strategy.precision=bf16 applies to all candidates, baseline too" in notes[-1]


def test_dropout_and_the_update_rule_stay_the_recipes() -> None:
    given = load_recipe(recipe_values(model={"name": "google-t5/t5-small", "dropout": 0.2}))
    base, _ = build_base(given, 1)
    assert base.model.dropout == 0.2
    assert base.train.optimizer == given.train.optimizer


def test_a_device_that_is_asked_for_wins() -> None:
    base, _ = build_base(load_recipe(recipe_values(strategy={"device": "cuda"})), 1, "cpu")
    assert load_strategy(base).device == "cpu"
