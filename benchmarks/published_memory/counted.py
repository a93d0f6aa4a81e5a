"""Which of the further published figures count: a rule, written before any of them was predicted.

In: published_memory_2.csv. Out: for each row None, or why it does not count. A row that does not count is still shown
where it can be predicted.

    counts if        PyTorch; a head that seqfit trains; a GPU of the table; eager kernels; lengths and batch given
    a peak also      printed finely enough to judge an error of 6%, and not one of the 16 rows that came before
    does not count   TensorFlow and JAX; masked-language-model heads; torch.compile and fused research kernels

A question-answering head counts: two outputs per token, a classifier's cost. apex's O2 (fp16 weights with an fp32 copy)
counts as half precision, although seqfit has autocast instead: its memory is predicted as its source describes it.
ZeRO-3 is fsdp, with CPU offload fsdp with offload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from seqfit.errors import PlanError
from seqfit.hardware import find_card

_COARSEST = 0.05  # of a figure: half of its last printed digit
_EARLIER = {  # figures of published_memory.csv under other names
    "hfdocmem-v100-accum": "row 2",
    "hfdocmem-v100-accum-ckpt-fp16": "row 5",
    "hfdocmem-v100-accum-ckpt-fp16-adafactor": "row 7",
    "peft-t03b-lora": "row 23",
}


def why_not_counted(row: Mapping[str, str]) -> str | None:
    """The first clause that a row of the file breaks."""
    if "tensorflow" in row["framework"].lower() or "jax" in row["framework"].lower():
        return "not PyTorch"
    if "MLM" in row["task"]:
        return "a pre-training head"
    if "compile" in row["precision"]:
        return "torch.compile"
    if name_card(row["gpu"]) is None:
        return "its GPU is not in the table" if row["gpu"][:3] != "not" else "its GPU is not stated"
    if not re.match(r"\d+", row["batch_per_gpu"]) or not row["src_len"].isdigit():
        return "lengths or batch are not given"
    if row["kind"] == "memory" and _coarseness(row["value"]) > _COARSEST:
        return "printed too coarsely"
    return f"{_EARLIER[row['id']]} of the 16" if row["id"] in _EARLIER else None


def name_card(written: str) -> str | None:
    """The key of a card that a source means; memory decides, so PCIe or SXM does not matter."""
    name = re.sub(r"\(.*?\)|GeForce|NVIDIA", "", written).strip()
    if "laptop" in name.lower():
        return None
    name = {"V100-16GB": "v100-16-sxm", "V100-32GB": "v100-32-sxm", "A100-40GB": "a100-40-sxm"}.get(name, name)
    name = {"A10G-24GB": "a10g", "A100-PCIE-80GB": "a100-80-pcie", "A100 80GB": "a100-80-sxm"}.get(name, name)
    name = {"A100-80GB": "a100-80-sxm", "V100-SXM3-32GB": "v100-32-sxm", "RTX 3090 24GB": "rtx3090"}.get(name, name)
    try:
        return find_card(name).key
    except PlanError:
        return None


def _coarseness(value: str) -> float:
    """'12' may be 11.5 to 12.5: 4%."""
    decimals = len(value.partition(".")[2])
    return float(0.5 * 10**-decimals / float(value))


def list_counted(rows: list[dict[str, str]]) -> str:
    """Each row's id, and what it breaks of the rule: the file results/counted.txt."""
    return "".join(f"{row['id']}: {why_not_counted(row) or 'counts'}\n" for row in rows)
