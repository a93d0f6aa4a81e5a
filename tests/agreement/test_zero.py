"""DeepSpeed's ZeRO makes the update of one process. What is compared, and how closely, is in zero_ranks.py."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("deepspeed") is None,
        reason="DeepSpeed is not installed; pip install 'seqfit[deepspeed]' has it",
    ),
    pytest.mark.slow,
]


@pytest.mark.parametrize(
    ("size", "names"), [(2, ("t5", "mt5")), (3, ("bert",))]
)  # three: no weight can be split evenly
def test_deepspeed_leaves_the_weights_of_one_process_and_resumes_to_the_bit(
    size: int, names: tuple[str, ...], tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    models = [str(tiny_model(name)) for name in names]
    command = [sys.executable, "-m", "tests.agreement.zero_ranks", str(tmp_path / "meeting")]
    settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    settings["cwd"] = Path(__file__).parents[2]
    ranks = [
        subprocess.Popen([*command, str(rank), str(size), str(tmp_path), *models], **settings) for rank in range(size)
    ]
    try:
        printed = [process.communicate(timeout=400) for process in ranks]
    finally:
        for process in ranks:
            process.kill()  # does nothing to one that has ended
    assert [process.returncode for process in ranks] == [0] * size, printed
