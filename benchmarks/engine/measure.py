"""How fast and how large `seqfit train` is beside transformers' Seq2SeqTrainer: runs questions, prints the table.

    python benchmarks/engine/measure.py squad-dynamic gsm8k-dynamic
    python benchmarks/engine/measure.py all
    python benchmarks/engine/measure.py table                # README.md from the results that are there
    python benchmarks/engine/measure.py squad-dynamic --strategy batching=grouped micro_batch_tokens=8192

In: names of questions. Out: results/QUESTION.jsonl with every repeat, and the table. Each figure comes from a fresh
process, the sides of a question take turns, and nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine import table
from benchmarks.engine.judge import Result
from benchmarks.engine.questions import BY_NAME_ONLY, QUESTIONS, Question, list_runs
from benchmarks.engine.sides import Run, load_run, measure_side, prepare
from seqfit.units import format_seconds


def main() -> None:
    """Runs what is asked for."""
    arguments = parse_arguments()
    if arguments.inside is not None:
        print(json.dumps(measure_side(load_run(arguments.inside))))
        return
    if arguments.prepare is not None:
        prepare([load_run(line) for line in json.loads(arguments.prepare)])
        return
    if arguments.questions != ["table"]:
        for name in choose_questions(arguments.questions):
            answer_question(name, arguments)
    shown = table.format_table(arguments.results)
    print(shown)
    if arguments.results == table.RESULTS:
        table.update_readme(table.HERE / "README.md", shown)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compares `seqfit train` with transformers' Seq2SeqTrainer.")
    parser.add_argument("questions", nargs="*", help=f"all, table, or some of: {', '.join(QUESTIONS)}")
    parser.add_argument("--strategy", nargs="*", default=[], help="fields of our strategy, such as batching=grouped")
    parser.add_argument("--repeats", type=int, help="fresh processes of each side; default: the question's")
    parser.add_argument("--steps", type=int, help="measured steps of a process; default: the question's")
    parser.add_argument("--batch", type=int, help="examples of a global batch; default: the question's")
    parser.add_argument("--learning-rate", type=float, help="of both sides; default: 1e-4")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the measured process")
    parser.add_argument("--results", type=Path, default=table.RESULTS, help="folder of the results")
    default = Path(tempfile.gettempdir()) / "seqfit-engine-benchmark"
    parser.add_argument("--work", type=Path, default=default, help="folder of models and made data (3 GiB)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    return parser.parse_args()


def choose_questions(names: list[str]) -> list[str]:
    """Those named; `all` is every one that isn't for asking by name only."""
    unknown = [name for name in names if name not in (*QUESTIONS, "all")]
    if unknown or not names:
        raise SystemExit(
            f"No such question: {', '.join(unknown) or 'none given'}. Choose from: all, {', '.join(QUESTIONS)}."
        )
    return [name for name in QUESTIONS if name in names or ("all" in names and name not in BY_NAME_ONLY)]


def answer_question(name: str, arguments: argparse.Namespace) -> None:
    """Runs the processes of a question, in turns, and keeps what they measured."""
    question = shorten(QUESTIONS[name], arguments)
    asked = {"batch_examples": arguments.batch, "learning_rate": arguments.learning_rate}
    settings = {field: value for field, value in asked.items() if value is not None}
    arguments.work.mkdir(parents=True, exist_ok=True)
    runs = list_runs(question, work=str(arguments.work), strategy=tuple(arguments.strategy), **settings)
    started = time.perf_counter()
    call(["--prepare", json.dumps([run.to_json() for run in runs])], arguments)
    machine = table.describe_machine(arguments.threads)
    results = []
    for number, run in enumerate(runs, 1):
        note(f"{name}: {number} of {len(runs)}, {run.side} on {run.workload}")
        results.append(describe(run) | json.loads(call(["--inside", run.to_json()], arguments).splitlines()[-1]))
    took = time.perf_counter() - started
    table.write_results(arguments.results / f"{name}.jsonl", machine | {"took_seconds": took}, results)
    note(f"{name}: took {format_seconds(took)}")


def shorten(question: Question, arguments: argparse.Namespace) -> Question:
    """With the repeats and steps that the command line asks for."""
    asked = {"repeats": arguments.repeats, "steps": arguments.steps}
    return replace(question, **{name: value for name, value in asked.items() if value is not None})


def describe(run: Run) -> Result:
    """The settings of a process as results keep them: without this machine's folders."""
    kept = asdict(run)
    del kept["work"]
    return kept | {"examples": run.examples}


def call(options: list[str], arguments: argparse.Namespace) -> str:
    """This script in a fresh process, with its threads and with a cache of its own."""
    environment: dict[str, Any] = {
        "OMP_NUM_THREADS": str(arguments.threads),
        "SEQFIT_CACHE": str(arguments.work / "cache"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, __file__, *options]
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"A process of this benchmark ended with {done.returncode}; what it said is above.")
    return done.stdout


def note(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
