"""Each rule: evidence that makes it fire, and the nearest evidence that does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seqfit.profiling.findings import RULES, Evidence, Finding, find_findings
from seqfit.recipe.load import load_recipe
from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import Strategy

HEALTHY = Evidence(
    log_every=10,
    batch_examples=32,
    threads=2,
    cores=2,
    step_seconds=1.0,
    phases={"data_wait": 0.01, "forward": 0.3, "backward": 0.6, "optimizer": 0.05},
    padding_share=0.0,
    micro_batches=1,
    tokens_per_micro_batch=6000,
    evaluation_seconds=5.0,
    evaluate_every=100,
    operators_per_step=2000,
    peak_bytes=10**9,
    logits_bytes=10**6,
    free_bytes=8 * 10**9,
)


def strategy(**fields: Any) -> Strategy:
    return Strategy.model_validate(fields)


FIRES: dict[str, tuple[dict[str, Any], float, tuple[str, ...]]] = {  # evidence, expected gain, change
    "waiting-for-data": (
        {"phases": {"data_wait": 0.4, "forward": 0.2, "backward": 0.4}, "strategy": strategy(prefetch=0)},
        0.4,
        ("strategy.prefetch=4",),
    ),
    "padding": (
        {"padding_share": 0.5, "strategy": strategy(batching="max_length")},
        0.45,
        ("strategy.batching=packed",),
    ),
    "logits": ({"logits_bytes": 10**8, "strategy": strategy(loss="full")}, 0.3, ("strategy.loss=chunked",)),
    "needless-recompute": (
        {"recompute_saves_bytes": 10**9, "strategy": strategy(recompute="blocks")},
        0.3,
        ("strategy.recompute=none",),
    ),
    "tiny-batch": (
        {
            "operators_per_step": 200_000,
            "micro_batches": 16,
            "tokens_per_micro_batch": 100,
            "strategy": strategy(micro_batch_examples=1),
        },
        0.6 / 1.25 * 15 / 16,  # two rows per micro-batch: a fifth of the calls is theirs
        ("~strategy.micro_batch_examples",),
    ),
    "fp32": (
        {"on_gpu": True, "has_bf16": True, "precision": "fp32"},
        0.36,
        ("strategy.precision=bf16",),
    ),
    "throttling": ({"throttled_shares": {"thermal": 0.5, "idle": 0.05}}, 0.05, ()),
    "evaluation": ({"evaluate_every": 5}, 1 - 0.5 / 0.9, ("eval.every_steps=45",)),
    "checkpoint": (
        {"saving_share": 0.4},
        1 - 0.6 / 0.99,
        ("~train.snapshot.every_steps", "train.snapshot.every_minutes=10"),
    ),
    "oversubscribed-threads": ({"threads": 8}, 0.675, ("strategy.threads=2",)),
    "optimizer-bound": (
        {"phases": {"forward": 0.2, "backward": 0.4, "optimizer": 0.4}, "strategy": strategy(optimizer_kernel="loop")},
        0.16,
        ("strategy.optimizer_kernel=auto",),
    ),
    "unaccounted": ({"phases": {"forward": 0.2, "backward": 0.4}}, 0.0, ()),
    "overfitting": (
        {
            "training_losses": ((10, 2.0), (50, 1.0), (100, 0.2)),
            "validation_losses": ((25, 1.5), (50, 1.2), (75, 1.4), (100, 1.8)),
        },
        0.5,
        ("eval.early_stopping.patience=2",),
    ),
}
STAYS_SILENT: dict[str, dict[str, Any]] = {
    "waiting-for-data": {"phases": {"data_wait": 0.04, "forward": 0.9}, "strategy": strategy(prefetch=0)},
    "padding": {"padding_share": 0.04, "strategy": strategy(batching="grouped")},
    "logits": {"logits_bytes": 10**8, "strategy": strategy(loss="chunked")},
    "needless-recompute": {"recompute_saves_bytes": 7 * 10**9, "strategy": strategy(recompute="blocks")},
    "tiny-batch": {"operators_per_step": 200_000, "micro_batches": 1},
    "fp32": {"on_gpu": True, "has_bf16": False, "precision": "fp32"},
    "throttling": {"throttled_shares": {"thermal": 0.05}},
    "evaluation": {"evaluate_every": 50},
    "checkpoint": {"saving_share": 0.09},
    "oversubscribed-threads": {"threads": 2},
    "optimizer-bound": {"phases": {"forward": 0.3, "backward": 0.5, "optimizer": 0.2}},
    "unaccounted": {"phases": {"forward": 0.3, "backward": 0.56}},
    "overfitting": {
        "training_losses": ((10, 2.0), (50, 1.0), (100, 0.2)),
        "validation_losses": ((25, 1.5), (50, 1.2), (75, 1.21), (100, 1.2)),
    },
}


def first(changes: dict[str, Any]) -> Finding:
    return find_findings(replace(HEALTHY, **changes))[0]


def test_a_healthy_step_has_no_findings() -> None:
    assert find_findings(HEALTHY) == []


def test_without_evidence_nothing_is_claimed() -> None:
    assert find_findings(Evidence()) == []


def test_every_rule_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert len(RULES) == len(FIRES) == len(STAYS_SILENT)


@pytest.mark.parametrize("cause", FIRES)
def test_a_cause_is_named_first_with_its_change_and_gain(cause: str) -> None:
    changes, gain, change = FIRES[cause]
    finding = first(changes)
    assert (finding.cause, finding.change) == (cause, change)
    assert finding.gain == pytest.approx(gain)
    assert finding.evidence


@pytest.mark.parametrize("cause", STAYS_SILENT)
def test_a_cause_that_is_not_there_is_not_named(cause: str) -> None:
    assert cause not in [finding.cause for finding in find_findings(replace(HEALTHY, **STAYS_SILENT[cause]))]


@pytest.mark.parametrize("cause", [cause for cause, (_, _, change) in FIRES.items() if change])
def test_a_change_can_be_pasted_behind_a_recipe(cause: str) -> None:
    changed = load_recipe("demo", ["strategy.name=default", *FIRES[cause][2]])
    assert load_strategy(changed)


def test_the_largest_gain_comes_first() -> None:
    padded = {"padding_share": 0.9, "strategy": strategy(batching="padded")}
    assert [finding.cause for finding in find_findings(replace(HEALTHY, **padded, threads=3))] == [
        "padding",
        "oversubscribed-threads",
    ]


def test_a_source_slower_than_the_step_has_no_setting_that_helps() -> None:
    finding = first({"phases": {"data_wait": 0.8}, "strategy": strategy(prefetch=4)})
    assert (finding.cause, finding.change) == ("waiting-for-data", ())


def test_preparing_ahead_hides_at_most_the_shorter_of_both() -> None:
    finding = first({"phases": {"data_wait": 0.9}, "strategy": strategy(prefetch=0)})
    assert finding.gain == pytest.approx(0.1)


def test_a_larger_global_batch_is_marked_as_another_update() -> None:
    small = {"operators_per_step": 600_000, "tokens_per_micro_batch": 100}
    finding = first(small)
    assert (finding.cause, finding.is_lossy) == ("tiny-batch", True)
    assert finding.change == ("train.batch_examples=512",)
    assert finding.gain == pytest.approx((0.36 + 0.05) * 15 / 16)
    slow = {"phases": {"data_wait": 0.06, "forward": 0.9}, "strategy": strategy(prefetch=0)}
    assert first(small | slow).cause == "waiting-for-data"  # although it gains less


def test_a_global_batch_in_many_pieces_gets_more_tokens_for_each() -> None:
    finding = first({"operators_per_step": 300_000, "micro_batches": 4, "tokens_per_micro_batch": 500})
    assert (finding.change, finding.is_lossy) == (("strategy.micro_batch_tokens=2000",), False)


def test_an_optimizer_that_is_fast_already_needs_a_larger_batch() -> None:
    finding = first({"phases": {"forward": 0.1, "backward": 0.2, "optimizer": 0.7}})
    assert (finding.change, finding.is_lossy) == (("train.batch_examples=64",), True)
