"""docs/studies.md from studies that have been run.

    seqfit study classic-strategies; seqfit study t5-memory
    python benchmarks/studies/write_document.py studies/classic-strategies studies/t5-memory
    python benchmarks/studies/write_document.py                      the document again, from results/

In: folders of studies. Out: results/NAME.json (without names of this machine's folders), docs/studies.md and its
pictures, docs/images/study-*.svg: one for each quantity and origin, so that origins never share an axis.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from pydantic import TypeAdapter

from seqfit.studies.page import list_pictures
from seqfit.studies.results import RESULT, StudyBars, StudyResult, StudySection
from seqfit.studies.tables import build_section_table, list_study_notes, to_study_markdown
from seqfit.tables import to_markdown_table

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DOCS = HERE.parents[1] / "docs"
INTRO = """\
# Published studies, each one command

    seqfit study                                  # the list
    seqfit study classic-strategies               # published, predicted and measured, side by side
    seqfit study t5-memory --full --dry-run       # what the real model and data would take
    seqfit study my.yaml --out studies/mine       # a study of your own

A study repeats a published comparison. Its figures have four origins, which never share a column or a picture:

| origin | what it is |
|---|---|
| published | what the account says |
| predicted | what the planner computes for the hardware that the account names, without a GPU |
| measured | what this machine has measured, with the model and data that its line names |
| reconstructed | records made from published figures, where nothing can be measured here |

`--quick` (the default) takes a small model and at most five minutes on two cores; `--full` the real model and data from
the Hub, on a GPU; `--submit` runs the trials as a job array on Slurm. Data comes from the folder `SEQFIT_DATA`, or from
`../shared/data`; without either, a study trains on the data that ships with seqfit, and says so on top. Killed, a study
goes on with the same command: what is finished is not repeated.

## A study of your own

One YAML file, checked before anything runs:

```yaml
title: Does recomputing save memory?
question: What does gradient checkpointing save, and what does it cost?
quantities: {time: step_seconds, memory: memory, em: em}   # column: what is measured for it
baseline: plain
candidates:
  plain: {strategy: [baseline]}                # as in seqfit compare --strategies
  saving: {strategy: [recompute]}
published:
  source: my own notes
  figures:                                     # each with its unit
    plain: {time: 10 s, memory: 4.0 GB}
    saving: {time: 13 s, memory: 2.0 GB}
quick:
  recipe: demo
  steps: 6
  warm_up: 1
  overrides: [train.batch_examples=4, model.dropout=0, eval.limit=4]
```

`prediction:` adds predictions of published Trainer runs (hardware, lengths, and how the script ran); the studies in
`seqfit/studies/library` are examples.

The rest of this page is made by `benchmarks/studies/write_document.py` from studies that were run, on a machine that
did other work meanwhile: measured times say little there, memory, losses and scores do not depend on it.
"""


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    for folder in map(Path, sys.argv[1:]):
        keep(folder)
    results = [read(path) for path in sorted(RESULTS.glob("*.json"))]
    for picture in (DOCS / "images").glob("study-*.svg"):
        picture.unlink()
    parts = [INTRO, *("\n\n".join(describe(result)) + "\n" for result in results)]
    (DOCS / "studies.md").write_text("\n".join(parts), "utf-8")


def keep(folder: Path) -> None:
    values = json.loads((folder / RESULT).read_text("utf-8"))
    values["command"] = f"seqfit study {values['name']}"
    text = json.dumps(values, ensure_ascii=False, indent=1)
    (RESULTS / f"{values['name']}.json").write_text(text + "\n", "utf-8")


def read(path: Path) -> StudyResult:
    return TypeAdapter(StudyResult).validate_python(json.loads(path.read_text("utf-8")))


def describe(result: StudyResult) -> Iterator[str]:
    yield f"## {result.title}"
    yield f"`{result.command}`: {result.question}"
    yield from result.on_top
    yield f"**{result.answer}**"
    yield to_study_markdown(result)
    yield "\n".join(f"- {line}" for line in list_study_notes(result))
    yield "\n".join(draw(result.name, bars) for bars in list_pictures(result))
    for section in result.sections:
        yield from describe_section(section)


def describe_section(section: StudySection) -> Iterator[str]:
    yield f"### {section.heading}"
    yield from section.text
    if section.table is not None:
        yield to_markdown_table(build_section_table(section.table))


def draw(study: str, bars: StudyBars) -> str:
    """Writes a picture; returns the Markdown that shows it."""
    title = f"{bars.title}, {bars.basis}"
    name = "study-" + re.sub(r"[^a-z0-9]+", "-", f"{study}-{title}".lower()) + ".svg"
    (DOCS / "images" / name).write_text(to_svg(title, bars), "utf-8")
    return f"![{title}](images/{name})"


_ROW, _LEFT, _WIDTH = 24, 230, 560


def to_svg(title: str, bars: StudyBars) -> str:
    most = max(bars.values.values()) or 1.0
    height = 34 + _ROW * len(bars.values)
    shape = 'fill="none" stroke="#6f7fe0" stroke-width="1.5"' if bars.basis == "predicted" else 'fill="#6f7fe0"'
    shape = 'fill="#a2a5b0"' if bars.basis == "published" else shape
    lines = []
    for number, (name, value) in enumerate(bars.values.items()):
        top, long = 30 + _ROW * number, (_WIDTH - _LEFT - 90) * value / most
        lines.append(f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>')
        lines.append(f'<rect x="{_LEFT}" y="{top + 2}" width="{long:.1f}" height="14" rx="2" {shape}/>')
        lines.append(f'<text x="{_LEFT + long + 6:.1f}" y="{top + 13}">{escape(bars.labels[name])}</text>')
    style = "text{font:12px system-ui,sans-serif;fill:#1c1d22}@media(prefers-color-scheme:dark){text{fill:#e8e9ed}}"
    head = f"<title>{escape(title)}</title><style>{style}</style>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">'
        f'{head}<text x="8" y="16" font-weight="600">{escape(title)}</text>'
        f"{''.join(lines)}</svg>\n"
    )


if __name__ == "__main__":
    main()
