"""Rows per second of an evaluation with generated texts: seqfit and Seq2SeqTrainer's `predict_with_generate`.

    python benchmarks/evaluation/measure.py                       # both data sets, five repeats
    python benchmarks/evaluation/measure.py --data dialogsum --rows 16 --repeats 1 --results FOLDER
    python benchmarks/evaluation/measure.py --table               # README.md from existing results

In: the real data and T5's tokenizer. Out: results/DATA.jsonl with every repeat, and the table of README.md. Each figure
comes from a fresh process, the sides take turns, and nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results
from benchmarks.evaluation.sides import DATA, SIDES, Run, measure_gap, measure_side, prepare

HERE = Path(__file__).parent
MUST_REACH = 2.5
TITLES = {"squad-es": "SQuAD-es", "dialogsum": "DialogSum"}
HEADER = [
    *("data", "rows", "tokens per text", "seqfit, rows/s", "Trainer", "rows/s", "ratio", "must reach", "", "same ids"),
]


def main() -> None:
    arguments = parse_arguments()
    if arguments.inside is not None:
        print(json.dumps(measure_side(Run(**json.loads(arguments.inside)))))
        return
    for name in () if arguments.table else arguments.data:
        measure_data(name, arguments)
    shown = format_table(arguments.results)
    print(shown)
    if arguments.results == HERE / "results":
        update_readme(HERE / "README.md", shown)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compares evaluation with generation.")
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--rows", type=int, default=128, help="of the test split, spread evenly")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes of each side")
    parser.add_argument("--threads", type=int, default=2, help="of a process")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the results")
    default = Path(tempfile.gettempdir()) / "seqfit-evaluation-benchmark"
    parser.add_argument("--work", type=Path, default=default, help="folder of the model and the tokenized data")
    parser.add_argument("--table", action="store_true", help="only write the table")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure_data(name: str, arguments: argparse.Namespace) -> None:
    """All processes of one data set, in turns."""
    os.environ |= build_environment(arguments)
    runs = [
        Run(side, name, arguments.rows, str(arguments.work), repeat)
        for repeat in range(arguments.repeats)
        for side in SIDES
    ]
    prepare(runs[0])
    machine = describe_machine(arguments.threads)
    texts: dict[str, list[list[int]]] = {}  # as token ids
    results = []
    for number, run in enumerate(runs, 1):
        print(f"{name}: {number} of {len(runs)}, {run.side}", file=sys.stderr, flush=True)
        measured = call(run)
        texts[run.side] = measured.pop("ids")
        counts = {"rows": len(texts[run.side]), "tokens": sum(map(len, texts[run.side]))}
        results.append({"side": run.side, "repeat": run.repeat} | measured | counts)
    write_results(arguments.results / f"{name}.jsonl", machine | {"sameness": compare(runs[0], texts)}, results)


def build_environment(arguments: argparse.Namespace) -> dict[str, str]:
    """Of the measured processes, and of this one, which tokenizes for them."""
    return {
        "OMP_NUM_THREADS": str(arguments.threads),
        "SEQFIT_CACHE": str(arguments.work / "cache"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def call(run: Run) -> dict[str, Any]:
    """This script in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--inside", run.to_json()], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"A process of this benchmark ended with exit code {done.returncode}; see its output above.")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(run: Run, texts: dict[str, list[list[int]]]) -> dict[str, dict[str, Any]]:
    """For each side of the Trainer: rows with the same ids as ours, and how near a tie the others are."""
    ours = texts["ours"]
    found: dict[str, dict[str, Any]] = {}
    for side in SIDES[1:]:
        differing = [row for row, ids in enumerate(texts[side]) if ids != ours[row]]
        gaps = [measure_gap(run, row, ours[row], texts[side][row]) for row in differing]
        found[side] = {"same": len(ours) - len(differing), "largest_gap": max(gaps, default=None)}
    return found


def format_table(results: Path) -> str:
    """Markdown: the faster batch size of the plain order, and the grouped order below it."""
    lines = [f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    machines = []
    for name in DATA:
        path = results / f"{name}.jsonl"
        if path.exists():
            machine, measured = read_results(path)
            machines.append(describe_in_words(machine))
            faster = max(("trainer-16", "trainer-64"), key=lambda side: statistics.median(rates(measured, side)))
            lines.append(format_row(name, machine, measured, faster, MUST_REACH))
            lines.append(format_row(name, machine, measured, "grouped-16", None))
    where = f"On: {'; '.join(dict.fromkeys(machines))}." if machines else "Nothing has been measured yet."
    return "\n".join([*lines, "", where])


def format_row(
    name: str, machine: dict[str, Any], measured: Sequence[dict[str, Any]], side: str, must_reach: float | None
) -> str:
    """One comparison."""
    ours, theirs = rates(measured, "ours"), rates(measured, side)
    ratio = statistics.median(ours) / statistics.median(theirs)
    kind, batch = side.split("-")
    title = f"{'grouped by length' if kind == 'grouped' else 'as is'}, {batch} per batch"
    same, first = machine["sameness"][side], measured[0]
    gap = "" if same["largest_gap"] is None else f", the others differ by at most {same['largest_gap']:.0e} in a logit"
    reached = "" if must_reach is None else "reached" if ratio >= must_reach else "**not reached**"
    cells = [TITLES[name], str(first["rows"]), f"{first['tokens'] / first['rows']:.1f}", spread(ours), title]
    cells += [spread(theirs), f"{ratio:.2f}", "" if must_reach is None else f"{must_reach:g}", reached]
    cells.append(f"{same['same']} of {first['rows']}{gap}")
    return f"| {' | '.join(cells)} |"


def rates(measured: Sequence[dict[str, Any]], side: str) -> list[float]:
    """Rows per second of each repeat."""
    return [result["rows"] / result["seconds"] for result in measured if result["side"] == side]


def spread(values: Sequence[float]) -> str:
    """'3.10 (3.02-3.15)': median, lowest and highest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    main()
