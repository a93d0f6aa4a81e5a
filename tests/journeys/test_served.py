"""A trained model in a browser and behind HTTP, by the installed command: asked, compared, rated, trained on, ended."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.journeys.conftest import ROOT, copy_run
from tests.journeys.markdown import read_blocks
from tests.journeys.person import Going, Person, check_readable
from tests.processes import wait_until
from tests.serving.conftest import Client

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUESTION = "¿Cuál es la capital de Lesoto?"
CONTEXT = "La capital de Túnez es Túnez. La capital de Lesoto es Maseru. La capital de Haití es Puerto Príncipe."


@pytest.fixture(scope="module")
def person(installed: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """With a run of the demo that has learnt to answer, and one that has hardly begun."""
    person = Person(tmp_path_factory.mktemp("served") / "work", installed)
    few = "train.steps=70 train.batch_examples=16 eval.every_steps=70 eval.limit=8"
    person.types(f"seqfit train demo {few} --out runs/demo")
    copy_run(trained, person.folder / "runs" / "short")
    return person


@pytest.fixture
def served(person: Person) -> Iterator[tuple[Going, Client]]:
    """Both runs, and a client; the server is ended by the test, or by the end of the fixture."""
    with person.starts("exec seqfit serve runs/demo runs/short") as going:
        found = going.wait_for(r"API: http://127\.0\.0\.1:\d+/docs")
        yield going, Client(int(found.split(":")[3].split("/")[0]))


def test_the_command_of_the_document_gets_an_answer(served: tuple[Going, Client], person: Person) -> None:
    lines = [line for block in read_blocks((ROOT / "docs" / "serving.md").read_text("utf-8")) for line in block.lines]
    (command,) = [line for line in lines if line.startswith("curl")]
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    said = subprocess.run(
        ["bash", "-c", command.replace(":8000/", f":{served[1].port}/")], capture_output=True, text=True, check=True
    )
    (answer,) = json.loads(said.stdout)["answers"]
    alone = person.types("seqfit predict runs/demo question='Who wrote it?' context='Ada wrote it.'")
    assert answer["prediction"] == alone.text.strip()


def test_a_stop_answers_what_was_accepted_and_ends_with_zero(served: tuple[Going, Client]) -> None:
    going, client = served
    rows = [{"question": QUESTION, "context": f"{CONTEXT} Número {number}."} for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(client.post, "/predict?beams=4", row) for row in rows[:16]]
        wait_until(lambda: not re.search(r"seqfit_waiting_rows\{model=\"runs/demo\"\} 0", client.get("/metrics")[1]))
        going.interrupt(signal.SIGTERM)
        statuses = [one.result()[0] for one in asked]
    printed = going.wait()
    assert (printed.exit_code, set(statuses)) == (0, {200})
    check_readable(printed)
    assert re.search(r"ended: \d+ requests answered", printed.text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; the extra test has it")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium has it")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium)
        yield found
        found.close()


def open_page(browser: Browser, client: Client, said: list[str], **options: object) -> Page:
    """The page in a tab; what its console says is collected."""
    page = browser.new_context(**options).new_page()  # type: ignore[arg-type]
    page.set_default_timeout(120_000)
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.goto(f"http://127.0.0.1:{client.port}/")
    page.locator("#examples-list button").first.wait_for()
    return page


def test_a_question_in_spanish_is_asked_compared_and_rated_and_its_rating_is_trained_on(
    served: tuple[Going, Client], person: Person, browser: Browser
) -> None:
    said: list[str] = []
    page = open_page(browser, served[1], said)
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_label("Context").fill(CONTEXT)
    page.get_by_role("button", name="Ask").click()
    cards = page.locator("article.card")
    cards.nth(1).locator(".rate").wait_for()
    assert [card.locator(".head span").first.inner_text() for card in cards.all()] == ["runs/demo", "runs/short"]
    first = cards.first
    assert first.locator(".answer").inner_text() == "Maseru"
    assert first.locator("mark").all_inner_texts() == ["Maseru"]
    assert re.search(r"confidence \d+", first.inner_text())
    assert re.search(r"\d+ ms", first.inner_text())
    first.locator(".candidates li").nth(3).wait_for()

    first.get_by_role("button", name="Wrong answer").click()
    first.get_by_label("Subject").fill("Lesoto")
    first.get_by_label("Answer", exact=True).fill("Maseru")
    first.get_by_role("button", name="Save").click()
    first.get_by_text("Kept in").wait_for()
    assert first.locator(".rate .note").inner_text() == "Kept in runs/demo/feedback.jsonl"
    second = cards.nth(1)
    second.get_by_role("button", name="Wrong answer").click()
    second.get_by_role("button", name="I don't know").click()
    second.get_by_text("Kept in").wait_for()
    assert said == []

    (kept,) = [
        json.loads(line) for line in (person.folder / "runs/demo/feedback.jsonl").read_text("utf-8").splitlines()
    ]
    assert (kept["question"], kept["subject"], kept["answer"]) == (QUESTION, "Lesoto", "Maseru")
    assert kept["feedback"]["rating"] == "down"
    (rejected,) = (person.folder / "runs/short/feedback-rejected.jsonl").read_text("utf-8").splitlines()
    assert json.loads(rejected)["feedback"]["rating"] == "down"

    demo = Path(person.types("python -c 'import seqfit; print(seqfit.__path__[0])'").text.strip())
    recipe = f"""\
extends: demo
data:
  - {{path: {demo / "recipe/library/demo"}}}
  - {{path: runs/demo/feedback.jsonl, holdout: {{validation: 0, test: 0}}}}
train: {{steps: 2, batch_examples: 4, schedule: {{warmup_steps: 1}}}}
eval: {{limit: 4}}
"""
    (person.folder / "more.yaml").write_text(recipe)
    printed = person.types("seqfit train more.yaml --out runs/more").text
    assert "step 2/2" in printed
    rows = json.loads((person.folder / "runs/more/manifest.json").read_text("utf-8"))["data"]["rows"]
    assert rows["train"] == 7201


def test_a_phone_in_the_dark_and_a_keyboard_alone(served: tuple[Going, Client], browser: Browser) -> None:
    said: list[str] = []
    page = open_page(browser, served[1], said, viewport={"width": 390, "height": 844}, color_scheme="dark")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(19, 20, 24)"
    page.locator("body").press("Tab")
    while page.evaluate("document.activeElement.name") != "question":
        page.keyboard.press("Tab")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Tab")
    page.keyboard.insert_text(CONTEXT)
    page.keyboard.press("Control+Enter")
    page.locator(".rate").first.wait_for()
    page.locator(".candidates").first.wait_for()
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    for _ in range(30):
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == "Right answer":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("Kept in").first.wait_for()
    page.get_by_role("button", name="Ask").and_(page.locator(":enabled")).wait_for()
    docs = page.context.new_page()
    docs.goto(f"http://127.0.0.1:{served[1].port}/docs")
    assert docs.evaluate("document.scrollingElement.scrollWidth") <= 390
    assert said == []
