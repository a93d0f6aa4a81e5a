"""Two runs on the same rows, as `seqfit evaluate A B` compares them: shown where a page has exactly two groups of runs.

Each group is represented by its first run that was evaluated; other seeds are in the scores of the page, not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.errors import SeqfitError
from seqfit.evaluation import paired
from seqfit.metrics import format_score
from seqfit.own_functions import is_own_function
from seqfit.recipe import Recipe
from seqfit.reporting.html import Html, badge, disclosure, element, join, section, table
from seqfit.reporting.runs import ShownRun, title_of
from seqfit.reporting.subject import ReportSubject

_MOST_ROWS = 50_000  # beyond that a page takes longer than its reader waits


def show_paired(subject: ReportSubject) -> Html | None:
    """A section for each split that both have evaluated."""
    if subject.single is not None or len(subject.groups) != 2:
        return None
    parts = []
    for split in dict.fromkeys(split for run in subject.runs for split in run.evaluated):
        found = [
            (group, run)
            for group, runs in subject.groups.items()
            if (run := next((one for one in runs if one.evaluated.get(split, {}).get("predictions")), None)) is not None
        ]
        if len(found) == 2 and (part := _show_split(split, found)) is not None:
            parts.append(part)
    return join(parts) if parts else None


def _show_split(split: str, found: Sequence[tuple[str, ShownRun]]) -> Html | None:
    names = [group for group, _ in found]
    first, second = (run.evaluated[split] for _, run in found)
    recipe = found[0][1].known_recipe
    if recipe is None or len(first["predictions"]) > _MOST_ROWS:
        return None
    compared = _pair(first, second, _without_own_metrics(recipe), names)
    if compared is None or not compared.scores:
        return None
    rows = [
        [title_of(change.name), *_list_cells(change), _format_p(change.p), _mark(change)] for change in compared.scores
    ]
    heads = ["score", *names, "difference", "95% CI", "p", ""]
    alike = compared.rows - compared.better_rows - compared.worse_rows
    left_out = f" {compared.left_out:,} rows that only one has are left out." if compared.left_out else ""
    note = (
        f"{compared.rows:,} rows that both have; by {title_of(compared.row_score)} {compared.better_rows:,} are better "
        f"in {names[1]}, {compared.worse_rows:,} worse, {alike:,} alike.{left_out} Paired bootstrap over the rows; a "
        "difference is significant if its interval excludes 0."
    )
    parts = [table(heads, rows, numbers=range(1, 6))]
    if compared.groups:
        groups = [
            [f"{group.kind}: {group.name}", f"{group.rows:,}", *_list_cells(group.change), _mark(group.change)]
            for group in compared.groups
        ]
        title = (
            f"{title_of(compared.scores[0].name)} by {', '.join(dict.fromkeys(one.kind for one in compared.groups))}"
        )
        shown = table(["group", "rows", *names, "difference", "95% CI", ""], groups, numbers=range(1, 6))
        by_chance = element(
            "p", "Of twenty groups without any difference, one is significant by chance.", class_="note"
        )
        parts.append(disclosure(title, join([shown, by_chance])))
    return section(f"{names[1]} against {names[0]} on {split}", *parts, note=note)


def _without_own_metrics(recipe: Recipe) -> Recipe:
    """A page runs nobody's code."""
    metrics = [name for name in recipe.eval.metrics or () if not is_own_function(name)]
    changed: dict[str, Any] = {"metrics": metrics or None}
    if len(metrics) < len(recipe.eval.metrics or ()):
        changed["best"] = None
    return recipe.model_copy(update={"eval": recipe.eval.model_copy(update=changed)})


def _pair(
    first: Mapping[str, Any], second: Mapping[str, Any], recipe: Recipe, names: Sequence[str]
) -> paired.PairedEvaluation | None:
    try:
        return paired.pair_evaluations(first, second, recipe, names)
    except SeqfitError:  # no row in common, which the rows side by side say
        return None


def _list_cells(change: paired.ScoreChange) -> list[str]:
    def signed(value: float) -> str:
        return ("+" if value > 0 else "") + format_score(change.name, value)

    interval = "–" if change.low is None or change.high is None else f"{signed(change.low)} to {signed(change.high)}"
    values = [format_score(change.name, value) for value in (change.first, change.second)]
    return [*values, signed(change.difference), interval]


def _format_p(p: float | None) -> str:
    return "–" if p is None else f"{p:.3f}"


def _mark(change: paired.ScoreChange) -> Html:
    if not change.is_significant:
        return badge("not significant", "plain")
    return badge("better", "good") if change.is_better else badge("worse", "bad")
