"""A run as a page reads it: once, whatever state it is in, with a list of what is missing.

In: a run directory. Out: a `ShownRun`, which answers what a `Run` answers, with the readable records only, and says how
the run really stands:

    manifest says "running", a process holds the lock      ->  running
    manifest says "running", nobody holds the lock         ->  died
    manifest says "finished"                               ->  finished
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from seqfit.errors import RecipeError, SeqfitError
from seqfit.metrics import higher_is_better
from seqfit.metrics.registry import IN_OWN_UNIT
from seqfit.recipe.schema import SPLITS, Recipe
from seqfit.recipe.yaml_text import read_yaml
from seqfit.report.reading import Lines, Record, inner, number, read_lines, read_object
from seqfit.rundir import files
from seqfit.rundir.run import Run, is_being_written
from seqfit.system import quote
from seqfit.tasks import build_task

DIED = "died"
NO_EVALUATION = "no evaluation is recorded"
_TITLES = {
    "em": "exact match",
    "exact_match": "exact match",
    "f1": "F1",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "subset_accuracy": "subset accuracy",
    "numeric_em": "exact number",
    "pearson": "Pearson's r",
    "spearman": "Spearman's ρ",
    "rmse": "RMSE",
    "mae": "MAE",
}
_PROFILE = f"{files.PROFILE}/{files.PROFILE_SUMMARY}"


class ShownRun(Run):
    """A run whose files are read once and tolerantly."""

    def __init__(self, path: str | Path, name: str = "", resume: str = "") -> None:
        super().__init__(path)
        self.name = name or self.path.resolve().name
        self._resume = resume or f"seqfit train {quote(self.path)} --resume"  # the command
        self._lines: dict[str, Lines] = {}  # by file: a page shows one moment of a run that goes on

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Empty where it can't be read."""
        return read_object(self.path / files.MANIFEST)[0]

    @cached_property
    def known_recipe(self) -> Recipe | None:
        """None where it can't be read."""
        try:
            return self.recipe
        except (SeqfitError, OSError, ValueError):
            return None

    @cached_property
    def strategy_fields(self) -> dict[str, Any]:
        """As training used them; empty where they can't be read."""
        try:
            fields = read_yaml((self.path / files.STRATEGY).read_text("utf-8"))[0]
        except (OSError, ValueError, yaml.YAMLError):
            return {}
        return fields if isinstance(fields, dict) else {}

    @cached_property
    def state(self) -> str:
        """running, finished, failed, interrupted or died."""
        said = str(self.manifest.get("status", "running"))
        return DIED if said == "running" and not is_being_written(self.path) else said

    def steps(self) -> list[dict[str, Any]]:
        """The readable ones."""
        return self._read(files.STEPS).records

    def evaluations(self) -> list[dict[str, Any]]:
        """The readable ones."""
        return self._read(files.EVALUATIONS).records

    def events(self) -> list[dict[str, Any]]:
        """The readable ones."""
        return self._read(files.EVENTS).records

    def telemetry(self) -> list[dict[str, Any]]:
        """The readable ones."""
        return self._read(files.TELEMETRY).records

    def sensors(self) -> dict[str, Any] | None:
        """None where they can't be read."""
        return read_object(self.path / files.SENSORS)[0] or None

    def _read(self, name: str) -> Lines:
        if name not in self._lines:
            self._lines[name] = read_lines(self.path / name)
        return self._lines[name]

    @cached_property
    def evaluated(self) -> dict[str, Record]:
        """Split -> what `seqfit evaluate` wrote of it, where that can be read."""
        found = {split: read_object(self.path / files.evaluation(split))[0] for split in SPLITS}
        return {split: record for split, record in found.items() if record}

    def scored_before(self, split: str) -> Record:
        """The same split before fine-tuning, if it was scored on as many rows: others can't be compared."""
        before = read_object(self.path / files.evaluation(split, before=True))[0]
        return before if before.get("rows") == self.evaluated.get(split, {}).get("rows") else {}

    @cached_property
    def by_split(self) -> dict[str, list[dict[str, Any]]]:
        """The evaluations of each split while training; one scored afterwards is shown from its own file. Training's
        steps rise: a record no further than the one before it is of `seqfit evaluate`, and has the time of that."""
        by_split: dict[str, list[dict[str, Any]]] = {}
        for record in self.evaluations():
            split = record["split"]
            before = by_split[split][-1]["step"] if split in by_split else -1
            if record["step"] > before and (split == "validation" or split not in self.evaluated):
                by_split.setdefault(split, []).append(record)
        return by_split

    @cached_property
    def score(self) -> str:
        """The score that chose the checkpoint: what the recipe says, else the task's main one, else the loss."""
        if self.known_recipe is None:
            return next((name for record in self.evaluations() for name in record["scores"]), "loss")
        wanted = self.known_recipe.eval.best or build_task(self.known_recipe.task).main_score
        return wanted if any(wanted in record["scores"] for record in self.evaluations()) else "loss"

    @cached_property
    def gaps(self) -> list[str]:
        """What is missing or damaged, in words."""
        return [*self._say_end(), *self._say_untested(), *self._say_damage(), *self._say_missing()]

    def _say_untested(self) -> list[str]:
        """A model type that no test compares with transformers: its figures may be wrong, so it stands at the top."""
        return [event["message"] for event in self.events() if event["kind"] == "untested"][:1]

    def _say_end(self) -> list[str]:
        if self.state != DIED:
            return []
        return [
            f"its manifest says running, but no process writes it: it was killed, or its machine went down. "
            f"{self._resume} goes on"
        ]

    def _say_damage(self) -> list[str]:
        evaluations = [files.evaluation(split, before=before) for split in SPLITS for before in (False, True)]
        objects = [files.MANIFEST, files.SENSORS, *evaluations]
        gaps = [gap for name in objects if (gap := read_object(self.path / name)[1])]
        if damage := read_object(self.path / _PROFILE)[1]:
            gaps.append(f"{files.PROFILE}/{damage}")
        for name in (files.STEPS, files.EVALUATIONS, files.EVENTS, files.TELEMETRY):
            gaps += self._read(name).gaps
        if self.known_recipe is None:
            gaps.append(f"{files.RECIPE} is missing or can't be read")
        if not self.strategy_fields:
            gaps.append(f"{files.STRATEGY} is missing or can't be read")
        return gaps

    def _say_missing(self) -> list[str]:
        gaps = []
        if not self.steps():
            gaps.append("no step is recorded")
        if not self.evaluations() and not self.evaluated:
            gaps.append(NO_EVALUATION)
        if not self.telemetry():
            is_off = self.strategy_fields.get("telemetry_hz") == 0
            gaps.append(f"no telemetry: {'strategy.telemetry_hz is 0' if is_off else f'{files.TELEMETRY} is missing'}")
        return gaps


def value_of(record: Record, name: str) -> float | None:
    """A field of the record itself (loss, memory_bytes), or else one of its scores."""
    return number(record, name) if name in record else number(inner(record, "scores"), name)


def best_of(records: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The record with the best value; None where none has any."""
    sign = 1 if is_higher_better(name) else -1
    scored = [record for record in records if value_of(record, name) is not None]
    return max(scored, key=lambda record: sign * (value_of(record, name) or 0.0), default=None)


def is_higher_better(score: str) -> bool:
    """Of a score that no metric of ours has, too: it grows."""
    try:
        return higher_is_better(score)
    except RecipeError:
        return True


def title_of(score: str) -> str:
    """In words."""
    return _TITLES.get(score, score)


def write_score(value: float | None, name: str) -> str:
    """With as many digits as it deserves."""
    if value is None:
        return "–"
    return f"{value:.3f}" if name in IN_OWN_UNIT else f"{value:.1f}"
