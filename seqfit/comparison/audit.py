"""`audit`: was a comparison fair? Compares the configurations of runs, recipes, Trainer scripts and published rows.

In: any set of items, mixed as well. Out: an `Audit` (audits.py), whose findings list what was unequal besides what was
meant to differ. Nothing is run, and no torch is imported.

    audit(["runs/a", "runs/b"])                        run directories, recipes, comparisons' folders
    audit(["train_fp16.py", "train.py"])               scripts, argument files, command lines in quotes
    audit(["published.yaml"])                          a table of published rows (audit_items.py)
    audit([{"name": "fp16", "arguments": {"fp16": True, ...}, "seconds": 69, "gb": 5.47, "accuracy": 78,
            "data": {"name": "AG News", "train": 1000, "test": 100}, "gpus": 1}, ...])
    audit([{"name": "packed", "recipe": "mine.yaml", "overrides": ["strategy.batching=packed"]}, ...])

The one idea: an item may differ from the baseline in what it is named after, and in nothing else.

    item                    micro-batches per update
    baseline                4                            "gradient accumulation" lacks it, and all others have it:
    fp16                    4                      ->    inverted
    gradient accumulation   1
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from seqfit.comparison.aspects import (
    ASPECTS,
    find_meant,
    is_everything,
    read_meant,
    with_consequences,
)
from seqfit.comparison.audit_items import AuditInput, read_items
from seqfit.comparison.audit_limits import find_weaknesses
from seqfit.comparison.audit_rules import compare_facts
from seqfit.comparison.audits import LEVELS, Audit, AuditFinding, AuditItem, join_words, label_of
from seqfit.errors import RecipeError, did_you_mean
from seqfit.progress import Progress
from seqfit.units import format_number

_FEWEST = 2
_NAMED_FINDINGS = 4  # in the verdict; the rest is counted


def audit(
    items: Sequence[AuditInput], *, meant: Sequence[str] = (), baseline: str = "", progress: Progress | None = None
) -> Audit:
    """Compare the configurations of `items`, and list what was unequal besides what was meant to differ.

    `meant` names that, such as precision; where it is empty, it is guessed from the items' names. `baseline` is the
    name of the item that the others are compared with.
    """
    asked = read_meant(meant)
    read = read_items(items, progress)
    if len(read) < _FEWEST:
        found = f"only '{read[0].name}'" if read else "nothing"
        raise RecipeError(
            f"{found} is given", "an audit compares at least two items", "Name another run, recipe or script"
        )
    named = _find_all_named(read)
    first = _choose_baseline(read, named, baseline)
    intended_by = {item.name: with_consequences(asked or named[item.name]) for item in read}
    directly = {item.name: asked or named[item.name] for item in read}
    comparison = compare_facts(read, first, intended_by, directly if not asked else None)
    findings = [*comparison.findings, *find_weaknesses(read, first)]
    findings.sort(key=lambda one: (LEVELS.index(one.level), not one.is_inverted))
    labels = {item.name: _labels(directly[item.name]) for item in read}
    return Audit(
        items=tuple(read),
        baseline=first.name,
        meant=labels,
        is_guessed=not asked,
        findings=tuple(findings),
        equal=tuple(comparison.equal),
        not_stated=tuple(comparison.not_stated),
        intended=comparison.intended,
        verdict=_describe(findings, _labels(set().union(*directly.values())), len(comparison.equal)),
    )


def _find_all_named(items: Sequence[AuditItem]) -> dict[str, set[str]]:
    """What each item is named after; words that all names have say nothing, and 'all' is named after everything."""
    shared = set.intersection(*(set(_split_words(item.name)) for item in items))
    named = {
        item.name: set(item.named_after) or find_meant(" ".join(w for w in _split_words(item.name) if w not in shared))
        for item in items
    }
    everything = set().union(*named.values())
    return {name: everything if is_everything(name) and not own else own for name, own in named.items()}


def _split_words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s/_-]+", name) if word]


def _choose_baseline(items: Sequence[AuditItem], named: Mapping[str, set[str]], wanted: str) -> AuditItem:
    """The one of that name; else the first that is named after nothing; else the first."""
    if wanted:
        found = next((item for item in items if item.name == wanted), None)
        if found is None:
            names = [item.name for item in items]
            raise RecipeError(
                f"--baseline is '{wanted}'",
                f"the items are {', '.join(names)}",
                did_you_mean(wanted, names).strip() or "Name one of them",
            )
        return found
    return next((item for item in items if not named[item.name]), items[0])


def _labels(aspects: Collection[str]) -> tuple[str, ...]:
    return tuple(aspect.label for aspect in ASPECTS if aspect.name in aspects)


def _describe(findings: Sequence[AuditFinding], meant: Sequence[str], equal: int) -> str:
    """One sentence."""
    unequal = [one for one in findings if one.level == "unequal"]
    weak = list(dict.fromkeys(one.label for one in findings if one.level == "weak"))
    unknown = [one for one in findings if one.level == "unknown"]
    others = [label_of(label) for label in meant if label not in {one.label for one in unequal}]
    besides = f" besides {join_words(others)}" if others else ""
    limits = f"; limited by {join_words(weak)}" if weak else ""
    if unequal:
        names = list(
            dict.fromkeys(f"{label_of(one.label)}{' (inverted)' if one.is_inverted else ''}" for one in unequal)
        )
        rest = len(names) - _NAMED_FINDINGS
        parts = [*names[:_NAMED_FINDINGS], *([f"{rest} more"] if rest > 0 else [])]
        verb = "was" if len(names) == 1 else "were"
        return f"Not a fair comparison: {join_words(parts)} {verb} unequal{besides}{limits}."
    if unknown:
        return f"Not known whether it is fair: {join_words([one.label for one in unknown])}{limits}."
    return f"Fair, as far as can be read: {format_number(equal, 'setting')} equal, nothing unequal{besides}{limits}."
