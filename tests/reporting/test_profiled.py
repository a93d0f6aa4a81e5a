from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from seqfit.profiling.findings import Cause, Finding
from seqfit.reporting.advice import read_profile, show_advice, show_profile
from seqfit.reporting.runs import ShownRun
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files

FINDING = Finding(Cause.TINY_BATCH, "<micro> batches are small", "Split less", ("strategy.micro_batch_tokens=99",), 0.3)
STORED = {
    "summary": {
        "steps": 3,
        "step_seconds": 0.25,
        "operators_per_step": 1234.0,
        "operators": [{"name": "aten::<mm>", "calls": 30, "total_ns": 6_000_000, "share": 0.6}],
        "modules": [{"name": "encoder.block.0", "forward_ns": 2e6, "backward_ns": 4e6, "share": 0.5}],
        "syncs": [{"place": "training/log.py:150", "what": "item", "calls_per_step": 2.0}],
        "memory": {"peak_bytes": 2**30},
    },
    "findings": [{**asdict(FINDING), "from_a_later_version": 1}],
    "proof": {"measured_gain": 0.28, "finding": asdict(FINDING)},
}


def add_profile(run: Path, stored: Any) -> None:
    (run / files.PROFILE).mkdir()
    (run / files.PROFILE / files.PROFILE_SUMMARY).write_text(json.dumps(stored), "utf-8")


def test_a_run_without_a_profile_has_no_such_part(run_path: Path) -> None:
    assert show_profile(read_report_subject([run_path])) is None


def test_the_tables_of_a_profile_are_shown(run_path: Path) -> None:
    add_profile(run_path, STORED)
    shown = str(show_profile(read_report_subject([run_path])))
    for said in ("aten::&lt;mm&gt;", "200 us", "60.0%", "encoder.block.0", "training/log.py:150", "1,234", "1.0 GiB"):
        assert said in shown
    assert "28.0% gained, 30.0% expected" in shown


def test_its_findings_take_the_place_of_those_from_records(run_path: Path) -> None:
    add_profile(run_path, STORED)
    shown = str(show_advice(read_report_subject([run_path])))
    assert "From the profile of this run." in shown
    assert "&lt;micro&gt; batches are small" in shown
    assert "30.0% of the time" in shown


@pytest.mark.parametrize("findings", [None, "text", [1, {"cause": "x"}, {**asdict(FINDING), "gain": "much"}]])
def test_malformed_findings_are_skipped(findings: Any, run_path: Path) -> None:
    add_profile(run_path, {**STORED, "findings": findings, "summary": {"operators": [1], "modules": 7}})
    profile = read_profile(ShownRun(run_path))
    assert profile is not None
    assert profile.findings == []
    assert show_profile(read_report_subject([run_path])) is not None
