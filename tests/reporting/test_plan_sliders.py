"""The part of a plan's page that plans in the browser gives the answers of `seqfit plan`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from transformers import T5Config

from seqfit.inspection import Given, read_given
from seqfit.planning.exploration import Traces
from seqfit.planning.placement import PlanRequest
from seqfit.planning.plan import plan_for_gpus
from seqfit.planning.report import AssumedLengths, PlanReport
from seqfit.planning.request import build_request, make_plans, summarise_plan
from seqfit.planning.search import search
from seqfit.planning.shape import assume_workload
from seqfit.planning.step_model import StepModel
from seqfit.planning.target import find_target
from seqfit.recipe import load_recipe
from seqfit.reporting.plan_page import write_plan_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed; the extra test has it")

GPUS = ["t4", "rtx3090"]
ROWS = 10_000
LENGTHS = AssumedLengths(128, 32, without_data=True, rows=ROWS)
POSITIONS = 50
SEGMENT_BYTES = 20 * 2**20  # that the allocator takes at once


@dataclass(frozen=True)
class Planned:
    """A small model's plan, and its page."""

    given: Given
    model: dict[str, Any]
    reports: list[PlanReport]
    page: Path
    without_evaluations: Path


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    folder = tmp_path_factory.mktemp("sliders")
    sizes = {"vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_heads": 4}
    config = T5Config(**sizes, decoder_start_token_id=0, architectures=["T5ForConditionalGeneration"])
    config.save_pretrained(folder / "model")
    given = read_given(str(folder / "model"), command="plan")
    model: dict[str, Any] = {}
    reports = plan_for_gpus(given, GPUS, source_tokens=128, target_tokens=32, rows=ROWS, page_model=model)
    pages = [folder / name for name in ("plan.html", "steps.html")]
    for page, shown in zip(pages, (model, model | {"evaluations": []}), strict=True):
        write_plan_page(reports, page, shown, command="seqfit plan MODEL", price=1.2)
    return Planned(given, model, reports, *pages)


@pytest.fixture
def open_sliders(open_tab: Callable[..., Any]) -> Callable[..., Any]:
    def open_page(path: Path, **options: object) -> Any:
        tab = open_tab(path.as_uri(), **options)
        tab.page.wait_for_selector("#sliders .planned[data-asked]")
        return tab

    return open_page


ASK = """
async (question) => {
  const section = document.querySelector("#sliders");
  for (const [name, value] of Object.entries(question)) {
    const field = section.querySelector(`[name="${name}"]`);
    field.value = value;
    field.dispatchEvent(new Event(field.tagName === "SELECT" ? "change" : "input", { bubbles: true }));
  }
  await new Promise((done) => setTimeout(done, 5));
  const answer = section.querySelector(".planned");
  return { ...answer.dataset, text: answer.textContent, command: section.querySelector(".ask").textContent };
}
"""


def ask(page: Page, question: dict[str, object]) -> dict[str, str]:
    found: dict[str, str] = page.evaluate(ASK, question)
    return found


def draw_positions(model: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Anywhere between the ends of the sliders, as often below their geometric mean as above it."""
    chosen = random.Random(0)

    def draw(least: int, most: int, step: int) -> int:
        return max(step, round(least * (most / least) ** chosen.random() / step) * step)

    ranges, positions = model["ranges"], []
    for _ in range(count):
        number = chosen.randrange(len(GPUS))
        listed = [None, *(model["variants"][one] for one in model["devices"][number]["variants"])]
        variant = chosen.choice(listed)
        positions.append(
            {
                "device": number,
                "batch": draw(*ranges["batch"], 1),
                "source": draw(*ranges["source"], 8),
                "target": draw(*ranges["target"], 8),
                "variant": variant,
            }
        )
    return positions


def plan_at(request: PlanRequest, traces: Traces, position: dict[str, Any]) -> PlanReport:
    batch = position["batch"]
    total_steps = round(3 * max(1, ROWS / batch))
    workload = assume_workload(batch, position["source"], position["target"], total_steps=total_steps)
    request = replace(request, target=find_target(GPUS[position["device"]], 1), workload=workload)
    variant, fixed = (
        position["variant"],
        {"attention": "auto"},
    )  # the page leaves out blockwise attention of short texts
    if variant is not None:
        fixed |= {"recompute": "none", **variant["fields"], "precision": variant["precision"]}
    request = replace(request, evaluations=None, fixed=fixed)
    return summarise_plan(request, search(request, traces=traces), None)


def test_the_browser_plans_as_the_command_does_at_fifty_positions(
    planned: Planned, open_sliders: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one trace of each strategy for all of them, at the plan's own lengths, and at every tenth position as the
    command traces it, at its own lengths. There a replay may need one more segment of the allocator, which is 2% of
    this small model's memory.
    """
    monkeypatch.setattr(StepModel, "trace", lambda self, _: self.template.tape)  # which only explains the peak
    request = build_request(load_recipe(planned.given.recipe), find_target(GPUS[0], 1), LENGTHS)
    shared: Traces = {}
    for number in range(len(GPUS)):
        for variant in (None, *planned.model["variants"]):
            plan_at(request, shared, {"device": number, "batch": 2, "source": 128, "target": 32, "variant": variant})
    page = open_sliders(planned.without_evaluations).page
    for number, position in enumerate(draw_positions(planned.model, POSITIONS)):
        is_shared = number % 10 > 0
        report, variant = plan_at(request, shared if is_shared else {}, position), position["variant"]
        best = report.best or report.smallest
        question = {name: position[name] for name in ("device", "batch", "source", "target")}
        choice = {name: "" if variant is None else variant[name] for name in ("precision", "strategy")}
        answer = ask(page, question | choice)
        off = 0.01 * best.predicted_bytes if is_shared else max(0.01 * best.predicted_bytes, SEGMENT_BYTES)
        assert float(answer["bytes"]) == pytest.approx(best.predicted_bytes, abs=off), (position, answer)
        assert float(answer["stepSeconds"]) == pytest.approx(best.predicted_step_seconds, rel=0.01), (position, answer)
        assert answer["fits"] == str(report.best is not None).lower(), (position, answer)
        if report.best is not None:
            assert float(answer["seconds"]) == pytest.approx(report.total_seconds, rel=0.01)
            assert best.description in answer["text"]


def test_the_first_answer_is_the_sentence_of_the_plan_with_its_evaluations_and_its_cost(
    planned: Planned, open_sliders: Callable[..., Any]
) -> None:
    page = open_sliders(planned.page).page
    for number, report in enumerate(planned.reports):
        answer = ask(page, {"device": number})
        hours = report.total_seconds / 3600
        assert answer["text"] == f"{report.answer} Cost: {1.2 * hours:,.2f}."
        assert report.best is not None
        assert float(answer["bytes"]) == pytest.approx(report.best.predicted_bytes, rel=0.001)


@pytest.mark.parametrize(("source", "target"), [(256, 16), (64, 96)])
def test_evaluations_at_other_lengths_are_close_to_the_commands(
    source: int, target: int, planned: Planned, open_sliders: Callable[..., Any]
) -> None:
    recipe = load_recipe(planned.given.recipe, ["train.batch_examples=4"])
    lengths = AssumedLengths(source, target, without_data=True, rows=ROWS)
    (report,) = make_plans(recipe, [find_target("rtx3090", 1)], lengths)
    answer = ask(open_sliders(planned.page).page, {"device": 1, "batch": 4, "source": source, "target": target})
    assert report.best is not None
    assert float(answer["seconds"]) == pytest.approx(report.total_seconds, rel=0.01)
    assert float(answer["bytes"]) == pytest.approx(report.best.predicted_bytes, rel=0.03)


def test_what_was_not_traced_is_not_guessed(planned: Planned, open_sliders: Callable[..., Any]) -> None:
    page = open_sliders(planned.page).page
    for question in ({"source": 4096}, {"source": 100}, {"source": 128, "target": 2048}):
        answer = ask(page, question)
        assert "not known to this page" in answer["text"]
        assert "bytes" not in answer
        assert f"--source-tokens {question['source']}" in answer["command"]
    assert "whole number" in ask(page, {"source": 128, "target": 32, "batch": 0})["text"]
    assert "Fits" in ask(page, {"batch": 8})["text"]


def test_on_a_phone_in_the_dark_by_keys_and_without_a_network(
    planned: Planned, open_sliders: Callable[..., Any]
) -> None:
    tab = open_sliders(planned.page, viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = tab.page
    before = page.locator("#sliders .planned").text_content()
    page.locator('[name="batch-slider"]').focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('#sliders .planned').textContent !== before", arg=before)
    assert int(page.locator('[name="batch"]').input_value()) > planned.model["start"]["batch"]
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    assert page.locator("#sliders path.memory").count() >= 2
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert tab.asked == [planned.page.as_uri()]
    assert tab.said == []
