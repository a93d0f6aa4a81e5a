"""How long a plan for t5-base takes: its first trace, the whole search, and the stored plan.

    python benchmarks/plan_speed/measure.py                  # a few minutes
    python benchmarks/plan_speed/measure.py table            # README.md from existing results

In: nothing; the model is t5-base's config, without weights. Out: results/plans.jsonl with a line for each process, and
the table. Every figure is of fresh processes, their start and imports included; the rows alternate.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from transformers import AutoModelForSeq2SeqLM, T5Config

from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results
from seqfit.model.load import ModelConfig
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.shape import uniform
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy
from seqfit.units import format_seconds

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "plans.jsonl"
T5_BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "vocab_size": 32_128}
LENGTHS = ["--no-data", "--source-tokens", "512", "--target-tokens", "64", "train.batch_examples=32"]
CARDS = ["--gpu", "rtx3090", "--gpus", "2"]
PLAN = "import sys; from seqfit.cli.main import main; code = main(sys.argv[1:]); print(code, 'torch' in sys.modules)"
ROWS = {  # name -> what it is, and its limit in seconds
    "trace": ("first trace: two micro-batches of 2 x 512 tokens, bf16", 15.0),
    "search": ("whole search", 60.0),
    "stored": ("the same again, stored", 1.0),
}

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Times plans for t5-base.")
    parser.add_argument("what", nargs="?", choices=("table",), help="only the table, from existing results")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        trace_once()
        return
    if arguments.what != "table":
        machine = describe_machine(os.cpu_count() or 1)
        write_results(RESULTS, machine, [result for _ in range(arguments.repeats) for result in time_all()])
    table = format_table(*read_results(RESULTS)) if RESULTS.exists() else "Nothing has been measured yet."
    print(table)
    update_readme(HERE / "README.md", table)


def trace_once() -> None:
    """One trace, as at the start of a search."""
    model_config = ModelConfig(T5Config(**T5_BASE, decoder_start_token_id=0), {}, AutoModelForSeq2SeqLM)
    spec = StepSpec(model_config, ModelRecipe(path="t5-base"), TrainRecipe(), Strategy(), "bf16", rules_for("gpu"))
    FakeStep(spec).trace([uniform(2, 512, 64, packed=True)] * 2)


def time_all() -> list[Result]:
    """Each row once. The search finds an empty cache, and the next process what it stored."""
    with tempfile.TemporaryDirectory() as folder:
        config = T5Config(**T5_BASE, decoder_start_token_id=0, architectures=["T5ForConditionalGeneration"])
        config.save_pretrained(f"{folder}/t5-base")
        plan = [sys.executable, "-c", PLAN, "plan", "demo", f"model.path={folder}/t5-base", *LENGTHS, *CARDS, "--json"]
        return [
            time_process("trace", [sys.executable, __file__, "--inside"], folder),
            time_process("search", plan, folder),
            time_process("stored", plan, folder),
        ]


def time_process(name: str, command: list[str], folder: str) -> Result:
    """From its start to its end."""
    environment = os.environ | {"SEQFIT_CACHE": f"{folder}/cache", "HF_HUB_OFFLINE": "1"}
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{done.stderr}\nThe process of '{name}' ended with {done.returncode}.")
    printed = done.stdout.splitlines()[-1:] if name != "trace" else ["0 True"]
    code, imported = printed[0].split()
    assert code == "0", done.stderr
    result = {"question": name, "seconds": seconds, "imports_torch": imported == "True"}
    print(result, file=sys.stderr, flush=True)
    return result


def format_table(machine: dict[str, Any], results: list[Result]) -> str:
    """Markdown: the median of each row and its limit."""
    lines = ["| what | median (lowest to highest) | imports torch | must be | |", "|---|---|---|---|---|"]
    for name, (title, limit) in ROWS.items():
        lines.append(format_row(title, limit, [result for result in results if result["question"] == name]))
    return "\n".join(
        [*lines, "", f"Measured on: {describe_in_words(machine)}; load {machine['load']:.1f} at the start."]
    )


def format_row(title: str, limit: float, results: list[Result]) -> str:
    seconds = [result["seconds"] for result in results]
    median = statistics.median(seconds)
    imports = any(result["imports_torch"] for result in results)
    cells = (
        title,
        f"{format_seconds(median)} ({format_seconds(min(seconds))} to {format_seconds(max(seconds))})",
        "yes" if imports else "no",
        f"at most {format_seconds(limit)}",
        "reached" if median <= limit else "**not reached**",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
