"""How far the prediction of a Trainer script as it is lies from figures of GPU memory that its author published.

    python benchmarks/published_scripts/measure.py           # all rows, without a GPU
    python benchmarks/published_scripts/measure.py table     # README.md from existing results

In: t5-memory.yaml, an account of fine-tuning T5-base on two RTX 3090 (settings and figures), next to the real data.
Out: results/rows.jsonl and the table. The code is that of `seqfit plan train.py`: `predict_script` with the settings of
each row. What the account does not say is assumed once, for all rows (`ASSUMED`).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.rows import find_shared
from benchmarks.engine.table import update_readme
from seqfit.conversion import ScriptSettings
from seqfit.hardware import read_gpu
from seqfit.planning.report import AssumedLengths
from seqfit.planning.request import build_request
from seqfit.planning.script_prediction import ScriptTraces, predict_script
from seqfit.planning.target import find_target
from seqfit.recipe.schema import Recipe
from seqfit.units import format_bytes
from seqfit.validation import load_checked_recipe
from seqfit.yaml_text import read_yaml

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "rows.jsonl"
TARGET_TOKENS = 128
ASSUMED = (
    "transformers 4 (eager attention, AdamW as foreach); texts padded to the longest of a batch, because the account's "
    "total_flos of 129e12 are 542 tokens per text on one GPU (382 at a limit of 512) and not 4,096; one text as long "
    f"as the limit, so each row at 4,096 is an upper bound; targets of {TARGET_TOKENS} tokens; a CUDA context of "
    "450 MiB on each GPU; published GB taken as GiB"
)
ROWS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "gradient_accumulation_steps=8": {"accumulation": 8},
    "adafactor": {"optimizer": "adafactor"},
    "gradient_checkpointing": {"checkpointing": True},
    "fp16": {"precision": "fp16"},
    "fp32": {"precision": "fp32"},
    "adamw_apex_fused": {"optimizer": "adamw_apex_fused"},
    "model.parallelize()": {"naive_pipeline": True},
    "single GPU": {"visible_gpus": 1},
    "max_length=512, model.parallelize()": {"naive_pipeline": True, "max_source_tokens": 512},
    "max_length=512": {"max_source_tokens": 512},
}
BASELINE = ScriptSettings(
    "t5-memory", max_source_tokens=4096, precision="bf16", per_device_examples=1, before_5="evaluation_strategy="
)

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares predictions of a script with the figures of its author.")
    parser.add_argument("rows", nargs="*", help="names of rows, or table; default: all")
    asked = parser.parse_args().rows
    published = read_published()
    if asked != ["table"]:
        kept = {result["name"]: result for result in read_results()}
        for name in asked or ROWS:
            kept[name] = {"name": name, "published_gb": published[name], "predicted_bytes": predict_bytes(name)}
            print(format_row(kept[name]), file=sys.stderr, flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("".join(json.dumps(kept[name]) + "\n" for name in ROWS if name in kept), "utf-8")
    table = format_table(read_results())
    print(table)
    update_readme(HERE / "README.md", table)


def predict_bytes(name: str) -> list[int]:
    """Of each GPU."""
    settings = replace(BASELINE, **ROWS[name])
    target = find_target(read_gpu("rtx3090").card.key, 2)
    lengths = AssumedLengths(settings.max_source_tokens, TARGET_TOKENS, without_data=True)
    recipe = build_recipe(settings)
    request = build_request(recipe, target, lengths)
    return predict_script(settings, recipe, request, ScriptTraces(), is_assumed=True).predicted_bytes


def build_recipe(settings: ScriptSettings) -> Recipe:
    optimizer = "adafactor" if settings.optimizer == "adafactor" else "adamw"
    values = {
        "model": {"name": "google-t5/t5-base"},
        "task": {"name": "summarize", "source": "{text}", "target": "{summary}"},
        "data": {"path": "train.jsonl"},
        "train": {"batch_examples": 2, "optimizer": {"name": optimizer}},
    }
    return load_checked_recipe(values)


def read_published() -> dict[str, float]:
    """GB over all GPUs, by the account's names of its rows."""
    file = find_shared("published", "SEQFIT_PUBLISHED") / "t5-memory.yaml"
    rows = read_yaml(file.read_text("utf-8"))[0]["rows"]
    return {row["name"]: float(row["gb"]) for row in rows if "gb" in row}


def read_results() -> list[Result]:
    """None where nothing was predicted yet."""
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []


def format_table(results: list[Result]) -> str:
    if not results:
        return "Nothing has been predicted yet."
    heads = ["| row | published, all GPUs | predicted, all GPUs | of each GPU | ratio |", "|---|---|---|---|---|"]
    return "\n".join([*heads, *map(format_row, results), "", f"Assumed, of all rows: {ASSUMED}."])


def format_row(result: Result) -> str:
    each = result["predicted_bytes"]
    ratio = sum(each) / 2**30 / result["published_gb"]
    shown = ", ".join(map(format_bytes, each))
    cells = [result["name"], f"{result['published_gb']:g} GB", format_bytes(sum(each)), shown, f"{ratio:.2f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
