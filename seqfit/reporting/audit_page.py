"""An audit as one HTML page, and as a section of another: an `Audit` comes in, markup or a file goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seqfit.comparison import audits
from seqfit.errors import RunError
from seqfit.reporting.html import Html, badge, bullets, disclosure, element, facts, join, render_page, section, table
from seqfit.rundir import write_text

_TITLES = {
    "unequal": ("Unequal", "bad"),
    "unknown": ("Not known", "predicted"),
    "weak": ("Limits", "plain"),
}


def write_audit_page(audit: audits.Audit, out: Path) -> Path:
    header = element(
        "header",
        element("div", "seqfit audit", class_="eyebrow"),
        element("h1", f"Was it fair? {_answer(audit)}"),
        element("p", audit.verdict, class_="lead"),
        facts({"Items": str(len(audit.items)), "Baseline": audit.baseline}),
    )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, render_page("Audit · seqfit", [header, *show_audit(audit)]))
    except (OSError, RunError) as error:
        cause = error.__cause__ or error
        raise RunError(
            f"'{out}' can't be written ({getattr(cause, 'strerror', None) or cause})",
            "an audit's page is one file",
            "Choose another with --html FILE",
        ) from error
    return out


def _answer(audit: audits.Audit) -> str:
    return "Yes" if audit.is_fair else "No" if audit.of_level("unequal") else "Not known"


def show_audit(audit: audits.Audit) -> list[Html]:
    """Sections, for the page of a study as well."""
    parts = [_show_differences(audit)]
    for level, (title, _) in _TITLES.items():
        found = [one for one in audit.findings if one.level == level]
        if found:
            parts.append(section(title, *(_show_finding(one) for one in found)))
    parts.append(_show_items(audit))
    return [part for part in parts if part]


def _show_differences(audit: audits.Audit) -> Html | None:
    """A column for each value; items in their order."""
    unequal = [
        (one.label, one.values, badge("inverted" if one.is_inverted else "unequal", "bad")) for one in audit.unequal
    ]
    meant = [(label, values, badge("as meant", "good")) for label, values in audit.intended.items()]
    shown = [*unequal, *meant]
    if not shown:
        return None
    rows = [[_name_setting(label, mark), *_cells(values, audit)] for label, values, mark in shown]
    names = [item.name for item in audit.items]
    return section(
        "What differs", table(["setting", *names], rows, class_="results"), note=audits.describe_meant(audit)
    )


def _name_setting(label: str, mark: Html) -> Html:
    return join([element("div", audits.label_of(label)), element("div", mark)])


def _cells(values: Mapping[str, str], audit: audits.Audit) -> Sequence[Html | str]:
    usual = values.get(audit.baseline)
    return [
        "–"
        if item.name not in values
        else values[item.name]
        if values[item.name] == usual
        else element("b", values[item.name])
        for item in audit.items
    ]


def _show_finding(finding: audits.AuditFinding) -> Html:
    marks = [badge(word, "plain") for word in finding.affects]
    title = element("h3", audits.label_of(finding.label), " ", *marks)
    pairs = {"By how much": finding.by, "Why it matters": finding.why, "What to change": finding.change}
    what = element("p", f"{finding.what[:1].upper()}{finding.what[1:]}.")
    return element(
        "div", title, what, bullets([join([element("b", f"{k}: "), v]) for k, v in pairs.items() if v], class_="note")
    )


def _show_items(audit: audits.Audit) -> Html:
    names = [item.name for item in audit.items]
    stated = dict.fromkeys(name for item in audit.items for name in item.facts)
    rows = [
        [name.replace("_", " "), *(item.facts[name].text if name in item.facts else "–" for item in audit.items)]
        for name in stated
    ]
    notes = audits.list_audit_notes(audit)
    folded = [disclosure("All settings", table(["setting", *names], rows))]
    folded += [disclosure("Not read, or assumed", bullets(notes))] if notes else []
    lines = {"": audit.equal, "Not stated by any item: ": audit.not_stated}
    note = " ".join(f"{start}{', '.join(map(audits.label_of, labels))}." for start, labels in lines.items() if labels)
    return section(f"Equal: {len(audit.equal)} settings", *folded, note=note)
