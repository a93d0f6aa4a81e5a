"""What findings are drawn from: one small value, whether it comes from a trace, a measurement or a run's records.

In: a `Summary` of a trace, the figures of measured steps, the records of a run; any of them. Out: an `Evidence`. What
is not known is None, and a rule that needs it then says nothing.

    a run's steps.jsonl     phase_seconds {forward: 6, backward: 12, data_wait: 2} over 10 steps of 2 s each
    Evidence                step_seconds 2.0, phases {forward: .3, backward: .6, data_wait: .1}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from seqfit.profile.summary import Summary
from seqfit.recipe.schema import Recipe
from seqfit.rundir.records import BETWEEN_STEPS
from seqfit.rundir.run import Run
from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import Strategy
from seqfit.telemetry.summary import summarise_gpus


@dataclass(frozen=True)
class Evidence:
    """What is known of how a recipe runs. Shares are of the step's time unless the name says otherwise."""

    strategy: Strategy = field(default_factory=Strategy)
    log_every: int = 10
    batch_examples: int | None = None
    on_gpu: bool = False
    precision: str | None = None
    has_bf16: bool = False  # in the device's hardware, and allowed by the recipe
    threads: int | None = None
    cores: int | None = None

    step_seconds: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)  # data_wait, forward, ...: share of the step
    padding_share: float | None = None  # of all tokens
    micro_batches: float | None = None  # of one step
    tokens_per_micro_batch: float | None = None  # padding included
    evaluation_seconds: float | None = None  # of one evaluation
    evaluate_every: int | None = None  # steps
    saving_share: float | None = None  # of a run's time, for snapshots

    operators_per_step: float | None = None

    peak_bytes: int | None = None  # of a step, without weights and states
    logits_bytes: int | None = None  # of the largest micro-batch, in fp32
    chunked_loss_bytes: int = 0  # what takes the logits' place where the loss is chunked
    recompute_saves_bytes: int | None = None  # what activations would take without recompute
    free_bytes: int | None = None
    throttled_shares: Mapping[str, float] = field(default_factory=dict)  # reason -> share of the samples
    training_losses: Sequence[tuple[int, float]] = ()  # step, loss
    validation_losses: Sequence[tuple[int, float]] = ()

    @property
    def computing(self) -> float | None:
        """Forward and backward together."""
        if "forward" not in self.phases:
            return None
        return self.phases["forward"] + self.phases.get("backward", 0.0)


def add_recipe(evidence: Evidence, recipe: Recipe, strategy: Strategy | None = None) -> Evidence:
    """What the recipe says by itself, and the strategy that a plan has chosen for it, if one has."""
    return replace(
        evidence,
        strategy=strategy or load_strategy(recipe),
        log_every=recipe.train.log_every,
        batch_examples=recipe.train.examples_per_step,
    )


def add_summary(evidence: Evidence, summary: Summary) -> Evidence:
    """What a trace says of a recipe's steps; what slows them down is found in the trace itself (trace_findings.py)."""
    return replace(
        evidence,
        on_gpu=summary.on_gpu,
        operators_per_step=summary.operators_per_step or None,
        peak_bytes=summary.memory.peak_bytes if summary.memory else evidence.peak_bytes,
    )


def add_run(evidence: Evidence, run: Run) -> Evidence:
    """What a run's records say: the step's phases, losses, evaluations, telemetry."""
    steps, evaluations = run.steps(), run.evaluations()
    seconds, phases = _read_phases(steps)
    throttled: dict[str, float] = {}
    for gpu in summarise_gpus(run.telemetry()):
        throttled |= gpu.throttled_shares or {}
    padded = [step["padding_share"] for step in steps if step.get("padding_share") is not None]
    timed = [entry for entry in evaluations if entry["step"] > 0]
    return replace(
        evidence,
        step_seconds=seconds or evidence.step_seconds,
        phases=phases or evidence.phases,
        padding_share=sum(padded) / len(padded) if padded else evidence.padding_share,
        evaluation_seconds=timed[0]["seconds"] if timed else evidence.evaluation_seconds,
        evaluate_every=timed[0]["step"] if timed else evidence.evaluate_every,
        saving_share=_read_saving(steps) if len(steps) > 1 else evidence.saving_share,
        throttled_shares=throttled,
        training_losses=tuple((step["step"], step["loss"]) for step in steps if step["loss"] is not None),
        validation_losses=tuple((entry["step"], entry["loss"]) for entry in evaluations if entry["loss"] is not None),
    )


def _read_saving(steps: Sequence[Mapping[str, Any]]) -> float:
    """The share of a run's time in which snapshots were written and no step ran."""
    made = [(after["step"] - before["step"], after) for before, after in pairwise(steps)]
    between = {name: sum(r.get("phase_seconds", {}).get(name, 0.0) for _, r in made) for name in BETWEEN_STEPS}
    total = sum(count * record["step_seconds"] for count, record in made) + sum(between.values())
    return between["snapshot"] / total if total else 0.0


def _read_phases(steps: Sequence[Mapping[str, Any]]) -> tuple[float | None, dict[str, float]]:
    """Seconds of a step and each phase's share of it, over all records but the first, which has the warm-up."""
    total, count, sums = 0.0, 0, dict[str, float]()
    for before, record in pairwise(steps):
        made = record["step"] - before["step"]
        total, count = total + record["step_seconds"] * made, count + made
        for phase, seconds in record.get("phase_seconds", {}).items():
            if phase not in BETWEEN_STEPS:
                sums[phase] = sums.get(phase, 0.0) + seconds
    if not total:
        return None, {}
    return total / count, {phase: seconds / total for phase, seconds in sums.items()}
