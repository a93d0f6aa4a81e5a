"""torch's profiler has one owner: a second one is refused at every stage of the first."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

import seqfit
from seqfit.step.profiler import ProfilerBusy, find_profiler_owner, torch_profiler

CPU: dict[str, Any] = {"activities": [ProfilerActivity.CPU]}
STAGES = {"schedule": schedule(wait=1, warmup=1, active=1, repeat=1)}


def ask() -> None:
    with torch_profiler("a test", **CPU):
        torch.ones(3).sum()


def test_it_can_be_used_repeatedly_also_after_an_error() -> None:
    ask()
    with pytest.raises(ValueError, match="inside"), torch_profiler("a test", **CPU):
        raise ValueError("inside")
    ask()
    assert find_profiler_owner() is None


def test_a_second_one_is_refused_while_the_first_waits_warms_up_and_records() -> None:
    """While it warms up torch itself says that none is enabled, and a second one would be a segmentation fault."""
    with torch_profiler("the first", **CPU, **STAGES) as first:
        for _ in range(3):
            with pytest.raises(ProfilerBusy, match="which the first uses"):
                ask()
            torch.ones(3).sum()
            first.step()
    ask()


@pytest.mark.parametrize("settings", [STAGES, {}])
def test_a_profiler_of_the_users_own_program_is_found(settings: dict[str, Any]) -> None:
    with profile(**CPU, **settings) as theirs:
        for _ in range(3 if settings else 1):
            with pytest.raises(ProfilerBusy, match="which the program that called seqfit uses"):
                ask()
            if settings:
                theirs.step()
    ask()


def test_nothing_else_in_seqfit_starts_torchs_profiler() -> None:
    folder = Path(seqfit.__file__).parent
    starters = {"profile", "_KinetoProfile", "emit_nvtx"}
    found = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch") and node.module != "torch":
                if "profiler" in (node.module or "") and starters & {alias.name for alias in node.names}:
                    found.add(str(file.relative_to(folder)))
            elif isinstance(node, ast.Attribute) and node.attr in starters and "profiler" in ast.unparse(node.value):
                found.add(str(file.relative_to(folder)))
    assert found == {"step/profiler.py"}
