"""How far predictions are from speeds that others published: predicts each row, prints the table.

    python benchmarks/published_speed/measure.py               # all rows that count, without a GPU
    python benchmarks/published_speed/measure.py lam-3090      # those whose id begins so
    python benchmarks/published_speed/measure.py table         # README.md from existing results

In: rows.csv and sources.yaml. Out: results/rows.jsonl and the table. The code is a plan's own: the step on fake
tensors, the template of its shapes, the GPU's rates, what several GPUs communicate. Steps that differ only in the GPU
or in the size of the micro-batch are traced once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too


from benchmarks.engine.table import update_readme
from benchmarks.published_speed.rows import Row, find_pairs, list_counted, read_rows
from seqfit.hardware import Achieved, load_cards
from seqfit.model import ModelConfig
from seqfit.planning.cluster import ONE_GPU, Cluster, GpuLayout
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.shape import Shape, uniform
from seqfit.planning.step_model import StepModel
from seqfit.planning.timing import Rates, rates_of_card
from seqfit.recipe import ModelRecipe, TrainRecipe
from seqfit.strategy import Strategy

HERE = Path(__file__).parent
RESULTS, LEFT_OUT = HERE / "results" / "rows.jsonl", HERE / "results" / "left_out.json"
MEAN_LIMIT, WITHIN, WITHIN_SHARE = 0.20, 0.40, 0.90
LOOP = ("bertadam", "adamw", "adafactor")  # optimizers that went through weights one by one

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares predicted with published speeds.")
    parser.add_argument("rows", nargs="*", help="beginnings of rows' ids, or table; default: all")
    wanted = parser.parse_args().rows
    counted = list_counted(read_rows())
    if wanted != ["table"]:
        kept = {result["id"]: result for result in read_results()}
        for row in counted:
            if not wanted or row.id.startswith(tuple(wanted)):
                kept[row.id] = describe(row)
                print(format_row(row, kept[row.id]), file=sys.stderr, flush=True)
        write_results([kept[row.id] for row in counted if row.id in kept])
    table = format_table(read_rows(), read_results())
    print(table)
    update_readme(HERE / "README.md", table)


def predict_step_seconds(row: Row, achieved: Achieved | None = None) -> float:
    """Of a global batch."""
    rates = find_rates(row, achieved)
    model = build_step_model(row)
    steps = [[find_shape(row)] * row.accumulation]
    work = model.rank_work(steps, float(model.step_seconds(steps, rates)[0]), rates)
    if row.precision == "fp16-weights":  # its optimizer updates fp32 copies
        full = build_step_model(replace(row, precision="fp32"))
        update = full.rank_work(steps, float(full.step_seconds(steps, rates)[0]), rates).update_seconds
        work = replace(work, update_seconds=update)
    card = load_cards()[row.gpu]
    layout = ONE_GPU if row.gpus == 1 else GpuLayout("ddp", row.gpus)
    seconds, _ = work.predict_step(layout, Cluster(card, row.gpus, per_machine=16).link(row.gpus))
    return seconds


def find_rates(row: Row, achieved: Achieved | None) -> Rates:
    precision = {"fp16-weights": "fp16"}.get(row.precision, row.precision)
    return rates_of_card(load_cards()[row.gpu], precision, achieved)


def find_shape(row: Row) -> Shape:
    assert row.examples is not None
    assert row.source_tokens is not None
    return uniform(row.examples, row.source_tokens, row.target_tokens, packed=False)


_traced: dict[tuple[object, ...], StepModel] = {}


def build_step_model(row: Row) -> StepModel:
    """Traced once for all micro-batches of several examples of a length, and once for one."""
    precision = "fp32" if row.precision == "tf32" else row.precision
    described = (row.model, row.head, row.source.dropout, precision, row.optimizer, row.recompute, row.compiled)
    key = (*described, row.source_tokens, row.target_tokens, row.examples == 1)
    if key not in _traced:
        _traced[key] = StepModel(FakeStep(build_subject(row)), find_shape(row))
    return _traced[key]


def build_subject(row: Row) -> StepSpec:
    """A row in the words of a recipe and a strategy: what everybody ran, padded batches and eager attention."""
    recipe = _describe_model(row)
    model_config = ModelConfig.load(recipe, may_be_known=True)
    kernel = "auto" if row.optimizer == "adafactor" else "loop" if row.optimizer in LOOP else "fused"
    strategy = {
        "batching": "padded",
        "attention": "eager",
        "loss": "full",
        "recompute": row.recompute,
        "optimizer_kernel": kernel,
        "compile": row.compiled,
    }
    optimizer = "adafactor" if row.optimizer == "adafactor" else "adamw"
    return StepSpec(
        model_config=model_config,
        model=recipe,
        train=TrainRecipe.model_validate({"optimizer": {"name": optimizer}}),
        strategy=Strategy.model_validate(strategy),
        precision=row.precision if row.precision in ("bf16", "fp16") else "fp32",
        rules=rules_for("gpu", torch_version="1.13"),
        weights="float16" if row.precision == "fp16-weights" else "float32",  # apex's O2 casts nothing
    )


def _describe_model(row: Row) -> ModelRecipe:
    kind = "text-to-text" if row.head == "text" else "classifier"
    fields = {"name": row.model, "kind": kind, "weights": "random", "dropout": row.source.dropout}
    return ModelRecipe.model_validate(fields)


def describe(row: Row) -> Result:
    seconds = predict_step_seconds(row)
    return {"id": row.id, "step_seconds": seconds, "examples_per_second": row.step_examples / seconds}


def find_error(row: Row, result: Result) -> float:
    """Of the predicted speed, as a share of what was published."""
    return float(result["examples_per_second"] / row.examples_per_second - 1)


def read_results() -> list[Result]:
    """None where nothing was predicted yet."""
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []


def write_results(results: Sequence[Result]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("".join(json.dumps(result) + "\n" for result in results), "utf-8")


def format_table(rows: Sequence[Row], results: Sequence[Result]) -> str:
    """Markdown: the rows that count, the three targets, the rows that do not count, and what was assumed."""
    if not results:
        return "Nothing has been predicted yet."
    found = {result["id"]: result for result in results}
    counted = [row for row in list_counted(rows) if row.id in found]
    errors = [abs(find_error(row, found[row.id])) for row in counted]
    mean, share = statistics.fmean(errors), sum(error <= WITHIN for error in errors) / len(errors)
    others: dict[str, int] = {}
    for row in rows:
        if row.why_not_counted:
            others[row.why_not_counted] = others.get(row.why_not_counted, 0) + 1
    sources = {row.source.name: row.source for row in counted}
    return "\n".join(
        [
            "| row | step | GPU | published | predicted | error |",
            "|---|---|---|---|---|---|",
            *(format_row(row, found[row.id]) for row in counted),
            "",
            f"- mean absolute error of {len(errors)} rows: {mean:.1%}; must be {MEAN_LIMIT:.0%}: "
            + _verdict(mean <= MEAN_LIMIT),
            f"- within {WITHIN:.0%}: {share:.1%} of the rows; must be {WITHIN_SHARE:.0%}: "
            + _verdict(share >= WITHIN_SHARE),
            *format_orders(counted, found),
            *([f"- {format_left_out(json.loads(LEFT_OUT.read_text('utf-8')))}"] if LEFT_OUT.exists() else []),
            "",
            "By source: " + "; ".join(_describe_source(name, counted, found) for name in sources) + ".",
            "",
            f"Not counted, {sum(others.values())} rows: "
            + ", ".join(f"{why} {count}" for why, count in sorted(others.items()))
            + ".",
            "",
            "Assumed, of all rows of a source:",
            *(f"- {name}: {source.assumed} ({source.url})" for name, source in sources.items()),
        ]
    )


def _verdict(reached: bool) -> str:
    return "reached" if reached else "**not reached**"


def format_left_out(errors: Mapping[str, Any]) -> str:
    """Of rows predicted by figures that their source had no part in."""
    sources = ", ".join(f"{name} {mean:.0%}" for name, mean in errors["sources"].items())
    share = f"within {WITHIN:.0%}: {errors['within']:.1%}"
    return f"each source left out while figures are fitted: {errors['mean']:.1%} on average, {share} ({sources})"


def _describe_source(name: str, rows: Sequence[Row], found: Mapping[str, Result]) -> str:
    errors = [find_error(row, found[row.id]) for row in rows if row.source.name == name]
    return (
        f"{name} {statistics.fmean(map(abs, errors)):.0%} ({statistics.fmean(errors):+.0%} on average, {len(errors)})"
    )


def format_orders(rows: Sequence[Row], found: Mapping[str, Result]) -> list[str]:
    lines = []
    for kind in ("GPU", "precision"):
        pairs = [(fast, slow) for what, fast, slow in find_pairs(rows) if what == kind]
        wrong = [
            f"{fast.id} before {slow.id}"
            for fast, slow in pairs
            if found[fast.id]["examples_per_second"] <= found[slow.id]["examples_per_second"]
        ]
        lines.append(
            f"- order by {kind}: {len(pairs) - len(wrong)} of {len(pairs)} right: "
            + _verdict(not wrong)
            + (f" ({'; '.join(wrong)})" if wrong else "")
        )
    return lines


def format_row(row: Row, result: Result) -> str:
    lengths = f"{row.source_tokens}" + ("" if row.target_tokens is None else f" to {row.target_tokens}")
    step = f"{row.model}, {row.examples} x {lengths}, {row.precision}" + (", compiled" if row.compiled else "")
    step += f", accumulation {row.accumulation}" if row.accumulation > 1 else ""
    step += ", gradient checkpointing" if row.recompute != "none" else ""
    gpu = row.gpu if row.gpus == 1 else f"{row.gpus} x {row.gpu}"
    speeds = f"{row.examples_per_second:.4g}/s", f"{result['examples_per_second']:.4g}/s"
    return f"| {' | '.join((row.id, step, gpu, *speeds, f'{find_error(row, result):+.0%}'))} |"


if __name__ == "__main__":
    main()
