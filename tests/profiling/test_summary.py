from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seqfit.profiling.readers import read_trace
from seqfit.profiling.tables import diagnose, summarise_trace


def test_all_tables_of_both_formats_agree_where_both_know(both: dict[str, Path]) -> None:
    kineto, nsight = (summarise_trace(diagnose(read_trace(both[kind]))) for kind in ("kineto", "nsight"))
    assert (kineto.calls, kineto.kernels, kineto.copies) == (nsight.calls, nsight.kernels, nsight.copies)
    assert kineto.gpus == nsight.gpus
    assert kineto.step_seconds == pytest.approx(150e-6)


def test_a_summary_is_json(both: dict[str, Path]) -> None:
    values = json.loads(json.dumps(summarise_trace(diagnose(read_trace(both["kineto"]))).to_json()))
    assert values["calls"][0] == {
        "name": "cudaStreamSynchronize",
        "calls": 1,
        "total_ns": 60_000,
        "share": pytest.approx(0.6),
    }


def test_reading_a_trace_and_finding_causes_import_no_torch() -> None:
    modules = "seqfit.profiling.readers, seqfit.profiling.tables, seqfit.profiling.trace_findings, sys"
    program = f"import {modules}; print([name for name in ('torch', 'transformers') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
