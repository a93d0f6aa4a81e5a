"""Findings: what slows a step down or fills its memory, how we know, what to change, and what that should gain.

In: an `Evidence`, gathered from a trace, from measured steps, from a run's records, or from all of them. Out: findings,
the largest expected gain first. What is not known is None; a rule that needs it, or whose evidence is below its
threshold, reports nothing. The rules are the small functions of the table at the end.

    a run's steps.jsonl     phase_seconds {forward: 6, backward: 12, data_wait: 2} over 10 steps of 2 s each
    Evidence                step_seconds 2.0, phases {forward: .3, backward: .6, data_wait: .1}, strategy.prefetch 0
    ->  waiting-for-data: "10.0% of a step is spent waiting ..."   strategy.prefetch=4   expected gain 10.0% of the time

The gain is the share of today's time (or bytes) that would be saved: 0.3 turns 10 s into 7 s. Where a figure comes from
a rule of thumb, its constant says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Literal

from seqfit.profiling.tables import TraceSummary
from seqfit.recipe import Recipe
from seqfit.rundir import Run, records
from seqfit.strategy import Strategy, load_strategy
from seqfit.telemetry import summarise_gpus
from seqfit.units import format_bytes, format_count, format_seconds, format_share


class Cause(StrEnum):
    """Of a finding; its value is what is printed and stored."""

    WAITING_FOR_DATA = "waiting-for-data"
    PADDING = "padding"
    LOGITS = "logits"
    NEEDLESS_RECOMPUTE = "needless-recompute"
    TINY_BATCH = "tiny-batch"
    FP32 = "fp32"
    THROTTLING = "throttling"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    OVERSUBSCRIBED_THREADS = "oversubscribed-threads"
    OPTIMIZER_BOUND = "optimizer-bound"
    UNACCOUNTED = "unaccounted"
    OVERFITTING = "overfitting"
    # only in traces
    HOST_SYNCS = "host-syncs"
    SMALL_COPIES = "small-copies"
    UNPINNED_MEMORY = "unpinned-memory"
    COPIES = "copies"
    MEMORY_ALLOCATION = "memory-allocation"
    CPU_OPERATORS = "cpu-operators"
    LAUNCH_BOUND = "launch-bound"
    PYTHON = "python"
    UNFUSED_OPTIMIZER = "unfused-optimizer"
    EAGER_ATTENTION = "eager-attention"
    STRAGGLER = "straggler"
    COMMUNICATION = "communication"
    UNEXPLAINED = "unexplained"


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
    chunked_loss_bytes: int = 0  # what replaces the logits where the loss is chunked
    recompute_saves_bytes: int | None = None  # of activations, that gradient checkpointing (recompute) does not keep
    free_bytes: int | None = None
    throttled_shares: Mapping[str, float] = field(default_factory=dict)  # reason -> share of the samples
    training_losses: Sequence[tuple[int, float]] = ()  # step, loss
    validation_losses: Sequence[tuple[int, float]] = ()

    @property
    def computing(self) -> float | None:
        if "forward" not in self.phases:
            return None
        return self.phases["forward"] + self.phases.get("backward", 0.0)


def add_recipe(evidence: Evidence, recipe: Recipe, strategy: Strategy | None = None) -> Evidence:
    return replace(
        evidence,
        strategy=strategy or load_strategy(recipe),
        log_every=recipe.train.log_every,
        batch_examples=recipe.train.examples_per_step,
    )


def add_summary(evidence: Evidence, summary: TraceSummary) -> Evidence:
    """What a trace says of a recipe's steps; what slows them down is found in the trace itself (trace_findings.py)."""
    return replace(
        evidence,
        on_gpu=summary.on_gpu,
        operators_per_step=summary.operators_per_step or None,
        peak_bytes=summary.memory.peak_bytes if summary.memory else evidence.peak_bytes,
    )


def add_run_evidence(evidence: Evidence, run: Run) -> Evidence:
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
    made = [(after["step"] - before["step"], after) for before, after in pairwise(steps)]
    between = {name: sum(r.get("phase_seconds", {}).get(name, 0.0) for _, r in made) for name in records.BETWEEN_STEPS}
    total = sum(count * record["step_seconds"] for count, record in made) + sum(between.values())
    return between["snapshot"] / total if total else 0.0


def _read_phases(steps: Sequence[Mapping[str, Any]]) -> tuple[float | None, dict[str, float]]:
    """Seconds of a step and each phase's share of it, over all records but the first, which has the warm-up."""
    total, count, sums = 0.0, 0, dict[str, float]()
    for before, record in pairwise(steps):
        made = record["step"] - before["step"]
        total, count = total + record["step_seconds"] * made, count + made
        for phase, seconds in record.get("phase_seconds", {}).items():
            if phase not in records.BETWEEN_STEPS:
                sums[phase] = sums.get(phase, 0.0) + seconds
    if not total:
        return None, {}
    return total / count, {phase: seconds / total for phase, seconds in sums.items()}


OPERATOR_SECONDS = 3e-6  # overhead of a traced operator, Python included (benchmarks/diagnosis)
_CALLS_PER_ROW = 0.125  # in a packed micro-batch, relative to the calls that it has with any number of rows
WORTH = 0.05  # a smaller gain is within the variation between runs
_EVALUATION_SHARE = 0.1  # of a run's time, that evaluation may take
SAVING_SHARE = 0.1  # of a run's time, that snapshots may take
_FULL_LOSS_TENSORS = 3  # logits, their log-softmax and their gradient exist at once
_BF16_SAVES = 0.4  # of forward and backward: half the bytes and tensor cores; published figures lie around it
_CROWDING = 0.72  # while one thread waits for a core the others wait for it: 4, 8, 16 on 2 cores lose 58%, 62%, 69%
_FUSED_SAVES = 0.4  # of the time of an optimizer that updates one weight after the other
HEALTHY = 0.85  # share of the time in which kernels (on a CPU: operators) run: the rest varies between runs


@dataclass(frozen=True)
class Finding:
    cause: Cause
    sentence: str
    advice: str
    change: tuple[str, ...]  # overrides that can be pasted; empty where no setting helps
    gain: float  # share saved
    gain_of: Literal["time", "memory"] = "time"
    evidence: dict[str, float | str] = field(default_factory=dict)
    is_lossy: bool = False  # the resulting weights would differ by more than rounding
    gain_range: tuple[float, float] | None = None  # what the fix saves at worst and at best
    trainer: str = ""  # the same change for transformers' Trainer
    is_guess: bool = False  # the evidence does not say how much would be gained

    @classmethod
    def from_json(cls, stored: Any) -> Finding | None:
        """Of a profile's summary.json; None where it is something else."""
        known = {entry.name for entry in fields(cls)}
        try:
            kept = {name: value for name, value in stored.items() if name in known}
            cause, change, gain = Cause(kept["cause"]), tuple(kept["change"]), float(kept["gain"])
            return cls(**{**kept, "cause": cause, "change": change, "gain": gain})
        except (AttributeError, KeyError, TypeError, ValueError):
            return None


def find_in_run(run: Run, strategy: Strategy | None) -> list[Finding]:
    """From recipe, manifest and records; `strategy` is what the run used, where it is known."""
    stored = run.manifest.get("hardware")
    hardware = stored if isinstance(stored, Mapping) else {}
    known = Evidence(
        on_gpu=hardware.get("device") == "cuda",
        precision=run.manifest.get("precision"),
        threads=hardware.get("threads"),
        cores=hardware.get("cores"),
    )
    return find_findings(add_run_evidence(add_recipe(known, run.recipe, strategy), run))


def find_findings(evidence: Evidence, traced: Sequence[Finding] = ()) -> list[Finding]:
    """Also those of a trace whose cause was not measured without the profiler.

    The largest gain comes first; a larger global batch, which changes what is learned, after all that don't.
    """
    found = [finding for rule in RULES if (finding := rule(evidence)) is not None]
    known = {finding.cause for finding in found}
    found += [finding for finding in traced if finding.cause not in known]
    return sorted(found, key=lambda one: (any(word.startswith("train.batch_") for word in one.change), -one.gain))


def _waiting_for_data(e: Evidence) -> Finding | None:
    share = e.phases.get("data_wait", 0.0)
    if share < WORTH:
        return None
    ahead = e.strategy.prefetch
    sentence = f"{format_share(share)} of a step is spent waiting for the next batch"
    figures: dict[str, float | str] = {"data_wait_share": share, "prefetch": ahead}
    if ahead == 0:  # preparing batches during the step hides the shorter of the two
        advice, change = "Prepare batches in the background while the step runs", ("strategy.prefetch=4",)
        return Finding(Cause.WAITING_FOR_DATA, sentence, advice, change, min(share, 1 - share), evidence=figures)
    sentence += f", although {ahead} are prefetched: the source is slower than the step"
    advice = "Put the data on a faster disk, or prepare it once (SEQFIT_CACHE on a local disk)"
    return Finding(Cause.WAITING_FOR_DATA, sentence, advice, (), share, evidence=figures)


def _padding(e: Evidence) -> Finding | None:
    if e.padding_share is None or e.computing is None or e.strategy.batching == "packed":
        return None
    gain = e.padding_share * e.computing
    if gain < WORTH:
        return None
    return Finding(
        Cause.PADDING,
        f"{format_share(e.padding_share)} of all tokens are padding ({e.strategy.batching} batches)",
        "Compute real tokens only (packed batches)",
        ("strategy.batching=packed",),
        gain,
        evidence={"padding_share": e.padding_share, "computing_share": e.computing},
    )


def _logits(e: Evidence) -> Finding | None:
    if e.logits_bytes is None or not e.peak_bytes or e.strategy.loss != "full":
        return None
    held = _FULL_LOSS_TENSORS * e.logits_bytes
    gain = (min(held, e.peak_bytes) - e.chunked_loss_bytes) / e.peak_bytes
    if gain < 0.1:
        return None
    return Finding(
        Cause.LOGITS,
        f"the logits of a micro-batch need {format_bytes(e.logits_bytes)}, and the full loss keeps "
        f"{_FULL_LOSS_TENSORS} tensors of that size, out of a peak of {format_bytes(e.peak_bytes)}",
        "Compute head and loss in chunks, so that all logits never exist at once",
        ("strategy.loss=chunked",),
        gain,
        "memory",
        {"logits_bytes": e.logits_bytes, "peak_bytes": e.peak_bytes},
    )


def _needless_recompute(e: Evidence) -> Finding | None:
    if e.strategy.recompute == "none" or e.recompute_saves_bytes is None or e.free_bytes is None:
        return None
    forward = e.phases.get("forward", 0.0) * (1.0 if e.strategy.recompute == "blocks" else 0.5)
    if e.recompute_saves_bytes > 0.8 * e.free_bytes or forward < WORTH:
        return None
    return Finding(
        Cause.NEEDLESS_RECOMPUTE,
        f"gradient checkpointing (activation recomputation) saves about {format_bytes(e.recompute_saves_bytes)}, but "
        f"{format_bytes(e.free_bytes)} are free",
        "Keep the activations",
        ("strategy.recompute=none",),
        forward,
        evidence={"saves_bytes": e.recompute_saves_bytes, "free_bytes": e.free_bytes},
    )


def _tiny_batch(e: Evidence) -> Finding | None:
    if e.operators_per_step is None or not e.step_seconds or not e.micro_batches or not e.tokens_per_micro_batch:
        return None
    rows = e.batch_examples or 8 * e.micro_batches
    per_row = _CALLS_PER_ROW * rows / e.micro_batches if e.strategy.batching == "packed" else 0.0
    calls = e.operators_per_step / (1 + per_row)  # without those of each row, which a larger micro-batch has as well
    overhead = min(calls * OPERATOR_SECONDS / e.step_seconds, 0.9)
    fitting = max(e.strategy.micro_batch_tokens / e.tokens_per_micro_batch, 1)
    change, fewer, changes = _larger_batch(e, fitting)
    updating = e.phases.get("optimizer", 0.0) if changes else 0.0  # of a larger global batch there are fewer updates
    gain = min(overhead + updating, 0.95) * (1 - 1 / fewer)
    if gain < (0.3 if changes else 0.1) or not change:  # a different update has to be worth more
        return None
    return Finding(
        Cause.TINY_BATCH,
        f"micro-batches of {format_count(e.tokens_per_micro_batch)} tokens are too small: "
        f"{format_share(overhead)} of a step is the overhead of {format_count(calls)} operator calls",
        "Increase the global batch (the update differs)" if changes else "Split it into fewer micro-batches",
        change,
        gain,
        evidence={"overhead_share": overhead, "tokens_per_micro_batch": e.tokens_per_micro_batch},
        is_lossy=changes,
    )


def _larger_batch(e: Evidence, fitting: float) -> tuple[tuple[str, ...], float, bool]:
    """The change, by what factor there are fewer micro-batches for the same tokens, and whether the update differs."""
    pieces = e.micro_batches or 1
    if pieces > 1 and e.strategy.micro_batch_examples is not None:
        return ("~strategy.micro_batch_examples",), min(pieces, fitting), False
    if pieces > 1:
        tokens = math.ceil((e.tokens_per_micro_batch or 1) * pieces)
        return (f"strategy.micro_batch_tokens={tokens}",), pieces, False
    if e.batch_examples is None or fitting < 2:
        return (), 1.0, False
    factor = min(math.floor(fitting), 16)
    return (f"train.batch_examples={e.batch_examples * factor}",), factor, True


def _fp32(e: Evidence) -> Finding | None:
    if not e.on_gpu or not e.has_bf16 or e.precision != "fp32" or e.computing is None:
        return None
    return Finding(
        Cause.FP32,
        "the step computes in fp32, and the GPU supports bf16",
        "Compute in bf16 (weights and updates stay fp32)",
        ("strategy.precision=bf16",),
        _BF16_SAVES * e.computing,
        evidence={"computing_share": e.computing},
        is_lossy=True,
    )


def _throttling(e: Evidence) -> Finding | None:
    slowed = {reason: share for reason, share in e.throttled_shares.items() if share >= 0.1}
    if not slowed:
        return None
    worst = max(slowed, key=lambda reason: slowed[reason])
    return Finding(
        Cause.THROTTLING,
        f"the GPU throttles for {format_share(slowed[worst])} of the time ({worst})",
        "Cool it better or raise its power limit (nvidia-smi -pl); figures of such a run can't be compared",
        (),
        0.1 * slowed[worst],  # clocks fall by about a tenth at a limit; the samples say when, not how far
        evidence=dict(slowed),
    )


def _evaluation(e: Evidence) -> Finding | None:
    if not e.evaluation_seconds or not e.evaluate_every or not e.step_seconds:
        return None
    trained = e.evaluate_every * e.step_seconds
    share = e.evaluation_seconds / (e.evaluation_seconds + trained)
    if share < 2 * _EVALUATION_SHARE:
        return None
    every = math.ceil(e.evaluation_seconds * (1 / _EVALUATION_SHARE - 1) / e.step_seconds)
    return Finding(
        Cause.EVALUATION,
        f"an evaluation of {format_seconds(e.evaluation_seconds)} every {e.evaluate_every} steps takes "
        f"{format_share(share)} of the run",
        "Evaluate less often, or on fewer rows (eval.limit)",
        (f"eval.every_steps={every}",),
        1 - (1 - share) / (1 - _EVALUATION_SHARE),
        evidence={"evaluation_seconds": e.evaluation_seconds, "evaluate_every": e.evaluate_every},
    )


def _saving(e: Evidence) -> Finding | None:
    if e.saving_share is None or e.saving_share < SAVING_SHARE:
        return None
    rarely = 1 - (1 - e.saving_share) / (1 - SAVING_SHARE / 10)
    return Finding(
        Cause.CHECKPOINT,
        f"writing snapshots takes {format_share(e.saving_share)} of the run, while no step runs",
        "Write them less often: with one every ten minutes little is lost",
        ("~train.snapshot.every_steps", "train.snapshot.every_minutes=10"),
        rarely,
        evidence={"saving_share": e.saving_share},
        gain_range=(rarely / 2, e.saving_share),
    )


def _oversubscribed(e: Evidence) -> Finding | None:
    if e.on_gpu or e.threads is None or e.cores is None or e.threads <= e.cores:
        return None
    return Finding(
        Cause.OVERSUBSCRIBED_THREADS,
        f"{e.threads} threads share {e.cores} cores and wait for each other at the end of every operator",
        "Use as many threads as there are cores",
        (f"strategy.threads={e.cores}",),
        _CROWDING * (1 - (e.cores / e.threads) ** 2),
        evidence={"threads": e.threads, "cores": e.cores},
    )


def _optimizer_bound(e: Evidence) -> Finding | None:
    share = e.phases.get("optimizer", 0.0)
    if share < (2 * WORTH if e.strategy.optimizer_kernel == "loop" else 0.3):
        return None
    sentence = f"the optimizer takes {format_share(share)} of a step"
    figures: dict[str, float | str] = {"optimizer_share": share}
    if e.strategy.optimizer_kernel == "loop":
        advice, change = "Update all weights in one kernel", ("strategy.optimizer_kernel=auto",)
        return Finding(Cause.OPTIMIZER_BOUND, sentence, advice, change, _FUSED_SAVES * share, evidence=figures)
    if e.batch_examples is None:
        return None
    advice = "Update less often, with a larger global batch (the update differs)"
    change = (f"train.batch_examples={2 * e.batch_examples}",)
    return Finding(Cause.OPTIMIZER_BOUND, sentence, advice, change, share / 2, evidence=figures, is_lossy=True)


def _unaccounted(e: Evidence) -> Finding | None:
    """A step that is longer than its phases is never called healthy."""
    rest = 1 - sum(e.phases.values())
    if not e.phases or rest < 1 - HEALTHY:
        return None
    return Finding(
        Cause.UNACCOUNTED,
        f"{format_share(rest)} of a step belongs to none of its phases: hooks, callbacks, logging or other Python code",
        "Look at the Python functions in the trace (open it in ui.perfetto.dev)",
        (),
        0.0,
        evidence={"rest_share": rest},
        gain_range=(0.0, rest),
        is_guess=True,
    )


def _overfitting(e: Evidence) -> Finding | None:
    if len(e.validation_losses) < 3 or len(e.training_losses) < 2:
        return None
    best_step, best = min(e.validation_losses, key=lambda point: point[1])
    later = [loss for step, loss in e.validation_losses if step > best_step]
    before = [loss for step, loss in e.training_losses if step <= best_step]
    last_step, last = e.training_losses[-1]
    if len(later) < 2 or later[-1] < 1.02 * best or not before or last >= before[-1]:
        return None
    return Finding(
        Cause.OVERFITTING,
        f"since step {best_step} the validation loss rises ({best:.3f} to {later[-1]:.3f}) while the training loss "
        f"falls ({before[-1]:.3f} to {last:.3f})",
        "Stop when the score no longer improves; more data, dropout or a lower learning rate help the model itself",
        ("eval.early_stopping.patience=2",),
        1 - best_step / last_step,
        evidence={"best_step": best_step, "best_loss": best, "last_loss": later[-1]},
    )


RULES: tuple[Callable[[Evidence], Finding | None], ...] = (
    *(_waiting_for_data, _padding, _logits, _needless_recompute, _tiny_batch, _fp32, _throttling),
    *(_evaluation, _saving, _oversubscribed, _optimizer_bound, _unaccounted, _overfitting),
)
