from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.planning.report import MemoryPart, PeakBreakdown, PlannedStrategy, PlanReport, Refusal
from seqfit.reporting.plan_page import draw_memory_timeline, write_plan_page

GIB = 2**30
STRATEGY = PlannedStrategy("bf16", "one GPU", 4096, 2.0, 6 * GIB, 0.25, True, ["strategy.precision=bf16"])
PEAK = PeakBreakdown(
    label="bf16",
    allocated_bytes=6 * GIB,
    reserved_bytes=6 * GIB,
    context_bytes=0,
    fits=True,
    cause="activations <of> linear layers",
    parts=[MemoryPart("weights", 2 * GIB), MemoryPart("activations", 4 * GIB, [MemoryPart("encoder blocks", 3 * GIB)])],
    phases=["forward", "forward", "backward"],
    timeline={"weights": [2 * GIB] * 3, "activations": [GIB, 4 * GIB, 2 * GIB]},
)


@pytest.fixture
def answer() -> PlanReport:
    slow = replace(STRATEGY, label="fp32", fits=False, why_not="misses by 2 GiB")
    return PlanReport(
        *("RTX 3090", "gpu", 8 * GIB, 8_000.0, 400, "measured"),
        chosen=STRATEGY,
        stated=None,
        peak=PEAK,
        strategies=[slow, STRATEGY],
        pareto=[STRATEGY],
        refused=[Refusal("8bit", "bitsandbytes is not installed")],
        events=[],
    )


def test_the_page_says_what_was_chosen_and_what_was_not(answer: PlanReport, tmp_path: Path) -> None:
    page = write_plan_page([answer], tmp_path / "plan.html").read_text("utf-8")
    for said in ("Plan for RTX 3090", "6.0 GiB", "250 ms", "activations &lt;of&gt; linear layers", "encoder blocks"):
        assert said in page
    for said in ("misses by 2 GiB", "bitsandbytes is not installed", "<td>best</td>"):
        assert said in page


def test_where_nothing_fits_the_page_says_by_how_much(answer: PlanReport, tmp_path: Path) -> None:
    none = replace(answer, chosen=None, peak=None, capacity_bytes=4 * GIB)
    assert "misses by 2.0 GiB" in write_plan_page([none], tmp_path / "plan.html").read_text("utf-8")


def test_memory_along_a_step_is_stacked_in_the_colours_of_the_page() -> None:
    drawn = draw_memory_timeline(PEAK, capacity_bytes=8 * GIB)
    assert [trace.line.color for trace in drawn.data] == ["var(--series-1)", "var(--series-2)"]
    assert {trace.stackgroup for trace in drawn.data} == {"memory"}
    assert [note.text for note in drawn.layout.annotations] == ["capacity", "forward", "backward"]
