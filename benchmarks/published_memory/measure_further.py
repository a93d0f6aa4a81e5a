"""How far predictions are from further published peaks, and whether fit or OOM is right.

    python benchmarks/published_memory/measure_further.py               # all rows that count, without a GPU
    python benchmarks/published_memory/measure_further.py flagmem fit   # those whose id begins so
    python benchmarks/published_memory/measure_further.py table         # README.md from existing results

In: published_memory_2.csv, the rule (counted.py), the rows' configurations (further.py). Out: results/further.jsonl and
a table. One GPU is predicted as measure.py does it; of several, what a plan's layouts change comes on top.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.table import update_readme
from benchmarks.published_memory.further import FURTHER_MODELS, FurtherRow, read_further
from benchmarks.published_memory.rows import Step
from seqfit.model import find_blocks
from seqfit.planning.cluster import ONE_GPU
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec, build_meta_model
from seqfit.planning.layout_memory import find_peak
from seqfit.planning.layout_trace import ModelSizes
from seqfit.planning.memory import measure_steps
from seqfit.planning.ranks import NCCL_BYTES
from seqfit.planning.shape import Shape, uniform
from seqfit.planning.step_model import RegimeModel
from seqfit.planning.tape import GIVEN, GRADIENTS, STATE, WEIGHTS, MemoryBlock, Tape
from seqfit.planning.template import fit_template, shrink_tape
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy
from seqfit.units import format_bytes

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "further.jsonl"
MARK = "further"
MEAN_LIMIT = 0.06
_COPY_AND_MOMENTS = 12 / 4  # apex's O2: bytes per weight, of which a step in 16 bits has two moments

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares predicted with further published peaks of GPU memory.")
    parser.add_argument("rows", nargs="*", help="beginnings of ids, or table; default: all that count")
    asked = parser.parse_args().rows
    if asked != ["table"]:
        rows = [row for row in read_further() if row.step and (not asked or row.id.startswith(tuple(asked)))]
        kept = {result["id"]: result for result in read_results()}
        for row in rows:
            kept[row.id] = describe(row)
            print(format_row(kept[row.id]), file=sys.stderr, flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("".join(json.dumps(kept[name]) + "\n" for name in sorted(kept)), "utf-8")
    table = format_table(read_results())
    print(table)
    update_readme(HERE / "README.md", table, MARK)


def predict_bytes(row: FurtherRow) -> int:
    """The figure that the source measured."""
    step = row.step
    assert step is not None
    spec = _build_spec(row, step)
    shape = uniform(step.examples, step.source_tokens or 0, step.target_tokens, packed=False)
    tape = FakeStep(spec).trace([shape] * min(step.accumulation, 2))
    tape = shrink_tape(tape) if step.optimizer == "8bit" else tape
    tape = _with_state(tape, row)
    context_bytes = step.source.context_bytes
    memory = measure_steps([[tape] * step.accumulation] * 2, spec.rules, context_bytes=context_bytes or 0)
    predicted = memory.allocated_bytes if context_bytes is None else memory.total_bytes
    if row.layout == ONE_GPU:
        return predicted
    return predicted + find_change(tape, spec, shape, row) + NCCL_BYTES


def find_change(tape: Tape, spec: StepSpec, shape: Shape, row: FurtherRow) -> int:
    """What each GPU of the layout needs more or less than one with the same micro-batches."""
    model = build_meta_model(spec)
    sizes = ModelSizes.of(model, list(find_blocks(model, "a plan").values()))
    one = RegimeModel(fit_template([shape], [tape]), sizes.gradients)
    shards = sizes.shard_sizes(halves=spec.precision == "bf16")
    curves = one.curves(shape, single=len(tape.parts) == 1, sizes=shards)
    on_one, on_many = (sum(find_peak(curves, layout).values()) for layout in (ONE_GPU, row.layout))
    return on_many - on_one


def _build_spec(row: FurtherRow, step: Step) -> StepSpec:
    """Padded batches, eager attention and all logits at once: what ran then."""
    config = FURTHER_MODELS[step.model]
    kind = "text-to-text" if config.config.is_encoder_decoder else "classifier"
    strategy = {
        "batching": "padded",
        "attention": "eager",
        "loss": "full",
        "recompute": step.recompute,
        "optimizer_kernel": step.source.kernel,
    }
    return StepSpec(
        model_config=config,
        model=ModelRecipe.model_validate({"path": step.model, "kind": kind}),
        train=TrainRecipe.model_validate({"optimizer": {"name": "adamw"}}),
        strategy=Strategy.model_validate(strategy),
        precision=step.precision,
        rules=rules_for("gpu", torch_version=step.source.torch_version),
        weights="bfloat16" if row.weights_in_16_bits else "float32",
    )


def _with_state(tape: Tape, row: FurtherRow) -> Tape:
    """The optimizer's state as the source's optimizer keeps it; without one, no update either."""
    if not row.has_optimizer:
        return _without_update(tape)
    factor = _COPY_AND_MOMENTS if row.weights_in_16_bits else 1

    def resize(block: MemoryBlock) -> MemoryBlock:
        is_state = block.category == STATE and math.prod(block.shape) > 1
        return replace(block, bytes=round(block.bytes * factor)) if is_state else block

    return replace(tape, blocks=[resize(block) for block in tape.blocks])


def _without_update(tape: Tape) -> Tape:
    kept = [
        replace(block, bytes=0) if block.category == STATE and block.kernel == GIVEN else block for block in tape.blocks
    ]
    freed = {~event for event in tape.events[tape.update_from :] if event < 0}
    made = {event for event in tape.events[tape.update_from :] if event >= 0}
    for number in made - freed:
        assert tape.blocks[number].category not in (WEIGHTS, GRADIENTS)
    for number in made:
        kept[number] = replace(kept[number], bytes=0)
    return replace(tape, blocks=kept)


def describe(row: FurtherRow) -> Result:
    started = time.perf_counter()
    predicted, card, step = predict_bytes(row), row.card, row.step
    assert card is not None
    assert step is not None
    return {
        "id": row.id,
        "layout": str(row.layout),
        "source": step.source.name,
        "assumed": step.source.assumed,
        "measured": row.measured,
        "predicted_bytes": predicted,
        "capacity_bytes": card.usable_bytes,
        "card": card.name,
        "took_seconds": time.perf_counter() - started,
    }


def read_results() -> list[Result]:
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []


def find_error(result: Result) -> float:
    return float(result["predicted_bytes"] / result["measured"] - 1)


def is_right(result: Result) -> bool:
    return (result["predicted_bytes"] <= result["capacity_bytes"]) == (result["measured"] == "fits")


def format_row(result: Result) -> str:
    predicted, capacity = format_bytes(result["predicted_bytes"]), format_bytes(result["capacity_bytes"])
    if isinstance(result["measured"], str):
        said = "fits" if result["predicted_bytes"] <= result["capacity_bytes"] else "OOM"
        cells = [result["measured"], f"{said}: {predicted} of {capacity}", "right" if is_right(result) else "**wrong**"]
    else:
        cells = [format_bytes(result["measured"]), predicted, f"{find_error(result):+.1%}"]
    return f"| {' | '.join([result['id'], result['layout'], *cells])} |"


def format_table(results: list[Result]) -> str:
    """Markdown: peaks, then fit or OOM, the errors, and what was assumed of each source."""
    peaks = [result for result in results if not isinstance(result["measured"], str)]
    fits = [result for result in results if isinstance(result["measured"], str)]
    if not peaks:
        return "Nothing has been predicted yet."
    errors = [abs(find_error(result)) for result in peaks]
    mean, right = statistics.fmean(errors), sum(map(is_right, fits))
    assumed = {result["source"]: result["assumed"] for result in results}
    return "\n".join(
        [
            "| row | layout | published | predicted | error |",
            "|---|---|---|---|---|",
            *map(format_row, [*peaks, *fits]),
            "",
            f"- mean absolute error of {len(peaks)} peaks: {mean:.1%}; must be {MEAN_LIMIT:.0%}: "
            + ("reached" if mean <= MEAN_LIMIT else "**not reached**"),
            f"- largest: {max(errors):.1%}",
            f"- fit or OOM: {right} of {len(fits)} right; must be all: "
            + ("reached" if right == len(fits) else "**not reached**"),
            "",
            "Assumed, of all rows of a source:",
            *(f"- {source}: {text}" for source, text in assumed.items()),
        ]
    )


if __name__ == "__main__":
    main()
