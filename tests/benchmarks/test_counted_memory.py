from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.published_memory.counted import list_counted, name_card, why_not_counted

ROW = {
    "id": "x",
    "kind": "memory",
    "task": "SQuAD fine-tuning",
    "framework": "PyTorch 1.9",
    "precision": "fp32",
    "gpu": "A40",
    "batch_per_gpu": "8",
    "src_len": "384",
    "value": "31234",
}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"framework": "TensorFlow 1.11"}, "not PyTorch"),
        ({"task": "MLM+NSP pre-training"}, "a pre-training head"),
        ({"precision": "bf16 + torch.compile"}, "torch.compile"),
        ({"gpu": "Titan X 12GB"}, "its GPU is not in the table"),
        ({"gpu": "not stated (2 GPUs)"}, "its GPU is not stated"),
        ({"src_len": "<=128"}, "lengths or batch are not given"),
        ({"batch_per_gpu": "not stated"}, "lengths or batch are not given"),
        ({"value": "5"}, "printed too coarsely"),
        ({"id": "hfdocmem-v100-accum"}, "row 2 of the 16"),
    ],
)
def test_a_row_that_breaks_the_rule_does_not_count(changed: dict[str, str], reason: str) -> None:
    assert why_not_counted(ROW) is None
    assert why_not_counted(ROW | changed) == reason


def test_a_laptops_gpu_is_not_the_desktops() -> None:
    assert name_card("GeForce RTX 3080 Laptop GPU") is None
    assert name_card("GeForce RTX 3070") == "rtx3070"


def test_rows_that_counted_when_the_rule_was_made_still_count(shared_data: Path) -> None:
    path = shared_data.parent / "published_memory_2.csv"
    if not path.is_file():
        pytest.skip(f"no {path.name} beside {shared_data}")
    with path.open(encoding="utf-8") as file:
        now = list_counted(list(csv.DictReader(file))).splitlines()
    committed = Path(__file__).parents[2] / "benchmarks" / "published_memory" / "results" / "counted.txt"
    first = {line for line in committed.read_text("utf-8").splitlines() if line.endswith(": counts")}
    assert first
    assert first <= set(now)  # a GPU that is added to the table makes more of them count
