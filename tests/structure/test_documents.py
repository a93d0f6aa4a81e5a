"""Who searches the documents for the word they know finds its page, and the documents speak the field's language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted((ROOT / "seqfit").rglob("*.py"))
HISTORY = ("log.md", "decisions.md")  # they quote what was
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
GONE = (  # as whole words, also in the plural
    *("entrant", "tournament", "yardstick", "numbers that are none", "number that is none", "memory ran out"),
    *("way of training", "ways of training", "ragged", "vanilla", "forecast", "anew", "on the front"),
    *("tokens a micro-batch", "a step 128 ms", "ms a step", "rehearsal", "to the bit", "model_flops_share"),
    *("on others", "within noise", "data.cut"),
)
TERMS = (  # of docs/glossary.md
    *("checkpoint", "snapshot", "step", "micro-batch", "global batch", "source", "target", "real tokens", "packed"),
    *("candidate", "baseline", "repeat", "comparison", "result", "trial", "lossless", "lossy", "recipe", "strategy"),
    *("plan", "prediction", "run", "event", "OOM", "NaN", "MFU", "gradient accumulation", "gradient checkpointing"),
    *("mixed precision", "confidence interval", "calibration workload", "resume", "RNG state", "bit-exact", "rank"),
    *("collective", "communication time", "lockstep", "dummy micro-batch", "trainable", "truncate", "split", "layout"),
    *("Pareto-optimal", "dry run", "not available here", "single-process", "exclusive", "meta model", "sdpa", "assign"),
    *("DataLoader", "holdout", "host sync", "model family", "token", "corrupted", "truncated", "Inf"),
)


@pytest.mark.parametrize(("words", "page"), SEARCHES.items())
def test_the_usual_words_lead_to_their_page(words: str, page: str) -> None:
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert re.search(re.escape(words), text, re.IGNORECASE), f"{page} does not say '{words}'"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in HISTORY], ids=lambda page: page.name)
def test_words_that_are_gone_stay_away(page: Path) -> None:
    text = " ".join(page.read_text("utf-8").split())
    found = [words for words in GONE if re.search(rf"(?<![a-z-]){re.escape(words)}(s\b|\b)", text, re.IGNORECASE)]
    assert found == []


GONE_FROM_CODE = (  # also as a part of an identifier
    *("entrant", "tournament", "yardstick", "vanilla", "forecast", "rehearsal", "anew", "spoilt", "torn"),
    *("told", "beside", "outline", "skeleton", "standing", "dealt", "answerer", "teaching", "in_step", "whereabouts"),
    *("model_flops_share", "memory ran out", "to the bit", "within noise", "number that is none"),
)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_code_speaks_the_words_of_the_field(module: Path) -> None:
    text = " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", module.read_text("utf-8")).lower().split())
    found = [words for words in GONE_FROM_CODE if re.search(rf"(?<![a-z]){re.escape(words)}(?![a-z])", text)]
    assert found == []


@pytest.mark.parametrize("term", TERMS)
def test_the_glossary_has_one_line_for_each_term(term: str) -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert sum(term in row.split(", ") for row in rows) == 1


def test_the_readme_is_no_longer_than_it_was() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 216


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
            if link.startswith("http"):
                continue
            target = page.parent / link if link else page
            if not target.exists() or (anchor and anchor not in read_anchors(target)):
                broken.append(f"{page.name}: {link}#{anchor}" if anchor else f"{page.name}: {link}")
    assert broken == []


def read_anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_tests_that_documents_name_are_there() -> None:
    named = {name for page in PAGES for name in re.findall(r"tests/\w+/test_\w+\.py", page.read_text("utf-8"))}
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
