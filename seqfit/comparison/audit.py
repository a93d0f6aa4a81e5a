"""`audit`: was a comparison fair? Compares the configurations of runs, recipes, Trainer scripts and published rows.

In: any set of items, mixed as well. Out: an `Audit` (audits.py), whose findings list what was unequal besides what was
meant to differ. Nothing is run, and no torch is imported.

    audit(["runs/a", "runs/b"])                        run directories, recipes, comparisons' folders
    audit(["train_fp16.py", "train.py"])               scripts, argument files, command lines in quotes
    audit(["published.yaml"])                          a table of published rows, see docs/comparing.md
    audit([{"name": "fp16", "arguments": {"fp16": True, ...}, "seconds": 69, "gb": 5.47, "accuracy": 78,
            "data": {"name": "AG News", "train": 1000, "test": 100}, "gpus": 1}, ...])
    audit([{"name": "packed", "recipe": "mine.yaml", "overrides": ["strategy.batching=packed"]}, ...])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.comparison.audits import Audit, AuditItem

AuditInput = str | Path | Mapping[str, Any] | AuditItem


def audit(items: Sequence[AuditInput], *, meant: Sequence[str] = (), baseline: str = "") -> Audit:
    """`meant`: what the items are meant to differ in, such as precision; guessed from their names where it is empty."""
    raise NotImplementedError
