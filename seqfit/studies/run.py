"""`seqfit study NAME`: a study's file comes in; predictions, a comparison and one report go out.

Everything that can be wrong is found before the folder is made. Then, in this order: each published row is predicted,
the candidates are trained and compared (seqfit/comparison), and the report is written.

A study that was killed goes on where it was, by the same command: a prediction that is in the folder is not made again,
a trial that has ended is not run again, and what is written does not depend on when it was killed. Steps and repeats
are fixed by the study and never by the clock, so losses and scores are those of an undisturbed study.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.comparison import prepare_comparison, prepare_repeats, records, run_comparison
from seqfit.errors import RecipeError, RunError, Stopped
from seqfit.launch import Resources, Site, Submitted
from seqfit.recipe import report_mistakes
from seqfit.rundir import explained_failures, files, mask_text, write_json, write_text
from seqfit.studies.assembly import assemble_study
from seqfit.studies.data import FoundRun, find_runnable
from seqfit.studies.hooks import find_hook
from seqfit.studies.load import Study, load_study
from seqfit.studies.page import write_study_page
from seqfit.studies.predictions import check_prediction, predict_study
from seqfit.studies.results import FACTS, MEASURED_FOLDER, STUDY, StudyLog, StudyResult, write_study_result
from seqfit.studies.schema import StudyMode, StudyRun
from seqfit.system import lock_file, quote
from seqfit.yaml_text import read_yaml, write_yaml

_PLACE = Path("studies")


@dataclass(frozen=True)
class PreparedStudy:
    study: Study
    mode: StudyMode
    found: FoundRun | None  # None: nothing is measured
    folder: Path
    command: str

    def describe(self) -> str:
        """What would be run."""
        spec = self.study.spec
        lines = [
            f"{self.study.name}: {spec.title}",
            f"question: {spec.question}",
            f"published: {spec.published.source}",
        ]
        wanted = [name for name, candidate in spec.candidates.items() if candidate.script is not None]
        if spec.prediction is not None and wanted:
            count = "" if spec.prediction.gpus == 1 else f"{spec.prediction.gpus} x "
            lines.append(f"predicted for {count}{spec.prediction.gpu}: {', '.join(wanted)}")
            lines += [f"assumed: {text}" for text in spec.prediction.assumptions]
        if self.found is None:
            return "\n".join([*lines, f"measured: nothing (the study has no {self.mode} run)"])
        lines += [f"note: {note}" for note in self.found.notes]
        about = f" ({self.found.run.about})" if self.found.run.about else ""
        lines.append(f"measured{about}:")
        return "\n".join([*lines, prepare_measured(self).describe(), f"folder: {self.folder}"])


def prepare_study(
    given: str | Path, mode: StudyMode = "quick", out: Path | None = None, *, must_be_there: bool = True
) -> PreparedStudy:
    """Checked; nothing is written yet. `must_be_there`: so must be data and packages (a dry run does without)."""
    study = load_study(given)
    mistakes = check_prediction(study)
    if mistakes:
        raise RecipeError(report_mistakes(f"The study '{given}'", mistakes))
    run = study.find_run(mode)
    if run is None and mode == "full":
        raise RecipeError(
            f"--full is given, and the study '{study.name}' has no full run",
            "its field full says what is trained with the real model and data",
            "Omit --full, or add that field",
        )
    found = None if run is None else find_runnable(study, run)
    folder = out or _PLACE / (study.name if mode == "quick" else f"{study.name}-{mode}")
    prepared = PreparedStudy(study, mode, found, folder, mask_text(shlex.join(["seqfit", *sys.argv[1:]])))
    _check_folder(prepared)
    if found is not None and must_be_there:
        prepare_measured(prepared)  # finds the mistakes of its recipe
    return prepared


def prepare_measured(prepared: PreparedStudy) -> Any:
    """The comparison, new or to be resumed."""
    assert prepared.found is not None
    place = prepared.folder / MEASURED_FOLDER
    if (place / records.MATRIX).is_file():
        return prepare_comparison(place, resume=True)
    run = prepared.found.run
    return prepare_comparison(run.recipe, prepared.found.overrides, out=place, **_list_options(prepared.study, run))


def _list_options(study: Study, run: StudyRun) -> dict[str, Any]:
    """Of the comparison: candidates by their published names."""
    own = {name: one.strategy for name, one in study.spec.candidates.items() if one.strategy is not None}
    chosen = own if run.candidates is None else run.candidates
    if not chosen:
        raise RecipeError(
            f"no candidate of '{study.name}' has a strategy, and it has a run to measure",
            "a run trains each candidate's strategy",
            "Give candidates a strategy, such as [fp16], or omit quick and full",
        )
    first = {study.spec.baseline: chosen[study.spec.baseline]} if study.spec.baseline in chosen else {}
    strategies = [{name: parts or ["baseline"]} for name, parts in (first | chosen).items()]
    return {"strategies": strategies, "steps": run.steps, "repeats": run.repeats, "warm_up": run.warm_up}


def run_study(prepared: PreparedStudy, log: StudyLog = print) -> StudyResult:
    """To its end; what is finished is not repeated."""
    folder, study = prepared.folder, prepared.study
    with explained_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        write_text(folder / STUDY, _stamp(prepared))
        predicted = predict_study(study, folder, log)
        comparison = None
        if prepared.found is not None:
            for note in prepared.found.notes:
                log(f"note: {note}")
            try:
                comparison = run_comparison(prepare_measured(prepared))
            except (KeyboardInterrupt, Stopped):
                log(f"stopped; the same command goes on where it was: {prepared.command}")
                raise
        facts = _measure_more(prepared, log)
        result = assemble_study(study, prepared.mode, prepared.found, predicted, comparison, facts, prepared.command)
        write_study_result(result, folder)
        write_study_page(result, folder)
        return result


def predict_only(prepared: PreparedStudy, log: StudyLog = print) -> StudyResult:
    """What is known without training: published and predicted figures. Nothing is kept."""
    with tempfile.TemporaryDirectory() as folder:
        predicted = predict_study(prepared.study, Path(folder), log)
    return assemble_study(prepared.study, prepared.mode, None, predicted, None, {}, prepared.command)


def submit_study(prepared: PreparedStudy, resources: Resources, site: Site, *, is_dry: bool = False) -> Submitted | str:
    """The measured part as a job array on Slurm; `seqfit study` with the same folder then reads what has ended."""
    if prepared.found is None:
        raise RecipeError(
            f"--submit is given, and the study '{prepared.study.name}' has nothing to measure in this mode",
            "a job trains the candidates",
            "Omit --submit: predictions need no cluster",
        )
    run, place = prepared.found.run, prepared.folder / MEASURED_FOLDER
    options = _list_options(prepared.study, run)
    job = prepare_repeats(run.recipe, prepared.found.overrides, options, place, resources, site, is_dry=is_dry)
    if is_dry:
        return job.job.text
    submitted = job.submit()
    write_text(prepared.folder / STUDY, _stamp(prepared))
    return submitted


def _measure_more(prepared: PreparedStudy, log: StudyLog) -> dict[str, Any]:
    """What a study of the library measures besides its candidates; its hook resumes by itself."""
    hook = find_hook(prepared.study)
    if hook is None or hook.measure is None:
        return {}
    facts = hook.measure(prepared.study, prepared.mode, prepared.folder, log)
    write_json(prepared.folder / FACTS, facts)
    return facts


def _stamp(prepared: PreparedStudy) -> str:
    overrides = [] if prepared.found is None else list(prepared.found.overrides)
    return write_yaml(
        {"study": prepared.study.name, "mode": prepared.mode, "overrides": overrides, "text": prepared.study.text}
    )


def _check_folder(prepared: PreparedStudy) -> None:
    """It is new, empty, or of this very study."""
    folder, stamp = prepared.folder, prepared.folder / STUDY
    change = f"Give another --out, or remove it: rm -r {quote(folder)}"
    if not folder.exists() or (folder.is_dir() and set(os.listdir(folder)) <= {files.LOCK}):
        return
    if not stamp.is_file():
        raise RunError(f"'{folder}' exists and is not the folder of a study", "a study has a folder of its own", change)
    if read_yaml(stamp.read_text("utf-8"))[0] != read_yaml(_stamp(prepared))[0]:
        rule = "all of its figures are of one study, in one mode, on one data set"
        raise RunError(f"'{folder}' has another study, mode or data, or an earlier version of its file", rule, change)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = os.open(folder / files.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            lock_file(lock)
        except BlockingIOError as error:
            rule = "one process at a time runs a study"
            change = "Wait until it ends, or give another --out"
            raise RunError(f"another process runs the study in '{folder}'", rule, change) from error
        yield
    finally:
        os.close(lock)
