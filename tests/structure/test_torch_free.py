"""What must start at once: reading a recipe, listing runs, `--help` do not import torch, nor other heavy libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import seqfit
from seqfit.tracking.tracker import TOOLS

PACKAGE = Path(seqfit.__file__).parent
TORCH_FREE = (
    *("recipe", "strategy", "hardware", "rundir", "tasks", "metrics", "telemetry", "conversion"),
    *("comparison", "reporting", "tracking", "cli"),
)
NEED_AN_EXTRA = {module for _, module, _ in TOOLS.values()}  # exporters: each imports the library it writes with
HEAVY = ("torch", "transformers", "datasets", "pyarrow", "plotly", "sacrebleu", "rouge_score", "pandas")


def modules_of(package: str) -> list[str]:
    files = sorted((PACKAGE / package).rglob("*.py"))
    names = [".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in files]
    return [name for name in names if name not in NEED_AN_EXTRA]


@pytest.mark.parametrize("package", [package for package in TORCH_FREE if modules_of(package)])
def test_importing_a_light_package_imports_no_heavy_library(package: str) -> None:
    imports = "; ".join(f"import {module.removesuffix('.__init__')}" for module in modules_of(package))
    program = f"import sys; {imports}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
