"""What the published comparison hid: the published arguments of each row go to the audit, its findings into the report.

Empty as long as there are no arguments to compare.
"""

from __future__ import annotations

from seqfit.studies.load import Study
from seqfit.studies.results import StudySection

TITLE = "What the published comparison hid"


def audit_section(study: Study) -> StudySection | None:
    arguments = {name: one.arguments for name, one in study.spec.candidates.items() if one.arguments}
    if not arguments:
        return None
    return None
