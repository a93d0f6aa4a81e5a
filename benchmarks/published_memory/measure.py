"""How far predictions are from peaks of GPU memory that others published: predicts each, prints the table.

    python benchmarks/published_memory/measure.py               # all rows, without a GPU
    python benchmarks/published_memory/measure.py 1 22 36       # some of them
    python benchmarks/published_memory/measure.py table         # README.md from existing results

In: published_memory.csv and the rows' configurations. Out: results/rows.jsonl and the table. The code is a plan's own:
the step on fake tensors, the template of its shapes, and steps one after the other on the model of torch's allocator.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.table import update_readme
from benchmarks.published_memory.rows import DRAWS, MODELS, Row, Step, read_rows
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.memory import measure_steps
from seqfit.planning.template import fit_template
from seqfit.planning.trainer_step import build_trainer_strategy
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.units import format_bytes

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "rows.jsonl"
MEAN_LIMIT, ROW_LIMIT = 0.04, 0.10

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares predicted with published peaks of GPU memory.")
    parser.add_argument("rows", nargs="*", help="ids of rows, or table; default: all")
    asked = parser.parse_args().rows
    if asked != ["table"]:
        rows = [row for row in read_rows() if not asked or str(row.number) in asked]
        kept = {result["id"]: result for result in read_results()}
        for row in rows:
            kept[row.number] = describe(row)
            print(format_row(kept[row.number]), file=sys.stderr, flush=True)
        write_results([kept[number] for number in sorted(kept)])
    table = format_table(read_results())
    print(table)
    update_readme(HERE / "README.md", table)


def predict_bytes(step: Step, draws: int = DRAWS) -> list[int]:
    """The figure that the source measured, for each draw of lengths."""
    rules = rules_for("gpu", torch_version=step.source.torch_version)
    fake = FakeStep(build_subject(step))
    shapes = step.traced_shapes()
    # A second micro-batch finds the first one's gradients, and all later ones are like it.
    template = fit_template(shapes, [fake.trace([shape] * min(step.accumulation, 2)) for shape in shapes])
    context_bytes = step.source.context_bytes
    predicted = []
    for steps in step.draw_runs(draws):
        tapes = {shape: template.at(shape) for micro_batches in steps for shape in micro_batches}
        played = [[tapes[shape] for shape in micro_batches] for micro_batches in steps]
        memory = measure_steps(played, rules, context_bytes=context_bytes or 0)
        predicted.append(memory.allocated_bytes if context_bytes is None else memory.total_bytes)
    return predicted


def build_subject(step: Step) -> StepSpec:
    """A row in the words of a recipe and a strategy: a Trainer's step with eager attention, as everybody ran then."""
    model_config = MODELS[step.model]
    kind = "text-to-text" if model_config.config.is_encoder_decoder else "classifier"
    kernel = step.source.kernel if step.optimizer == "adamw" else "auto"
    return StepSpec(
        model_config=model_config,
        model=ModelRecipe.model_validate({"path": step.model, "kind": kind, "lora": step.lora}),
        train=TrainRecipe.model_validate({"optimizer": {"name": step.optimizer}}),
        strategy=build_trainer_strategy(attention="eager", recompute=step.recompute, optimizer_kernel=kernel),
        precision=step.precision,
        rules=rules_for("gpu", torch_version=step.source.torch_version),
    )


def describe(row: Row) -> Result:
    """A row with its prediction."""
    started = time.perf_counter()
    predicted = predict_bytes(row.step)
    return {
        "id": row.number,
        "title": row.title,
        "source": row.step.source.name,
        "assumed": row.step.source.assumed,
        "measured_bytes": row.measured_bytes,
        "predicted_bytes": int(statistics.median(predicted)),
        "draws": predicted,
        "took_seconds": time.perf_counter() - started,
    }


def find_error(result: Result) -> float:
    """Of the prediction, as a share of what was published."""
    return float(result["predicted_bytes"] / result["measured_bytes"] - 1)


def read_results() -> list[Result]:
    """None where nothing was predicted yet."""
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []


def write_results(results: list[Result]) -> None:
    """One line a row."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("".join(json.dumps(result) + "\n" for result in results), "utf-8")


def format_table(results: list[Result]) -> str:
    """Markdown: the rows, the mean and largest error, and what was assumed of each source."""
    if not results:
        return "Nothing has been predicted yet."
    errors = [abs(find_error(result)) for result in results]
    mean, largest = statistics.fmean(errors), max(errors)
    assumed = {result["source"]: result["assumed"] for result in results}
    return "\n".join(
        [
            "| row | step | published | predicted | error | seconds |",
            "|---|---|---|---|---|---|",
            *map(format_row, results),
            "",
            f"- mean absolute error of {len(results)} rows: {mean:.1%}; must be {MEAN_LIMIT:.0%}: "
            + ("reached" if mean <= MEAN_LIMIT else "**not reached**"),
            f"- largest: {largest:.1%}; must be {ROW_LIMIT:.0%}: "
            + ("reached" if largest <= ROW_LIMIT else "**not reached**"),
            "",
            "Assumed, of all rows of a source:",
            *(f"- {source}: {text}" for source, text in assumed.items()),
        ]
    )


def format_row(result: Result) -> str:
    """With the lowest and highest draw where there are several."""
    predicted = format_bytes(result["predicted_bytes"])
    if len(result["draws"]) > 1:
        predicted += f" ({format_bytes(min(result['draws']))} to {format_bytes(max(result['draws']))})"
    measured, seconds = format_bytes(result["measured_bytes"]), f"{result['took_seconds']:.0f}"
    cells = [str(result["id"]), result["title"], measured, predicted, f"{find_error(result):+.1%}", seconds]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
