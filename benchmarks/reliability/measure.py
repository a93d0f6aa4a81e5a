"""Kills, memory limits and corrupted files, many of each: what was lost, what went wrong.

    python benchmarks/reliability/measure.py                   # all, about half an hour on one core
    python benchmarks/reliability/measure.py kills --count 20
    python benchmarks/reliability/measure.py limits fuzz
    python benchmarks/reliability/measure.py table             # README.md from the results that are there

In: nothing; a tiny T5 and made-up rows are written first. Out: results/*.jsonl and the table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results

HERE = Path(__file__).parent
RESULTS = HERE / "results"
KILLS, POINTS, FUZZ_SECONDS = 100, 20, 600.0

Result = dict[str, Any]


def main() -> None:
    """Asks what is asked for."""
    parser = argparse.ArgumentParser(description="Kills, starves and spoils runs.")
    parser.add_argument(
        "what", nargs="*", choices=("kills", "limits", "fuzz", "table", []), help="default: all but table"
    )
    parser.add_argument("--count", type=int, help="kills, or points of a step")
    parser.add_argument("--seconds", type=float, default=FUZZ_SECONDS, help="of fuzzing")
    arguments = parser.parse_args()
    os.environ["SEQFIT_PREDICTION"] = "off"  # plans are no part of these questions, and take longer than the runs
    for what in arguments.what or ["kills", "limits", "fuzz"]:
        if what != "table":
            with tempfile.TemporaryDirectory(prefix="seqfit-reliability-") as folder:
                os.environ["SEQFIT_CACHE"] = f"{folder}/cache"
                results = ask(what, Path(folder), arguments)
            write_results(RESULTS / f"{what}.jsonl", describe_machine(1), results)
    table = format_table()
    print(table)
    update_readme(HERE / "README.md", table)


def ask(what: str, folder: Path, arguments: argparse.Namespace) -> list[Result]:
    """One question."""
    if what == "kills":
        from benchmarks.reliability.kills import kill_runs

        return [asdict(kill_runs(build_recipe(folder, dropout=0.1), folder, arguments.count or KILLS))]
    if what == "limits":
        import torch

        from benchmarks.reliability.limits import starve_runs

        outcomes = []
        recipe = build_recipe(folder, dropout=0.0)
        for name in ("float64", "float32"):
            place = folder / name
            place.mkdir()
            found = starve_runs(recipe, place, arguments.count or POINTS, getattr(torch, name))
            outcomes += [asdict(outcome) | {"dtype": name} for outcome in found]
        return outcomes
    from benchmarks.reliability.fuzz import fuzz

    fuzzed = fuzz(folder, arguments.seconds)
    return [asdict(fuzzed) | {"seconds": arguments.seconds}]


def build_recipe(folder: Path, *, dropout: float) -> dict[str, Any]:
    """A tiny T5 that says the second word of its source; with snapshots at every other step."""
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    model = folder / "model"
    if not model.exists():
        write_rows(folder / "rows")
        build_tokenizer(PreTrainedTokenizerFast).save_pretrained(model)
        config = T5Config(
            vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
        T5ForConditionalGeneration(config).save_pretrained(model)
    return {
        "model": {"path": str(model), "dropout": dropout},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(folder / "rows")},
        "train": {
            "steps": 24,
            "batch_examples": 16,
            "learning_rate": 1e-2,
            "log_every": 4,
            "schedule": {"name": "cosine", "warmup_steps": 3},
            "snapshot": {"every_steps": 2, "keep": 2},
        },
        "eval": {"every_steps": 6},
        "strategy": {"precision": "fp32", "threads": 1, "telemetry_hz": 0.0},
    }


def write_rows(folder: Path) -> None:
    """Sources of two to eight words."""
    folder.mkdir()
    draw = random.Random(0)
    for split, count in (("train", 96), ("validation", 12)):
        lines = []
        for _ in range(count):
            words = [f"w{draw.randrange(3, 40)}" for _ in range(draw.randrange(2, 9))]
            lines.append(json.dumps({"text": " ".join(words), "answer": words[1]}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def build_tokenizer(kind: Any) -> Any:
    """A word is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"<pad>": 0, "</s>": 1, "<unk>": 2} | {f"w{n}": n for n in range(3, 60)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return kind(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def format_table() -> str:
    """What was found, question by question."""
    lines, machines = [], []
    for what, say in (("kills", say_kills), ("limits", say_limits), ("fuzz", say_fuzz)):
        path = RESULTS / f"{what}.jsonl"
        if path.exists():
            machine, results = read_results(path)
            machines.append(describe_in_words(machine))
            lines += say(results)
    if not lines:
        return "Nothing has been measured yet."
    return "\n".join(
        ["| question | found | must be | |", "|---|---|---|---|", *lines, "", f"Measured on: {machines[0]}."]
    )


def say_kills(results: list[Result]) -> list[str]:
    """Of all kills."""
    (reported,) = results
    asked = f"{reported['kills']} SIGKILLs over {reported['runs']} runs"
    during, before = reported["during_a_snapshot"], reported["before_the_first_snapshot"]
    where = f"{during} in the middle of a snapshot, {before} before the first"
    return [
        row(f"{asked} ({where}): ends that differ", len(reported["different"]), 0),
        row("run directories that can't be read", len(reported["unreadable"]), 0),
    ]


def say_limits(results: list[Result]) -> list[str]:
    """The worst, by type."""
    lines = []
    for dtype, field, limit in (("float64", "weight_difference", 1e-9), ("float32", "loss_difference", 1e-4)):
        of_type = [result for result in results if result["dtype"] == dtype]
        phases = ", ".join(dict.fromkeys(result["phase"] for result in of_type))
        lines.append(
            row(
                f"{len(of_type)} points ({phases}), {dtype}: runs that did not end",
                sum(not r["finished"] for r in of_type),
                0,
            )
        )
        lines.append(
            row(f"largest difference of a {field.split('_')[0]}, {dtype}", max(r[field] for r in of_type), limit)
        )
    return lines


def say_fuzz(results: list[Result]) -> list[str]:
    """All kinds together."""
    (reported,) = results
    tried = ", ".join(f"{count} x {kind}" for kind, count in reported["tried"].items())
    asked = f"{reported['seconds'] / 60:.0f} minutes of corrupted files ({tried}): errors that are not ours"
    return [row(asked, len(reported["crashes"]), 0)]


def row(question: str, found: float, limit: float) -> str:
    """A line of the table."""
    shown = f"{found:.1e}" if isinstance(found, float) and found else f"{found:g}"
    verdict = "reached" if found <= limit else "**not reached**"
    return f"| {question} | {shown} | {'at most ' if limit else ''}{limit:g} | {verdict} |"


if __name__ == "__main__":
    main()
