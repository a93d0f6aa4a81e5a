"""Who searches the documents for the word they know finds its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEARCHES = {
    "NaN": "docs/reliability.md",
    "OOM": "docs/reliability.md",
    "gradient checkpointing": "docs/strategies.md",
    "mixed precision": "docs/strategies.md",
    "gradient accumulation": "docs/strategies.md",
    "resume from a checkpoint": "docs/reliability.md",
    "DataLoader workers": "docs/strategies.md",
    "multi-GPU": "docs/parallel.md",
    "learning rate for T5, Flan-T5, mT5": "docs/guide.md",
    "which GPU do I need": "docs/planning.md",
}


@pytest.mark.parametrize(("words", "page"), SEARCHES.items())
def test_the_usual_words_lead_to_their_page(words: str, page: str) -> None:
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert re.search(re.escape(words), text, re.IGNORECASE), f"{page} does not say '{words}'"


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if not link.startswith("http") and not (page.parent / link).exists():
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_tests_that_documents_name_are_there() -> None:
    named = {
        name
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        for name in re.findall(r"tests/\w+/test_\w+\.py", page.read_text("utf-8"))
    }
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
