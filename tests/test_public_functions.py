"""`seqfit.train` and the like are plain functions, imported when they are first used."""

from __future__ import annotations

import importlib
import inspect
import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import seqfit
from seqfit.doors import read_door

NAMES = ("train", "evaluate", "compare", "audit", "report", "profile", "plan", "track")


@pytest.mark.parametrize("name", NAMES)
def test_signature_and_help_are_those_of_the_function(name: str) -> None:
    shown = getattr(seqfit, name)
    function = getattr(importlib.import_module(read_door(Path(seqfit.__file__).parent)[name]), name)
    assert inspect.isfunction(function)
    assert shown is function
    assert inspect.signature(shown) == inspect.signature(function)
    assert inspect.getdoc(shown) == inspect.getdoc(function)
    text = pydoc.render_doc(shown, renderer=pydoc.plaintext)
    assert f"{name}({next(iter(inspect.signature(function).parameters))}" in text.replace("*", "")
    assert (inspect.getdoc(function) or "").splitlines()[0] in text
    assert "PACKAGE CONTENTS" not in text


FRESH = """
import torch, inspect, os, sys
assert "KINETO_LOG_LEVEL" not in os.environ
import seqfit
assert "overrides" in inspect.signature(seqfit.train).parameters
import seqfit.training.train
assert "overrides" in inspect.signature(seqfit.train).parameters
kept = [torch.zeros(1000, 1000) for _ in range(3)]
seqfit.train("demo", ["train.steps=4", "train.log_every=2", "eval.limit=2", "train.batch_examples=4"], out="run")
"""


@pytest.mark.journey
def test_a_program_that_imported_torch_first_sees_progress_and_no_lines_of_the_profiler(tmp_path: Path) -> None:
    unset = ("KINETO_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", FRESH], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "step 4/4  loss" in done.stdout
    assert "allocated in step" in done.stdout  # the profiler has watched
