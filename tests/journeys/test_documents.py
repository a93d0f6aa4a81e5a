"""Every command and every snippet of README.md and docs/ is typed, in the document's order, and does what it says.

A document has one folder, which holds what its reader has when the text begins; its commands build on each other.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.conftest import MINE, ROOT, copy_run, write_squad
from tests.journeys.markdown import DOCUMENTS, Block, Typed, read_blocks, read_documents, read_typed
from tests.journeys.person import Person, Printed, check_readable
from tests.journeys.substitutions import (
    EXPECTED,
    NEEDS_BROWSER,
    NEEDS_SLURM,
    STOPPED_RUN,
    SUBSTITUTIONS,
    find_expected,
    substitute,
)
from tests.launch.cluster import Cluster

TYPED = read_documents()

TWO_PROCESSES = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
gpu_ids: all
mixed_precision: 'no'
num_machines: 1
num_processes: 2
use_cpu: false
"""

THEIR_SCRIPT = """\
from datasets import load_dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Seq2SeqTrainer, Seq2SeqTrainingArguments

tokenizer = AutoTokenizer.from_pretrained("{model}")
model = AutoModelForSeq2SeqLM.from_pretrained("{model}")
rows = load_dataset("json", data_files="rows.jsonl")["train"]
rows = rows.map(lambda row: tokenizer(row["question"], text_target=row["answer"], max_length=64, truncation=True))
arguments = Seq2SeqTrainingArguments("out", max_steps=500, learning_rate=1e-4{more})
Seq2SeqTrainer(model=model, args=arguments, train_dataset=rows).train()
"""

THEIR_CALIBRATION = """\
seqfit_calibration: 1
made_with: {seqfit: 0.2.0, torch: 2.13.0}
devices:
- device: rtx3090
  rates: null
  runs:
  - {step_seconds_ratio: 1.12, peak_bytes_ratio: 0.99, parameters: 60000000, precision: bf16}
"""

Prepare = Callable[[Person, dict[str, str]], None]


def _prepare_readme(person: Person, belongings: dict[str, str]) -> None:
    for name in ("pyproject.toml", "README.md", "constraints.txt", "seqfit"):  # the reader stands in a clone
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, person.folder / name)
    _write_my_csv(person, belongings)


def _write_my_csv(person: Person, belongings: dict[str, str]) -> None:
    rows = [
        f"{n},Where is the item {n} of the list?,The item {n} is in the box {n % 9}.,box {n % 9}" for n in range(60)
    ]
    (person.folder / "my.csv").write_text("\n".join(["id,question,context,answer", *rows]) + "\n")


def _prepare_guide(person: Person, belongings: dict[str, str]) -> None:
    _write_my_csv(person, belongings)
    cached = person.home / ".cache" / "huggingface" / "hub" / "models--google--flan-t5-small"  # as downloaded before
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("d7d2")
    shutil.copytree(belongings["t5"], cached / "snapshots" / "d7d2")


def _prepare_cluster(person: Person, belongings: dict[str, str]) -> None:
    _write_matrix(person, seeds="[0]", repeats=1, steps=3)
    matrix = person.folder / "matrix.yaml"
    matrix.write_text(re.sub(r"(?m)^budget: .*\n", "", matrix.read_text()))  # refused there: --time is the limit
    blocks = read_blocks((ROOT / "docs" / "cluster.md").read_text())
    lines = next(block.lines for block in blocks if block.lines[0].startswith("seed="))
    (person.folder / "sweep.txt").write_text("\n".join(line for line in lines if line.startswith("seed=")) + "\n")


def _prepare_comparing(person: Person, belongings: dict[str, str]) -> None:
    _write_matrix(person, seeds="[0]", repeats=1, steps=3)
    stopped = "seqfit compare mine.yaml --strategies baseline,recompute --steps 3 --warm-up 1 --repeats 2"
    with person.starts(f"{stopped} --out comparisons/mine-20260102-030405") as going:
        going.wait_for(r"1 of 4 trials (are done|finished)")
        going.interrupt()
        going.wait()
    copy_run(person.folder / "runs" / "demo", person.folder / "runs" / "other")
    for name, more in {"train": "", "train_fp16": ", fp16=True"}.items():
        _write_their_script(person, f"{name}.py", model="google-t5/t5-small", more=more)
    blocks = read_blocks((ROOT / "docs" / "comparing.md").read_text())
    table = next(block.lines for block in blocks if any(line == "rows:" for line in block.lines))
    (person.folder / "published.yaml").write_text("\n".join(table) + "\n")


def _write_their_script(person: Person, name: str, *, model: str, more: str = "") -> None:
    (person.folder / name).write_text(THEIR_SCRIPT.format(model=model, more=more))
    rows = [
        json.dumps({"question": f"Where is house {number}?", "answer": f"On road {number}."}) for number in range(40)
    ]
    (person.folder / "rows.jsonl").write_text("\n".join(rows) + "\n")


def _write_matrix(person: Person, *, seeds: str, repeats: int, steps: int) -> None:
    """The document's own, with few trials."""
    blocks = read_blocks((ROOT / "docs" / "comparing.md").read_text())
    text = "\n".join(next(block.lines for block in blocks if block.language == "yaml"))
    for pattern, few in {
        r"seeds: .*": f"seeds: {seeds}",
        r"repeats: .*": f"repeats: {repeats}",
        r"steps: .*": f"steps: {steps}",
        r"warm_up: .*": "warm_up: 1",
        r"gpus: .*": "gpus: [v100-16-sxm]",
        r"  - classic": "  - baseline",
        r"vary: .*": "vary: {train.learning_rate: [1e-4]}",
    }.items():
        text, times = re.subn(rf"(?m)^{pattern}$", few, text)
        assert times == 1, f"docs/comparing.md: its matrix has no line {pattern}"
    (person.folder / "matrix.yaml").write_text(text + "\n")


def _prepare_reliability(person: Person, belongings: dict[str, str]) -> None:
    for name in ("demo-20260102-030405", "demo-20260102-040000"):
        with person.starts(f"seqfit train demo {STOPPED_RUN} --out runs/{name}") as going:
            going.wait_for(r"step 5/")
            going.interrupt(signal.SIGKILL)
            going.wait()


def _prepare_evaluation(person: Person, belongings: dict[str, str]) -> None:
    for name in ("a", "b"):
        copy_run(person.folder / "runs" / "demo", person.folder / "runs" / name)
    for block in read_blocks((ROOT / "docs" / "evaluation.md").read_text()):
        if block.language == "python" and block.lines[0].startswith("# "):  # a file
            (person.folder / block.lines[0].removeprefix("# ")).write_text("\n".join(block.lines) + "\n")


def _prepare_serving(person: Person, belongings: dict[str, str]) -> None:
    for name in ("a", "b"):
        copy_run(person.folder / "runs" / "demo", person.folder / "runs" / name)


def _prepare_reports(person: Person, belongings: dict[str, str]) -> None:
    _prepare_serving(person, belongings)
    few = "--steps 3 --warm-up 1 --repeats 1"
    person.types(f"seqfit compare mine.yaml --strategies baseline {few} --out comparisons/bert-agnews-20260102")


def _prepare_trimming(person: Person, belongings: dict[str, str]) -> None:
    write_squad(person.folder / "train.json", 30, "train")
    write_squad(person.folder / "dev.json", 5, "dev")


def _prepare_parallel(person: Person, belongings: dict[str, str]) -> None:
    (person.folder / "two.yaml").write_text(TWO_PROCESSES)


def _prepare_planning(person: Person, belongings: dict[str, str]) -> None:
    (person.folder / "theirs.yaml").write_text(THEIR_CALIBRATION)
    _write_their_script(person, "train.py", model=belongings["t5"])


def _prepare_studies(person: Person, belongings: dict[str, str]) -> None:
    blocks = read_blocks((ROOT / "docs" / "studies.md").read_text())
    text = "\n".join(next(block.lines for block in blocks if block.language == "yaml"))
    (person.folder / "my.yaml").write_text(text + "\n")


PREPARATIONS: dict[str, Prepare] = {
    "README.md": _prepare_readme,
    "docs/cluster.md": _prepare_cluster,
    "docs/comparing.md": _prepare_comparing,
    "docs/evaluation.md": _prepare_evaluation,
    "docs/guide.md": _prepare_guide,
    "docs/parallel.md": _prepare_parallel,
    "docs/planning.md": _prepare_planning,
    "docs/reliability.md": _prepare_reliability,
    "docs/reports.md": _prepare_reports,
    "docs/serving.md": _prepare_serving,
    "docs/studies.md": _prepare_studies,
    "docs/trimming.md": _prepare_trimming,
}


@pytest.fixture(scope="module")
def readers(
    installed: Path,
    trained: Path,
    belongings: dict[str, str],
    end_jobs: Callable[[], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Person]:
    """Document -> its reader, with what the text takes for granted; made when the first command is typed."""
    known: dict[str, Person] = {}

    def reader(document: str) -> Person:
        if document not in known:
            end_jobs()  # of the document before: they would take the cores from this one
            person = Person(tmp_path_factory.mktemp("reader") / Path(document).stem, installed)
            if document != "README.md":  # there it is trained
                copy_run(trained, person.folder / "runs" / "demo")
                (person.folder / "mine.yaml").write_text(MINE)
            known[document] = person
            PREPARATIONS.get(document, lambda *_: None)(person, belongings)
        return known[document]

    return reader


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: typed.title)
def test_what_a_document_lets_one_type_works(
    typed: Typed,
    readers: Callable[[str], Person],
    belongings: dict[str, str],
    slurm: Callable[[], Cluster],
) -> None:
    text = substitute(typed, belongings)
    if re.search(NEEDS_BROWSER, text) and shutil.which("chromium") is None:
        pytest.skip("no chromium: apt-get install chromium has it")
    person = readers(typed.document)
    if re.search(NEEDS_SLURM, text):
        person.environment["SLURM_CONF"] = slurm().environment["SLURM_CONF"]
    rows = find_expected(typed, text)
    if typed.kind == "python":
        (person.folder / "snippet.py").write_text(text)
        printed = person.types("python snippet.py")
    elif any(row.until for row in rows):
        printed = _watch(person, text, next(row.until for row in rows if row.until))
    else:
        printed = person.types(text, exit_code=max((row.exit_code for row in rows), default=0))
    for row in rows:
        if row.prints is not None:
            assert re.search(row.prints, printed.text), f"{printed}\n({row.prints!r} was expected)"
        for pattern in row.leaves:
            assert list(person.folder.glob(pattern)), f"{printed}\n(no {pattern} in {person.folder})"


def _watch(person: Person, text: str, until: str) -> Printed:
    with person.starts(text) as going:
        going.wait_for(until)
        going.interrupt()
        printed = going.wait()
    assert printed.exit_code in (0, 130), str(printed)
    check_readable(printed)
    return printed


def list_recipes(path: Path) -> list[Block]:
    """The YAML blocks of a document that are whole recipes."""
    return [block for block in read_blocks(path.read_text()) if block.lines and block.lines[0].startswith("extends:")]


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if list_recipes(path)], ids=lambda path: path.name)
def test_recipes_in_documents_are_valid(
    path: Path, installed: Path, belongings: dict[str, str], tmp_path: Path
) -> None:
    person = Person(tmp_path / "work", installed)
    for block in list_recipes(path):
        (person.folder / "mine.yaml").write_text("\n".join(block.lines) + "\n")
        person.types(f"seqfit validate mine.yaml model.path={shlex.quote(belongings['t5'])}")


def test_at_least_seventy_commands_are_typed() -> None:
    assert sum(typed.kind == "command" for typed in TYPED) >= 70


def test_every_line_that_names_the_command_is_typed() -> None:
    for path in DOCUMENTS:
        found = {typed.line for typed in read_typed(path, path.name)}
        for block in read_blocks(path.read_text()):
            for number, line in enumerate(block.lines, start=block.line):
                if re.match(r"(\$ )?(seqfit|torchrun|srun|accelerate) ", line):
                    assert number in found, f"{path.name}:{number}: {line}"


@pytest.mark.parametrize("number", range(len(SUBSTITUTIONS)), ids=lambda n: SUBSTITUTIONS[n].pattern)
def test_every_substitution_is_needed(number: int) -> None:
    row = SUBSTITUTIONS[number]
    for typed in TYPED:
        if not fnmatch.fnmatch(typed.document, row.documents):
            continue
        text = typed.text
        for earlier in SUBSTITUTIONS[:number]:
            if fnmatch.fnmatch(typed.document, earlier.documents):
                text = re.sub(earlier.pattern, earlier.replacement, text)
        if re.search(row.pattern, text):
            return
    pytest.fail(f"no document has what {row} is for: remove the row")


@pytest.mark.parametrize("row", EXPECTED, ids=lambda row: f"{row.documents} {row.pattern}")
def test_every_expectation_is_about_a_command(row: object) -> None:
    names = {name: name for name in ("t5", "minilm", "gsm8k", "ag_news", "squad_es")}
    assert any(row in find_expected(typed, substitute(typed, names)) for typed in TYPED)
