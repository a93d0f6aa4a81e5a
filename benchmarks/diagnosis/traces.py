"""Twelve causes in three sizes in generated traces: is the cause named first, and is the gain what its removal gives?

In: nothing. Out: a table, into the README with --write. Each program (programs.py) is simulated with and without its
cause (simulate.py); the trace of the first is written as torch.profiler and as Nsight Systems would, and read by
`seqfit profile --trace`'s own code. Ten healthy programs must have no finding.

    python benchmarks/diagnosis/traces.py --write
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.diagnosis.programs import CAUSES, NEEDS_SHAPES, PADDED, STEPS, healthy
from benchmarks.diagnosis.simulate import Recording, simulate, write_kineto, write_nsight
from seqfit.profiling.findings import Finding
from seqfit.profiling.readers import read_trace
from seqfit.profiling.tables import diagnose
from seqfit.profiling.trace_findings import find_in_trace

SIZES = ("small", "medium", "large")
KINDS = ("kineto", "nsight")
HEALTHY = 10
BEGIN, END = "<!-- traces: begin -->\n", "<!-- traces: end -->"
Shapes = list[tuple[int, int]]


@dataclass(frozen=True)
class Case:
    """One trace, what is right, and what was found."""

    cause: str | None
    size: str
    kind: str
    truth: float
    found: list[Finding]

    @property
    def is_right(self) -> bool:
        """Named first; of a healthy trace nothing named."""
        return not self.found if self.cause is None else bool(self.found) and self.found[0].cause == self.cause

    @property
    def is_close(self) -> bool:
        """Within 25% or 3 percentage points of the truth. A guess claims no gain."""
        if not self.is_right or self.cause is None or self.found[0].is_guess:
            return self.is_right
        return abs(self.found[0].gain - self.truth) <= max(0.25 * self.truth, 0.03)


def run_cases(folder: Path, sizes: range = range(3), seed: int = 11) -> Iterator[Case]:
    """All causes, sizes and formats, then healthy ones."""
    for cause, make in CAUSES.items():
        for size in sizes:
            slow, fast = make(healthy(seed + size), size)
            lengths = draw_lengths(seed, PADDED[size]) if cause == "padding" else None
            recording = simulate(slow, draw_shapes(seed, fixed=cause == "padding"), lengths)
            truth = 1 - simulate(fast).length_us / recording.length_us
            for kind in KINDS:
                if kind == "kineto" or cause not in NEEDS_SHAPES:
                    yield Case(cause, SIZES[size], kind, truth, find(recording, kind, folder))
    for number in range(HEALTHY):
        recording = simulate(healthy(number), draw_shapes(number, fixed=number % 2 == 1))
        for kind in KINDS:
            yield Case(None, str(number), kind, 0.0, find(recording, kind, folder))


def draw_shapes(seed: int, *, fixed: bool = False) -> Shapes:
    """Token ids' shapes of each step: padded to the longest row, or all to one length."""
    draw = random.Random(seed)
    return [(8, 512) if fixed else (8, draw.randrange(60, 400)) for _ in range(STEPS)]


def draw_lengths(seed: int, padded: float) -> list[list[int]]:
    """Of the rows of each step, which are padded to 512 tokens: such that all tokens are `padded` times these."""
    draw = random.Random(seed)
    means = [512 / padded] * STEPS
    return [[round(mean * draw.uniform(0.7, 1.3)) for _ in range(8)] for mean in means]


def find(recording: Recording, kind: str, folder: Path) -> list[Finding]:
    """As `seqfit profile --trace FILE` does."""
    path = (
        write_kineto(recording, folder / "trace.json") if kind == "kineto" else write_nsight(recording, folder / "r.db")
    )
    return find_in_trace(diagnose(read_trace(path)))


def write_table(cases: list[Case]) -> str:
    """One row per cause and format."""
    lines = ["| cause | format | named first | gain: expected (true), small, medium, large |", "|---|---|---|---|"]
    for cause in CAUSES:
        for kind in KINDS:
            rows = [case for case in cases if (case.cause, case.kind) == (cause, kind)]
            if rows:
                gains = ", ".join(_gain(case) for case in rows)
                lines.append(f"| {cause} | {kind} | {sum(case.is_right for case in rows)} of {len(rows)} | {gains} |")
    planted = [case for case in cases if case.cause is not None]
    well = [case for case in cases if case.cause is None]
    lines += [
        "",
        f"named first: {sum(c.is_right for c in planted)} of {len(planted)}; gain within 25% or 3 points: "
        f"{sum(c.is_close for c in planted)} of {len(planted)}; healthy traces with a finding: "
        f"{sum(not c.is_right for c in well)} of {len(well)}",
    ]
    return "\n".join(lines)


def _gain(case: Case) -> str:
    if not case.found:
        return f"none ({case.truth:.0%})"
    first = case.found[0]
    low, high = first.gain_range or (first.gain, first.gain)
    return f"{low:.0%} to {high:.0%} ({case.truth:.0%})" if first.is_guess else f"{first.gain:.0%} ({case.truth:.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(list(run_cases(Path(folder))))
    print(table)
    if arguments.write:
        readme = Path(__file__).with_name("README.md")
        before, _, rest = readme.read_text("utf-8").partition(BEGIN)
        readme.write_text(f"{before}{BEGIN}{table}\n{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
