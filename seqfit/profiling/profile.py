"""`seqfit.profile(recipe)`: measure a few steps, profile a few more, report findings, optionally prove the first.

In: a recipe. Out: a `Profile`; and in the output folder trace.json.gz, for Perfetto, and summary.json, with all tables,
the evidence and the findings.

A proof applies the change of a finding and measures again. Both sides are built again for every repeat and alternate,
so that a machine that becomes slower affects both:

    before 1.00 s   after 0.72 s   before 1.10 s   after 0.80 s   before 1.02 s   after 0.74 s
    gains  28.0%                   27.3%                          27.5%              ->  measured 27.5%, in all repeats

Time is per real token, with evaluation's share, so that batches of different sizes compare. A gain in memory is that of
a step's peak without weights and optimizer state.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from seqfit.errors import RecipeError
from seqfit.kernels import CHUNK_BYTES
from seqfit.model import find_blocks
from seqfit.profiling.capture import capture, find_sync_lines, name_lines
from seqfit.profiling.findings import Cause, Evidence, Finding, add_recipe, add_run_evidence, add_summary, find_findings
from seqfit.profiling.host import HostTimeline
from seqfit.profiling.isolated import report_stage
from seqfit.profiling.measure import Measurement, measure_training_steps
from seqfit.profiling.tables import Diagnosis, Phases, TraceSummary, build_timeline, diagnose, summarise_trace
from seqfit.profiling.trace_findings import find_in_trace
from seqfit.recipe import Recipe, load_recipe
from seqfit.rundir import Run, files, write_json
from seqfit.system import usable_cores
from seqfit.training import SilentView, TrainingSetup, TrainingView, build_setup, resolve_recipe
from seqfit.validation import load_checked_recipe

TRACE = "trace.json.gz"
_LIGHT_TRACE = "trace-without-stacks.json.gz"
_KEPT_VALUES = 17  # per block, token and channel: 34 bytes in 16 bits (Korthikanti et al. 2022, section 4)
_FP32_BYTES = 4
PROOF_REPEATS = 3
_TRACED_STEPS = 3  # a step with Python stacks takes about ten times as long, and its events megabytes
Build = Callable[[Recipe], TrainingSetup]


@dataclass(frozen=True)
class Proof:
    """A finding that was tested. Values are seconds per token, or bytes."""

    finding: Finding
    before: list[float]
    after: list[float]

    @property
    def gains(self) -> list[float]:
        return [1 - after / before for before, after in zip(self.before, self.after, strict=True)]

    @property
    def measured_gain(self) -> float:
        return statistics.median(self.gains)

    @property
    def is_confirmed(self) -> bool:
        return min(self.gains) > 0


@dataclass(frozen=True)
class Profile:
    summary: TraceSummary
    measurement: Measurement
    evidence: Evidence
    findings: list[Finding]
    trace: Path
    proof: Proof | None = None

    @property
    def tracing_factor(self) -> float:
        """How many times as long a step takes while it is traced."""
        return self.summary.step_seconds / self.measurement.step_seconds

    def to_json(self) -> dict[str, Any]:
        proof = self.proof
        return {
            "summary": self.summary.to_json(),
            "measurement": asdict(self.measurement),
            "tracing_factor": self.tracing_factor,
            "evidence": asdict(self.evidence) | {"strategy": self.evidence.strategy.model_dump()},
            "findings": [asdict(finding) for finding in self.findings],
            "proof": proof and asdict(proof) | {"measured_gain": proof.measured_gain, "confirmed": proof.is_confirmed},
        }


def profile(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    steps: int = 5,
    out: str | Path = "profile",
    prove_first: bool = False,
    view: TrainingView | None = None,
    build: Build | None = None,
) -> Profile:
    """Profile a recipe; for a run directory, the records of its run are also evidence."""
    run = Run(recipe) if isinstance(recipe, str | Path) and (Path(recipe) / files.MANIFEST).is_file() else None
    loaded, shown = load_checked_recipe(recipe, overrides), view or SilentView()
    build = build or (lambda wanted: build_setup(resolve_recipe(wanted), shown)[0])
    report_stage("building the model and its data")
    setup = build(loaded)
    _begin(shown, "measuring", "timing steps")
    measurement = measure_training_steps(setup, steps)
    trace = Path(out) / TRACE
    _begin(shown, "profiling", f"running torch's profiler over {min(steps, _TRACED_STEPS)} steps")
    captured = capture(setup, trace, min(steps, _TRACED_STEPS))
    report_stage("reading the trace")
    diagnosis = diagnose(captured)
    report_stage("looking for lines that read values on the host")
    diagnosis = replace(diagnosis, syncs=name_lines(diagnosis.syncs, find_sync_lines(setup)))
    summary = summarise_trace(diagnosis)
    evidence = gather(setup, measurement, summary)
    if run is not None:
        evidence = add_run_evidence(evidence, run)
    findings = find_findings(evidence, _find_in_steps(setup, diagnosis, Path(out), min(steps, _TRACED_STEPS)))
    del setup  # a proof builds its own, and both may not fit in memory
    _begin(shown, "proving", "measuring the change of the first finding")
    provable = next((finding for finding in findings if finding.change), None)
    proof = prove(loaded, provable, build, steps=steps) if prove_first and provable else None
    result = Profile(summary, measurement, evidence, findings, trace, proof)
    write_json(Path(out) / files.PROFILE_SUMMARY, result.to_json())
    return result


def _find_in_steps(setup: TrainingSetup, diagnosis: Diagnosis, out: Path, steps: int) -> list[Finding]:
    """Findings of the trace; on a GPU of one without stacks, which would slow the host down tenfold.

    On a CPU only host syncs: everything else is known from the steps that were not traced.
    """
    if not diagnosis.trace.on_gpu:
        return [finding for finding in find_in_trace(diagnosis) if finding.cause == Cause.HOST_SYNCS]
    report_stage("running torch's profiler again, without stacks")
    light = diagnose(capture(setup, out / _LIGHT_TRACE, steps, stacks=False, memory=False))
    return find_in_trace(replace(light, syncs=light.syncs and diagnosis.syncs))


def _begin(view: TrainingView, name: str, what: str) -> None:
    view.progress(name, 0, None)
    report_stage(what)


def gather(setup: TrainingSetup, measurement: Measurement, summary: TraceSummary) -> Evidence:
    device, precision = setup.step.precision.device, setup.step.precision.name
    on_gpu = device.type == "cuda"
    vocabulary = getattr(setup.generator.model.config, "vocab_size", None) or 0
    logits_bytes = measurement.largest_targets * vocabulary * _FP32_BYTES
    head = setup.generator.model.get_output_embeddings()  # the chunked loss holds its gradient from the forward on
    head_bytes = 0 if head is None else head.weight.numel() * _FP32_BYTES
    evidence = Evidence(
        precision=precision,
        has_bf16=on_gpu and "bf16" in setup.recipe.allow and torch.cuda.is_bf16_supported(including_emulation=False),
        threads=torch.get_num_threads(),
        cores=usable_cores(),
        step_seconds=measurement.step_seconds,
        phases=measurement.phases,
        padding_share=measurement.padding_share,
        micro_batches=measurement.micro_batches,
        tokens_per_micro_batch=measurement.tokens_per_micro_batch,
        evaluation_seconds=measurement.evaluation_seconds,
        evaluate_every=measurement.evaluate_every,
        logits_bytes=logits_bytes or None,
        chunked_loss_bytes=2 * min(logits_bytes, CHUNK_BYTES) + head_bytes,
        recompute_saves_bytes=_estimate_kept_bytes(setup, measurement),
        free_bytes=torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available,
    )
    return add_summary(add_recipe(evidence, setup.recipe, setup.strategy), summary)


def _estimate_kept_bytes(setup: TrainingSetup, measurement: Measurement) -> int | None:
    """Of the blocks' activations of a micro-batch, without gradient checkpointing (recompute)."""
    width = getattr(setup.generator.model.config, "hidden_size", None)
    if setup.strategy.recompute == "none" or width is None:
        return None
    blocks = len(find_blocks(setup.generator.model, "strategy.recompute"))
    return int(measurement.tokens_per_micro_batch * width * blocks * _KEPT_VALUES * _FP32_BYTES)


def prove(recipe: Recipe, finding: Finding, build: Build, *, steps: int, repeats: int = PROOF_REPEATS) -> Proof:
    if not finding.change:
        raise RecipeError(
            f"the finding is {finding.cause}",
            "no setting of a recipe fixes it, so it can't be tried automatically",
            finding.advice,
        )
    changed = load_recipe(recipe, finding.change)
    before: list[float] = []
    after: list[float] = []
    for _ in range(repeats):
        for side, values in ((recipe, before), (changed, after)):
            values.append(_measure(build(side), steps, finding))
            gc.collect()  # a model's modules refer to each other: the next one needs the memory
    return Proof(finding, before, after)


def _measure(setup: TrainingSetup, steps: int, finding: Finding) -> float:
    if finding.gain_of != "memory":
        return measure_training_steps(setup, steps, evaluate=finding.cause == Cause.EVALUATION).seconds_per_token
    with tempfile.TemporaryDirectory(prefix="seqfit-prove-") as folder:
        trace = capture(setup, Path(folder) / "trace.json", min(steps, 2), stacks=False)
    timeline = build_timeline(trace, Phases(trace, HostTimeline(trace)))
    assert timeline is not None  # a step always allocates
    return timeline.peak_bytes
