"""Plants nine causes in up to three sizes, one at a time, and looks at what `seqfit profile --prove` says first.

    python benchmarks/diagnosis/measure.py                      # all of them, each in a process of its own
    python benchmarks/diagnosis/measure.py --plants padding:2   # one, of one size (from 0)

In: nothing. Out: the table of README.md, in Markdown, and one line of JSON for each plant in --results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from seqfit.units import format_share


def diagnose(name: str) -> dict[str, Any]:
    """Profile and prove one plant in this process."""
    from plants import PLANTS, build_with, load_planted, write_workload

    from seqfit.profiling.profile import profile

    kind, _, size = name.partition(":")
    plant, number = PLANTS[kind], int(size or 0)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQFIT_CACHE"] = str(Path(folder) / "cache")
        write_workload(Path(folder))
        recipe = load_planted(plant, Path(folder), number)
        out = Path(folder) / "profile"
        result = profile(recipe, steps=5, out=out, prove_first=True, build=build_with(plant, number))
    first = result.findings[0] if result.findings else None
    return {
        "plant": name,
        "planted": plant.cause,
        "found": [(finding.cause, round(finding.gain, 4)) for finding in result.findings],
        "change": list(first.change) if first else [],
        "gain_of": first.gain_of if first else None,
        "expected": first.gain if first else None,
        "measured_gain": result.proof.measured_gain if result.proof else None,
        "gains": result.proof.gains if result.proof else [],
        "confirmed": result.proof.is_confirmed if result.proof else None,
        "step_seconds": result.measurement.step_seconds,
        "phases": result.measurement.phases,
        "peak_bytes": result.evidence.peak_bytes,
        "logits_bytes": result.evidence.logits_bytes,
        "at_peak": result.summary.memory.peak_by_category if result.summary.memory else None,
        "operators_per_step": result.evidence.operators_per_step,
        "tracing_factor": result.tracing_factor,
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    """In Markdown."""
    heads = ("planted", "size", "first finding", "change", "expected", "measured", "repeats", "")
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for row in rows:
        first = row["found"][0][0] if row["found"] else "none"
        verdict = {None: "", True: "confirmed", False: "not confirmed"}[row["confirmed"]]
        expected = f"{format_share(row['expected'])} of the {row['gain_of']}" if row["found"] else ""
        measured = format_share(row["measured_gain"]) if row["measured_gain"] is not None else ""
        repeats = ", ".join(format_share(gain) for gain in row["gains"])
        change = f"`{' '.join(row['change'])}`" if row["change"] else ""
        name, size = row["planted"] or "nothing", row["plant"].partition(":")[2]
        print(f"| {name} | {size} | {first} | {change} | {expected} | {measured} | {repeats} | {verdict} |")
    planted = [row for row in rows if row["planted"]]
    named = sum(bool(row["found"]) and row["found"][0][0] == row["planted"] for row in planted)
    proved = [row for row in planted if row["measured_gain"] is not None]
    close = sum(abs(row["expected"] - row["measured_gain"]) <= max(0.25 * row["measured_gain"], 0.03) for row in proved)
    print(
        f"\n{named} of {len(planted)} named first, {sum(bool(row['confirmed']) for row in planted)} confirmed; "
        f"expected within 25% or 3 points of what was measured: {close} of {len(proved)}"
    )


def main() -> None:
    """Each plant in a fresh process, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plants", nargs="+", default=None)
    parser.add_argument("--results", type=Path, help="append a line of JSON for each; what is there is kept")
    parser.add_argument("--here", action="store_true", help="in this process, and print JSON")
    parser.add_argument("--table", type=Path, help="print the table of earlier results")
    arguments = parser.parse_args()
    if arguments.table:
        print_table([json.loads(line) for line in arguments.table.read_text().splitlines()])
        return
    from plants import PLANTS

    names = arguments.plants or [f"{name}:{size}" for name, plant in PLANTS.items() for size in range(len(plant.sizes))]
    if arguments.here:
        print(json.dumps(diagnose(names[0])))
        return
    rows = []
    if arguments.results and arguments.results.exists():
        rows = [json.loads(line) for line in arguments.results.read_text().splitlines()]
    for name in [name for name in names if all(row["plant"] != name for row in rows)]:
        command = [sys.executable, __file__, "--here", "--plants", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        if arguments.results:
            with arguments.results.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print_table(rows)


if __name__ == "__main__":
    main()
