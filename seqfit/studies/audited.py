"""What the published comparison hid: the published arguments of each row go to the audit, its findings into the report.

A row whose arguments the account does not give is not audited; a study without any has no such section.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import seqfit
from seqfit.comparison import audits
from seqfit.studies.figures import is_bytes, is_seconds
from seqfit.studies.load import Study
from seqfit.studies.results import StudySection, StudyTable

TITLE = "What the published comparison hid"


def audit_published(study: Study) -> audits.Audit | None:
    rows = list(_list_rows(study))
    if len(rows) < 2:
        return None
    return seqfit.audit(rows, baseline=study.spec.baseline)


def describe_audit(audit: audits.Audit) -> StudySection:
    rows = tuple(
        (found.level, found.label, found.what, found.why, "; ".join(part for part in (found.by, found.change) if part))
        for found in audit.findings
    )
    table = StudyTable(("", "setting", "what", "why it matters", "by how much, and what to change"), rows)
    equal = f"Equal in all rows: {', '.join(map(audits.label_of, audit.equal))}." if audit.equal else ""
    return StudySection(TITLE, text=tuple(filter(None, (audit.verdict, equal))), table=table if rows else None)


def _list_rows(study: Study) -> Iterator[dict[str, Any]]:
    """In the audit's words: arguments, seconds, gb, scores, and what all rows share."""
    shared = dict(study.spec.published.conditions)
    arguments = shared.pop("arguments", {})
    for name, candidate in study.spec.candidates.items():
        if not candidate.arguments:
            continue
        figures: dict[str, Any] = {}
        for quantity, figure in study.figures.get(name, {}).items():
            if figure.value is None or figure.bound:
                continue
            if is_seconds(figure.unit):
                figures["seconds"] = figure.base_value
            elif is_bytes(figure.unit):
                figures["gb"] = figure.value
            elif figure.unit in ("%", "of 1"):
                figures[quantity] = figure.value if figure.unit == "%" else 100 * figure.value
        yield {"name": name, **shared, "arguments": {**arguments, **candidate.arguments}, **figures}
