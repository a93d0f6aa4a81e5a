"""What one fresh process does: a `Run` comes in as JSON, what it measured goes out as JSON.

    ours         `seqfit train`'s own job, step by step
    dynamic, dynamic-8, max_length, grouped        the Trainer, by how it pads and orders
    attention    attention alone at the workload's lengths, stock and ours
    stock        stock T5's peak memory by fake execution

The batches of a repeat follow those of the repeat before it, and both sides see the same ones: with 1 + 2 steps a
repeat, repeat 0 takes global batches 0 1 2 of our loader, repeat 1 takes 3 4 5. Only `grouped` has an order of its own.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.engine.flops import count_step_flops, measure_matmul_rate
from benchmarks.engine.workloads import LEARNING_RATE, MODELS, WORKLOADS, build_recipe, prepare_files
from seqfit.data.tokenized import PreparedData
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe
from seqfit.training.setup import TrainingSetup, build_setup, resolve_recipe
from seqfit.training.view import SilentView
from seqfit.validation import load_checked_recipe

TRAINER_SIDES = ("dynamic", "dynamic-8", "max_length", "grouped")


@dataclass(frozen=True)
class Run:
    """One process's work."""

    side: str
    workload: str
    warmup: int
    steps: int
    repeat: int
    work: str
    strategy: tuple[str, ...] = ()  # "key=value" on top of the recipe's defaults
    learning_rate: float = LEARNING_RATE
    dropout: float | None = None
    batch_examples: int | None = None
    trim: bool = False
    matmul: bool = False  # also measure torch.mm between the steps
    float64: bool = False  # instead of fp32, on both sides

    @property
    def first_step(self) -> int:
        """Number of global batches that earlier repeats take."""
        return self.repeat * (self.warmup + self.steps)

    def batches_path(self) -> Path:
        """Where the Trainer's batches of this run are."""
        order = "grouped" if self.side == "grouped" else "ours"
        size = f"{self.examples}x{self.warmup}+{self.steps}"
        return Path(self.work) / f"{self.workload}-{order}-{size}-{self.repeat}.json"

    @property
    def examples(self) -> int:
        """Of one global batch."""
        return self.batch_examples or WORKLOADS[self.workload].batch_examples

    def recipe(self) -> dict[str, Any]:
        """As `seqfit train` would read it, without the strategy's overrides."""
        recipe = build_recipe(self.workload, Path(self.work), dropout=self.dropout, trim=self.trim)
        recipe["train"] |= {"batch_examples": self.examples, "learning_rate": self.learning_rate}
        return recipe

    def to_json(self) -> str:
        """For the command line of a process."""
        return json.dumps(asdict(self))


def load_run(text: str) -> Run:
    """What `to_json` wrote."""
    values = json.loads(text)
    return Run(**values | {"strategy": tuple(values["strategy"])})


def measure_side(run: Run) -> dict[str, Any]:
    """Does the run in this process."""
    if run.side == "ours":
        return measure_ours(run)
    if run.side in TRAINER_SIDES:
        return measure_trainer(run)
    return measure_lengths_alone(run)


def build(run: Run) -> tuple[TrainingSetup, PreparedData]:
    """Our job, as `seqfit train` builds it."""
    recipe = load_checked_recipe(run.recipe(), [f"strategy.{item}" for item in run.strategy])
    return build_setup(resolve_recipe(recipe), SilentView())


def prepare(runs: list[Run]) -> None:
    """What is built once and must not be in a measured process: models, made data, tokenized rows, batches."""
    for workload in dict.fromkeys(run.workload for run in runs):
        prepare_files(workload, Path(runs[0].work))
        here = [run for run in runs if run.workload == workload]
        for trim in {run.trim for run in here if run.side == "ours"}:
            build(replace(here[0], trim=trim))  # leaves its tokenized rows in the cache
        write_batches([run for run in here if run.side in TRAINER_SIDES])


def write_batches(runs: list[Run]) -> None:
    """Token ids of the Trainer's batches, taken from our loader or, for `grouped`, from the Trainer's sampler."""
    if not runs:
        return
    job, data = build(runs[0])
    split = data.splits["train"]
    for run in runs:
        if run.side == "grouped":
            chosen = _choose_grouped(run, split.source_lengths.tolist())
        else:
            ours = islice(job.loader.iterate(run.first_step), run.warmup + run.steps)
            chosen = [batch.rows.tolist() for batch in ours]
        batches = [[[ids.tolist() for ids in split.token_ids(row)] for row in batch] for batch in chosen]
        run.batches_path().write_text(json.dumps(batches))


def _choose_grouped(run: Run, source_lengths: list[int]) -> list[list[int]]:
    from benchmarks.trainer import choose_grouped_batches

    return choose_grouped_batches(source_lengths, run.examples, warmup=run.warmup, steps=run.steps, seed=run.repeat)


def measure_ours(run: Run) -> dict[str, Any]:
    """Our steps, and the memory that building and training took."""
    before_bytes = read_memory_bytes("VmRSS")
    job, data = build(run)
    job.step.model.train()
    if run.float64:
        make_float64(job)
    vocabulary = job.generator.model.config.vocab_size
    if run.trim and vocabulary == MODELS[WORKLOADS[run.workload].model]["vocab_size"]:
        raise SystemExit("model.trim_vocabulary=data left the vocabulary as it was: there is nothing to compare.")
    steps = time_steps(run, job, data)
    facts = {"strategy": job.strategy.model_dump(mode="json"), "vocabulary": vocabulary, "events": job.events}
    return steps | facts | {"before_bytes": before_bytes, "peak_bytes": read_memory_bytes("VmHWM")}


def make_float64(job: TrainingSetup) -> None:
    """Weights, and what the optimizer has made for them already."""
    job.step.model.double()
    for state in job.step.optimizer.state.values():
        state |= {name: value.double() for name, value in state.items() if name != "step"}


def time_steps(run: Run, job: TrainingSetup, data: PreparedData) -> dict[str, Any]:
    """Lists with one entry a step. The loading of a batch is part of its step's seconds."""
    split, config = data.splits["train"], job.generator.model.config.to_dict()
    steps: dict[str, list[Any]] = {"seconds": [], "load_seconds": [], "losses": []}
    steps |= {"real_tokens": [], "flops": [], "matmul": []}
    count = run.warmup + run.steps
    batches = job.loader.prefetch(run.first_step, count, job.strategy.prefetch, pin=False)
    for _ in range(count):
        started = time.perf_counter()
        batch = next(batches)
        loaded = time.perf_counter()
        loss = float(job.step.run(batch).loss)
        steps["seconds"].append(time.perf_counter() - started)
        steps["load_seconds"].append(loaded - started)
        steps["losses"].append(loss)
        steps["real_tokens"].append(batch.source_tokens + batch.target_tokens)
        lengths = zip(split.source_lengths[batch.rows].tolist(), split.target_lengths[batch.rows].tolist(), strict=True)
        steps["flops"].append(count_step_flops(config, lengths))
        if run.matmul:
            steps["matmul"].append(measure_matmul_rates(steps["real_tokens"][-1] // len(batch.micro_batches)))
    return steps


def measure_matmul_rates(micro_batch_tokens: int) -> dict[str, float]:
    """At the micro-batch's size and at 4,096 rows."""
    return {str(tokens): measure_matmul_rate(tokens) for tokens in (micro_batch_tokens, 4096)}


def measure_trainer(run: Run) -> dict[str, Any]:
    """The Trainer on the batches that were prepared."""
    # Not above: our side's memory must not count the Trainer's imports.
    from benchmarks import trainer

    batches = json.loads(run.batches_path().read_text())
    recipe = ModelRecipe.model_validate(run.recipe()["model"])
    tokenizer = load_tokenizer(recipe)
    before_bytes = read_memory_bytes("VmRSS")
    model = load_model(recipe)
    steps = trainer.train_baseline(
        trainer.make_float64(model) if run.float64 else model,
        tokenizer,
        batches,
        learning_rate=run.learning_rate,
        pad_to=WORKLOADS[run.workload].limits if run.side == "max_length" else None,
        pad_multiple=8 if run.side == "dynamic-8" else None,
    )
    return asdict(steps) | {"before_bytes": before_bytes, "peak_bytes": read_memory_bytes("VmHWM")}


def measure_lengths_alone(run: Run) -> dict[str, Any]:
    """The attention's time alone, or stock T5's memory, at the lengths of the workload."""
    from benchmarks.engine.long_source import estimate_stock_peak_bytes, measure_attention_seconds

    workload = WORKLOADS[run.workload]
    config, limits = MODELS[workload.model], workload.limits
    assert limits is not None
    if run.side == "attention":
        return {"attention_seconds": measure_attention_seconds(config, *limits)}
    return {"peak_bytes": estimate_stock_peak_bytes(config, *limits)}


def read_memory_bytes(name: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process (Linux)."""
    status = Path("/proc/self/status").read_text("utf-8")
    line = next(line for line in status.splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
