from __future__ import annotations

from pathlib import Path

import seqfit
from seqfit.rundir.records import EVENT_TYPES, EventKind, StepRecord
from seqfit.rundir.records_page import describe_records

PAGE = Path(seqfit.__file__).parents[1] / "docs" / "records.md"


def test_the_page_of_the_documentation_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == describe_records(), "run: python -m seqfit.rundir.records_page > docs/records.md"


def test_every_field_and_kind_has_a_line_with_its_meaning() -> None:
    lines = describe_records().splitlines()
    for name in (*StepRecord.__dataclass_fields__, *EventKind):
        (line, *_) = [line for line in lines if line.startswith(f"| `{name}` |")]
        assert not line.endswith("|  |"), name
    assert all(f"### {event.kind}" in lines for event in EVENT_TYPES)
