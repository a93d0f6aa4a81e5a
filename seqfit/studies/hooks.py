"""What a study of the library adds to the table: its answer, its sections, and what it measures besides.

A hook is a module with the study's name and functions of fixed names, each taken by the framework:

    explain_NAME(evidence) -> Explanation                   the answer in one sentence, and sections of the report
    measure_NAME(study, mode, folder, log) -> dict         optional: plain values, kept in facts.json; called again
                                                           after a kill, so it keeps what it has done in `folder`

A user's own study has no hook: its answer is made from the table (answer.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.comparison import Comparison, audits
from seqfit.studies.load import Study
from seqfit.studies.predictions import PredictedCandidate
from seqfit.studies.results import StudyLog, StudyResult, StudySection
from seqfit.studies.schema import StudyMode

_HOOKED = {"classic-strategies": "classic_strategies", "t5-memory": "t5_memory"}  # study -> module


@dataclass(frozen=True)
class Explanation:
    answer: str
    sections: tuple[StudySection, ...] = ()


@dataclass(frozen=True)
class StudyEvidence:
    """What an explanation is made of."""

    study: Study
    result: StudyResult  # without answer and sections
    predicted: Mapping[str, PredictedCandidate]
    comparison: Comparison | None  # None: nothing was measured
    facts: Mapping[str, Any]  # what `measure_NAME` returned
    audit: audits.Audit | None  # of the published rows


@dataclass(frozen=True)
class StudyHook:
    explain: Callable[[StudyEvidence], Explanation]
    measure: Callable[[Study, StudyMode, Path, StudyLog], dict[str, Any]] | None


def find_hook(study: Study) -> StudyHook | None:
    name = _HOOKED.get(study.name) if study.is_library else None
    if name is None:
        return None
    module = importlib.import_module(f"seqfit.studies.{name}")
    return StudyHook(getattr(module, f"explain_{name}"), getattr(module, f"measure_{name}", None))
