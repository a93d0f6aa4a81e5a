from __future__ import annotations

import io

import pytest
from rich.console import Console

from seqfit.cli.profile import describe_tracing, print_findings, print_proof, print_summary
from seqfit.profiling.findings import Finding
from seqfit.profiling.profile import Proof
from seqfit.profiling.tables import diagnose, summarise_trace
from seqfit.profiling.trace import Allocation, HostSpan, Op, Trace

FINDING = Finding("padding", "half is padding", "Run real tokens only", ("strategy.batching=packed",), 0.45)


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=120, color_system=None)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_tables_of_a_cpu_are_shown_with_the_place_of_a_read(console: Console) -> None:
    trace = Trace(
        "x",
        "kineto",
        ops=(Op("aten::mm", 0, 75_000, "1"), Op("aten::_local_scalar_dense", 80_000, 25_000, "1")),
        ranges=(HostSpan("module: model.encoder", 0, 76_000, "1"),),
        frames=(HostSpan("mine.py(7): check", 79_000, 30_000, "1"),),
        allocations=(Allocation(10, 2048, 1, False, 2048),),
    )
    print_summary(summarise_trace(diagnose(trace)), console)
    text = shown(console)
    for part in ("75.0% │     1 │   75 us", "encoder", "mine.py(7): check", "2.0 KiB", "activations", "█ over"):
        assert part in text


def test_a_finding_is_shown_with_what_to_paste(console: Console) -> None:
    print_findings([FINDING], console)
    assert "Run real tokens only: strategy.batching=packed" in shown(console)
    assert "45.0% of the time" in shown(console)


def test_steps_that_were_slower_without_the_profiler_are_blamed_on_the_machine() -> None:
    assert "takes 2.0 times as long: the tables below" in describe_tracing(2.0)
    assert "took 0.1 times as long as without: something else ran here" in describe_tracing(0.1)


def test_no_findings_are_reported_as_such(console: Console) -> None:
    print_findings([], console)
    assert "no findings" in shown(console)


def test_a_proof_has_both_gains_and_its_rounds(console: Console) -> None:
    print_proof(Proof(FINDING, [1.0, 1.0, 1.0], [0.6, 0.5, 1.1]), console)
    assert "expected 45.0% of the time, measured 40.0% (not confirmed; repeats: 40.0%, 50.0%, -10.0%)" in shown(console)
