"""CONTRIBUTING.md's worked examples, applied to a copy of the package: what they add is listed and works.

A block belongs to the last file of the package that the text before it names. A file that is not there yet is the
block; cards.yaml gets it at its end; in a table of Python, imports go to the imports and other lines into the table:

    ... New file `seqfit/strategy/library/low_memory.yaml`:     ```yaml     -> written
    ... its line in the table of `seqfit/metrics/registry.py`   ```python   -> import, and a line after `_METRICS = {`
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
TABLES = {"seqfit/metrics/registry.py": "_METRICS = {", "seqfit/cli/main.py": '    "This machine": {'}
FILES = {"data set": 1, "metric": 2, "named strategy": 1, "model family": 1, "GPU": 1, "command": 2}

LISTED = """
import json, sys
from seqfit.cli.main import main
from seqfit.hardware.cards import cards_table, find_card
from seqfit.metrics.registry import known_metrics, score
from seqfit.recipe.library import library_names
from seqfit.recipe.load import load_recipe
from seqfit.strategy.load import list_strategies, load_strategy
recipe = load_recipe("t5-samsum", ["strategy=low_memory", "eval.metrics=[containment]"])
found = {
    "recipes": library_names(),
    "hub": recipe.sources[0].hub,
    "strategies": list_strategies(),
    "recompute": load_strategy(recipe).recompute,
    "metrics": known_metrics(),
    "scores": score(["containment"], [["Oslo"], ["Rome"]], ["in Oslo", "in Paris"]).values,
    "gpu": find_card("acme 48").bandwidth_bytes_per_second,
    "row": "acme-48" in cards_table(),
}
print(json.dumps(found))
sys.exit(main(["gpus", "--arch", "sm86"]))
"""
FAMILY = """
import json
from torch import nn, ones
from seqfit.model.families.family import find_family
found, weight = find_family("acme_t5"), nn.Parameter(ones(2, 2))
decays = [found.has_weight_decay(name, weight) for name in ("shared.weight", "encoder.block.0.wi.weight")]
print(json.dumps([found.name, found.is_packed, decays]))
"""


def read_examples() -> dict[str, list[tuple[str, str]]]:
    """What is added -> its files and blocks, in the text's order."""
    examples = {}
    for part in TEXT.split("\n### Add a ")[1:]:
        name, text = part.split("\n### ")[0].split("\n## ")[0].split(":", 1)
        blocks = re.split(r"^```(?:yaml|python)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
        before, inside = blocks[:-1:2], blocks[1::2]
        files = [re.findall(r"`(seqfit/[\w/.-]+\.(?:py|yaml))`", words)[-1] for words in before]
        examples[name] = list(zip(files, inside, strict=True))
    return examples


def apply_block(file: Path, name: str, block: str) -> None:
    if not file.exists():
        file.write_text(block, "utf-8")
        return
    text = file.read_text("utf-8")
    if name in TABLES:
        lines = block.splitlines(keepends=True)
        imports = "".join(line for line in lines if line.startswith("from "))
        head, opening, rest = text.partition(f"\n{TABLES[name]}\n")
        assert opening, f"{name} has no line {TABLES[name]!r}"
        start = "from __future__ import annotations\n"
        entries = "".join(line for line in lines if not line.startswith("from "))
        text = f"{head.replace(start, start + imports, 1)}{opening}{entries}{rest}"
    else:
        text = f"{text}\n{block}"
    file.write_text(text, "utf-8")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with all examples."""
    folder = tmp_path_factory.mktemp("contributed")
    shutil.copytree(ROOT / "seqfit", folder / "seqfit", ignore=shutil.ignore_patterns("__pycache__"))
    for blocks in read_examples().values():
        for name, block in blocks:
            apply_block(folder / name, name, block)
    return folder


def run_python(program: str, folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_example_touches_as_many_files_as_its_title_says() -> None:
    examples = read_examples()
    assert {added: len(blocks) for added, blocks in examples.items()} == FILES
    for added, count in FILES.items():
        assert re.search(rf"^### Add a {added}: {count} file", TEXT, re.MULTILINE)


def test_a_data_set_a_metric_a_strategy_a_gpu_and_a_command_are_listed_and_work(copied: Path) -> None:
    first, *gpus = run_python(LISTED, copied).splitlines()
    found = json.loads(first)
    assert "t5-samsum" in found["recipes"]
    assert found["hub"] == "knkarthick/samsum"
    assert "low_memory" in found["strategies"]
    assert found["recompute"] == "blocks"
    assert "containment" in found["metrics"]
    assert found["scores"] == {"containment": 50.0}
    assert found["gpu"] == 768e9
    assert found["row"]
    assert "acme-48          ACME 48GB (an invented example)" in gpus
    assert not any(line.startswith("h100") for line in gpus)  # --arch is followed


def test_a_model_family_is_found_by_its_type(copied: Path) -> None:
    assert json.loads(run_python(FAMILY, copied)) == ["AcmeT5", True, [False, True]]


def test_files_that_the_text_names_are_there() -> None:
    added = {name for blocks in read_examples().values() for name, _ in blocks}
    named = set(re.findall(r"`((?:tests|seqfit|benchmarks)/[\w/.-]+\.(?:py|yaml))`", TEXT))
    missing = [name for name in named - added if not (ROOT / name).exists()]
    assert missing == []
