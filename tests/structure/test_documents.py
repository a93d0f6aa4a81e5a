"""Who searches the documents for the word they know finds its page, and the documents speak the field's language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seqfit.metrics import known_metrics
from seqfit.strategy import Strategy, list_strategies

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted((ROOT / "seqfit").rglob("*.py"))
HISTORY = ("log.md",)  # it quotes what was
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
# What is written, and patterns of what it replaces: a row for each of the project's vocabulary. Whole words, any case,
# in documents, and in code also as parts of identifiers (`fitsTheStanding`, `in_step`).
VOCABULARY = {
    "NaN, Inf, non-finite": r"numbers? that (is|are) none|none of (it|them) a number",
    "out of memory (OOM)": "memory ran out",
    "gradient accumulation": r"strategy=accumulate|strategies accumulate|baseline,accumulate",
    "strategy, configuration": "ways? of training|training ways?|an?other way of training",
    "candidate, comparison, result": "entrants?|tournaments?|standings?",
    "repeat": r"rounds? of (a|the) (comparison|strategies)|--round|rounds/",
    "baseline": "vanilla|(is|as|the) reference (candidate|strategy|run)",
    "calibration workload": "yardsticks?",
    "options, PlanRequest, PlanReport": "class (question|answer|asked)",
    "single-process; exclusive": r"alone=|is_alone|(trained|trains|lock held) alone",
    "alongside, TrackerProcess": "class beside|beside (it|them|the run)",
    "report, log, warn": "told|def _?(tell|say|judge)_",
    "Evaluator, Generator, GenerationQueue, GenerationMetadata": "class _?judges?|answerer|desk|teaching",
    "model config, meta model, gather target": "outline|skeleton|hollow (model|weights|copy)",
    "broadcast, all_reduce_min, barrier, all_gather": r"world\.(follow|lowest|wait|gather)",
    "communication, communication time": "exchange[sd]?|exchanging|time on others|on others",
    "tokens": "words? of (a|the|its) vocabulary|vocabulary words?",
    "argv": "words? of (a|the) command",
    "RNG state": r"(optimizer, |state of the |rng_?)generators",
    "MFU": "model_flops_share",
    "not significant, 95% confidence interval": "within noise|within_noise|95% interval",
    "corrupted, truncated": "spoilt|torn",
    "bit-exact": "to the bit",
    "packed": r"ragged (rows?|batch\w*|execution|attention|model|micro)|batching=ragged|into ragged",
    "sdpa": "stock attention|attention=stock",
    "truncate, split": r"(?<!power )cuts?|cutting|data\.cut",
    "assign": "deals?|dealt",
    "trainable": "learning weights|weights that learn|weights learn",
    "lockstep": "in_step",
    "dummy micro-batch": "counts=false",
    "prediction, plan": "forecasts?|answer of (a|the) plan",
    "not available here": "(?<!is_)impossible",
    "dry run": "rehears(e|al)s?",
    "layout": "spreads? of (a|the) plan|class spread",
    "Pareto-optimal": "on the front",
    "tokens per micro-batch, 128 ms per step": r"(tokens|rows) a micro-batch|(ms|s|min|GiB|MiB) a step|a step \d+",
    "again": "anew",
    "one per GPU": "(one|two|process|processes) a (GPU|card|rank|node)",
}
FOR_BECAUSE = re.compile(
    r", for (the|its|one|a|few) ((?!that|where|whose)[\w'-]+ ){1,5}(is|are|was|has|takes?|says?)\b"
)
DOCUMENTS = [*PAGES, *sorted(ROOT.glob("benchmarks/*/README.md")), ROOT / "demo" / "README.md"]
QUOTED_CODE = {  # file -> what is not ours in it
    "tests/structure/test_documents.py": "the words themselves",
    "tests/conversion/test_published.py": "names in published scripts",
    "tests/comparison/test_audit.py": "the same",
    "tests/comparison/test_aspects.py": "the same",
    "tests/cli/test_audit.py": "the same",
    "tests/inspection/test_task_guess.py": "texts of data sets",
    "benchmarks/engine/questions.py": "a question that a benchmark answers",
    "benchmarks/engine/judge.py": "the same",
}
QUOTES = (*HISTORY, "published_memory/README.md", "docs/studies.md")  # of what was, and of what others call it
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
def test_the_usual_words_lead_to_a_heading_of_their_page(words: str, page: str) -> None:
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert any(words.lower() in heading.lower() for heading in headings), f"{page} has no heading with '{words}'"


def find_gone(text: str) -> dict[str, list[str]]:
    """What is written -> what is there instead."""
    text = " ".join(text.split())
    found = {
        right: [match.group() for match in re.finditer(rf"(?<![a-z-])({gone})(?![a-z-])", text, re.IGNORECASE)]
        for right, gone in VOCABULARY.items()
    }
    found["because"] = [match.group() for match in FOR_BECAUSE.finditer(text)]
    return {right: words for right, words in found.items() if words}


@pytest.mark.parametrize(
    "page", [page for page in DOCUMENTS if not str(page).endswith(QUOTES)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_documents_speak_the_words_of_the_field(page: Path) -> None:
    assert find_gone(page.read_text("utf-8")) == {}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_code_speaks_the_words_of_the_field(module: Path) -> None:
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", module.read_text("utf-8"))
    assert find_gone(text) == {}


def test_tests_and_benchmarks_speak_the_words_of_the_field() -> None:
    places = ("tests", "benchmarks", "demo")
    files = {str(file.relative_to(ROOT)): file for place in places for file in sorted((ROOT / place).rglob("*.py"))}
    found = {
        name: find_gone(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", file.read_text("utf-8")))
        for name, file in files.items()
        if name not in QUOTED_CODE
    }
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text",
    [
        *("the entrant that won", "class TournamentFolder:", "a vanilla run", "Memory ran out.", "x = make_forecast()"),
        *("in_step = True", "rows are dealt to ranks", "the text is cut at 512", "4096 tokens a micro-batch"),
        *(
            "one process a GPU",
            "world.lowest([1])",
            "the state of the generators",
            "128 ms a step",
            "numbers that are none",
        ),
        *("It is left out, for the first one is long.", "strategy.batching=ragged", "12 words of the vocabulary"),
    ],
)
def test_words_that_are_gone_would_be_found(text: str) -> None:
    assert find_gone(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in HISTORY], ids=lambda page: page.name)
def test_a_page_that_says_recompute_says_gradient_checkpointing(page: Path) -> None:
    text = page.read_text("utf-8")
    assert not re.search(r"\brecompute\b", text) or re.search("gradient checkpointing", text, re.IGNORECASE)


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


def test_the_page_of_strategies_has_every_name_and_field() -> None:
    text = (ROOT / "docs" / "strategies.md").read_text("utf-8")
    rows = {
        name for row in re.findall(r"^\| ([^|]*`[^|]*) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert {*Strategy.model_fields, *list_strategies()} <= rows


def test_the_guide_has_every_metric() -> None:
    table = (ROOT / "docs" / "guide.md").read_text("utf-8").partition("| metric | scores |")[2].partition("\n\n")[0]
    listed = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")}
    assert listed == set(known_metrics())


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs"], ids=lambda page: page.name)
def test_modules_that_documents_name_are_there(page: Path) -> None:
    """`seqfit/step/step.py` or `step/step.py`; the log may name what is gone."""
    named = set(re.findall(r"`(?:seqfit/)?([a-z_]+(?:/[a-z_]+)*/[a-z_]+\.(?:py|yaml))`", page.read_text("utf-8")))
    missing = [name for name in named if not any((ROOT / above / name).exists() for above in ("seqfit", ""))]
    assert missing == [] or page.name in HISTORY
