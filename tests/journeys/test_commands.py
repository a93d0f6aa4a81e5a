"""Every subcommand, typed with nothing but what it needs: its defaults are what most people run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.cli.main import COMMANDS
from tests.journeys.conftest import MINE, copy_run
from tests.journeys.person import Person
from tests.launch.cluster import Cluster

# The command, and what it must print. All of one group are typed in its order, in one folder.
DEFAULTS: dict[str, list[tuple[str, str]]] = {
    "look": [
        ("seqfit ls", r"demo"),
        ("seqfit cp demo mine.yaml", r"mine\.yaml"),
        ("seqfit new pairs.csv", r"(?s)nothing is asked.*recipe: pairs\.yaml"),
        ("seqfit show demo", r"batch_examples: 32"),
        ("seqfit validate demo", r"demo"),
        ("seqfit schema", r'"properties"'),
        ("seqfit doctor", r"torch"),
        ("seqfit doctor --selftest", r"All checks passed on (cpu|cuda)"),
        ("seqfit data demo", r"source"),
        ("seqfit data runs/demo", r"source"),
        ("seqfit plan demo", r"MiB|GiB"),
        ("seqfit plan flan-t5-small --gpu t4 --batch 2 --source-tokens 32 --target-tokens 8", r"(?m)^Fits: .*GiB"),
        ("seqfit plan --compare runs/demo", r"(?s)predicted +measured +ratio.*runs/demo"),
        ("seqfit audit runs/demo demo", r"(?s)Not a fair comparison: .*number of optimizer updates"),
        ("seqfit calibration", r"nothing is known|time over"),
        ("seqfit scale demo", r"single +1 +measured"),  # and ddp, where there are two cores
        ("seqfit prefetch demo", r"demo"),
        (
            "seqfit convert 'python run_summarization.py --model_name_or_path t5-small --dataset_name xsum'",
            r"next: seqfit validate converted\.yaml",
        ),
    ],
    "use": [
        ("seqfit profile demo", r"expected gain|no findings"),
        ("seqfit profile runs/demo", r"expected gain|no findings"),
        ("seqfit profile demo --prove", r"expected gain|no findings"),
        ("seqfit evaluate runs/demo", r"em"),
        ('echo \'{"question": "Where is it?", "context": "It is in Oslo."}\' | seqfit predict runs/demo', r"\S"),
        ("seqfit export runs/demo", r"exported: runs/demo/export/hf"),
        ("seqfit report runs/demo", r"summary\.html"),
        ("seqfit track runs/demo --to tensorboard", r"tensorboard"),
        ("seqfit trim runs/demo/checkpoint smaller --recipe demo", r"smaller"),
    ],
    "compare": [
        (
            "seqfit compare demo --budget 45s train.batch_examples=8",
            r"(?s)what\s+fits: .*Ranked by time.*baseline +baseline",
        ),
    ],
    "cluster": [
        ("seqfit submit mine.yaml --gpus-per-node 0 --out runs/mine", r"\d+"),
        ("seqfit status", r"runs/mine"),
        ("seqfit logs runs/mine --follow", r"step 4/4"),
        ("seqfit cancel runs/mine", r"is over \(COMPLET|runs/mine is finished"),
    ],
}
PAIRS = [(group, command, prints) for group, commands in DEFAULTS.items() for command, prints in commands]


@pytest.fixture(scope="module")
def people(installed: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Person]:
    known: dict[str, Person] = {}

    def person(group: str) -> Person:
        if group not in known:
            known[group] = Person(tmp_path_factory.mktemp("defaults") / group, installed)
            copy_run(trained, known[group].folder / "runs" / "demo")
            if group == "look":
                lines = (
                    f"Where is the house number {n} of the street?,It is at the end of road {n}." for n in range(40)
                )
                (known[group].folder / "pairs.csv").write_text("\n".join(["question,answer", *lines]) + "\n")
            else:
                (known[group].folder / "mine.yaml").write_text(MINE)
        return known[group]

    return person


@pytest.mark.parametrize(
    ("group", "command", "prints"),
    [pytest.param(*pair, id=f"{pair[0]}: {pair[1]}") for pair in PAIRS],
)
def test_a_command_works_by_its_defaults(
    group: str, command: str, prints: str, people: Callable[[str], Person], slurm: Callable[[], Cluster]
) -> None:
    person = people(group)
    if group == "cluster":
        person.environment["SLURM_CONF"] = slurm().environment["SLURM_CONF"]
    printed = person.types(command)
    assert re.search(prints, printed.text), str(printed)


def test_no_command_is_left_out() -> None:
    typed = {word for _, command, _ in PAIRS for word in re.findall(r"seqfit (\w+)", command)}
    # train: the documents', the fixture's and the interrupted ones; serve: test_served.py; study: test_studies.py
    assert typed | {"train", "serve", "study"} == set(COMMANDS)


def test_the_help_of_every_command_is_printed(people: Callable[[str], Person]) -> None:
    person = people("look")
    printed = person.types("; ".join(f"seqfit {name} --help || exit 9" for name in COMMANDS))
    assert printed.text.count("Usage: seqfit ") == len(COMMANDS)


def test_the_functions_work_from_python(installed: Path, trained: Path, tmp_path: Path) -> None:
    person = Person(tmp_path / "work", installed)
    copy_run(trained, person.folder / "runs" / "demo")
    script = """
import seqfit
print(seqfit.list_library()[0])
print(type(seqfit.load_recipe("demo")).__name__)
print(seqfit.describe_data("demo", rows=20))
print(seqfit.plan("demo"))
run = seqfit.train("demo", ["train.steps=4", "train.batch_examples=8", "eval.limit=4"], out="runs/python")
print(seqfit.evaluate(run, limit=4)["metrics"])
print(seqfit.predict(run, [{"question": "Where?", "context": "In Oslo."}]))
print(seqfit.profile("demo", steps=2).findings)
print(seqfit.report(run))
print("all done")
"""
    (person.folder / "mine.py").write_text(script)
    printed = person.types("python mine.py")
    assert "all done" in printed.text
    assert "step 4/4" in printed.text, f"no progress was shown:\n{printed}"


def test_a_figure_of_the_page_can_be_looked_at(installed: Path, trained: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium: apt-get install chromium has it")
    person = Person(tmp_path / "work", installed)
    copy_run(trained, person.folder / "runs" / "demo")
    person.types("seqfit report runs/demo --out page.html")
    options = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run"
    person.types(f"{browser} {options} --user-data-dir=profile --screenshot=page.png file://$PWD/page.html")
    assert (person.folder / "page.png").stat().st_size > 10_000
