"""What a comparison found, as tables: measured beside the reference, predicted apart, and the checklist.

In: a subject with a comparison. Out: sections. A cell has the mean over the trials with its spread, and below it the
share of the reference, marked where the difference is within noise:

    way                 step                   resident
    vanilla reference   412 ms ± 3.1%          1.2 GiB
    bf16    lossy       398 ms ± 2.9%          0.9 GiB
                        96.6%, within noise    75.0%
"""

from __future__ import annotations

from seqfit.compare.quantities import Quantity, find_quantity
from seqfit.compare.records import Check, Comparison, Figure, Prediction, Standing
from seqfit.compare.tables import list_by_weight
from seqfit.report.elements import Html, badge, disclosure, element, join, section, swatch, table
from seqfit.report.reading import inner
from seqfit.report.subject import Subject, device_of
from seqfit.units import format_bytes, format_count, format_seconds, format_share

_STATES = {
    "out_of_memory": ("out of memory", "bad"),
    "failed": ("failed", "bad"),
    "impossible": ("not run here", "predicted"),
    "waiting": ("under way", "plain"),
}


def show_standings(subject: Subject) -> Html | None:
    """Every quantity of every entrant."""
    comparison = subject.comparison
    if comparison is None:
        return None
    quantities = [find_quantity(name) for name in list_by_weight(comparison)]
    rows = [
        [_name(standing, subject), *(_cell(standing, quantity) for quantity in quantities)]
        for standing in comparison.standings
    ]
    heads = [element("span", quantity.label, title=quantity.about) for quantity in quantities]
    measured = table(["way", *heads], rows, numbers=range(1, len(heads) + 1), class_="standings")
    return section("Measured", measured, _reasons(comparison), note=_say_trials(comparison))


def show_predicted(subject: Subject) -> Html | None:
    """A table for each device, under a heading of its own: nobody takes it for measured."""
    if subject.comparison is None:
        return None
    devices = dict.fromkeys(
        device_of(found.target) for standing in subject.comparison.standings for found in standing.predictions
    )
    shown: list[Html] = []
    for device in devices:
        found = [
            one
            for standing in subject.comparison.standings
            for one in standing.predictions
            if device_of(one.target) == device
        ]
        rows = [_predicted_cells(one, device) for one in found]
        shown += [element("h3", device), table(["way", "", "peak", "step", "tokens/s"], rows)]
        reasons = [element("li", f"{one.entrant}: {one.reason}") for one in found if one.reason]
        shown += [element("ul", *reasons, class_="note")] if reasons else []
    if not shown:
        return None
    note = "By the planner, from the model and the data; nothing of this was run."
    return section("Predicted", *shown, note=note)


def show_checklist(subject: Subject) -> Html | None:
    """What was verified; open where something does not hold."""
    comparison = subject.comparison
    if comparison is None or not comparison.checks:
        return None
    broken = [check for check in comparison.checks if not check.same]
    if broken:
        rows = [_check_row(check) for check in [*broken, *(check for check in comparison.checks if check.same)]]
        title, note = "Is it fair? No", f"{len(broken)} of {len(rows)} lines of the checklist do not hold."
        return section(title, table(["", "checked", "what was seen"], rows, class_="judged"), note=note)
    rows = [_check_row(check) for check in comparison.checks]
    opened = disclosure(f"All {len(rows)} lines of the checklist hold", table(["", "checked", "what was seen"], rows))
    return section("Is it fair? Yes", opened, note="Verified from the run directories.")


def _check_row(check: Check) -> list[object]:
    return [badge("holds", "good") if check.same else badge("does not hold", "bad"), check.name, check.detail]


def _name(standing: Standing, subject: Subject) -> Html:
    entrant = standing.entrant
    marks = [element("div", badge(entrant.kind, "plain"))]
    if standing.state in _STATES:
        marks.append(element("div", badge(*_STATES[standing.state])))
    name = element("div", swatch(subject.colour(entrant.name), entrant.name), title=" ".join(entrant.overrides))
    return join([name, *marks])


def _cell(standing: Standing, quantity: Quantity) -> Html | str:
    found = standing.figures.get(quantity.name)
    if found is None:
        return "–"
    value = element("div", quantity.format(found.mean), _spread(found, quantity))
    return value if found.change is None else join([value, _change(found, quantity)])


def _spread(found: Figure, quantity: Quantity) -> Html | str:
    if found.spread is None:
        return ""
    relative = quantity.spread_is_relative and found.mean
    written = format_share(found.spread / abs(found.mean)) if relative else f"{found.spread:.2g}"
    return element("span", f" ± {written}", class_="note")


def _change(found: Figure, quantity: Quantity) -> Html:
    """The share of the reference: in the colour of good or bad only where it is more than noise."""
    written = format_share(1 + (found.change or 0.0))
    if found.within_noise is not False:
        noise = "within noise" if found.within_noise else "noise unknown"
        return element("div", f"{written}, {noise}", class_="note")
    if quantity.higher_is_better is None:
        return element("div", written, class_="note")
    is_better = ((found.change or 0.0) > 0) == quantity.higher_is_better
    return element("div", written, class_="better" if is_better else "worse")


def _reasons(comparison: Comparison) -> Html | str:
    """Why an entrant is lossy, different, or has no figures; why a quantity is absent of all; what was adapted."""
    said = []
    for standing in comparison.standings:
        entrant, reason = standing.entrant, standing.reason or standing.entrant.impossible
        said += [f"{entrant.name} is {entrant.kind}: {entrant.why}"] if entrant.why else []
        said += [f"{entrant.name}: {reason}"] if reason else []
    absent: dict[str, list[str]] = {}
    for name, why in inner(comparison.machine, "absent").items():
        absent.setdefault(str(why), []).append(find_quantity(name).label)
    said += [f"not measured: {', '.join(labels)} ({why})" for why, labels in absent.items()]
    said += comparison.matrix.notes
    return element("ul", *(element("li", line) for line in said), class_="note") if said else ""


def _say_trials(comparison: Comparison) -> str:
    matrix = comparison.matrix
    seeds = f"{len(matrix.seeds)} seed{'' if len(matrix.seeds) == 1 else 's'}"
    repeats = f"{matrix.repeats} repeat{'' if matrix.repeats == 1 else 's'}"
    counted = f"{seeds}, {repeats}, {matrix.steps:,} steps each, the first {matrix.warm_up} not counted in times"
    against = f"Shares are of {matrix.reference.name}, compared pair by pair; ± is the spread over the trials."
    return f"{counted}. {against}"


def _predicted_cells(found: Prediction, device: str) -> list[object]:
    fits = {True: badge("fits", "good"), False: badge("does not fit", "bad"), None: "–"}[found.fits]
    return [
        found.entrant if found.target == device else f"{found.entrant}, on {found.target}",
        fits,
        "–" if found.peak_bytes is None else format_bytes(found.peak_bytes),
        "–" if found.step_seconds is None else format_seconds(found.step_seconds),
        "–" if found.tokens_per_second is None else format_count(found.tokens_per_second),
    ]
