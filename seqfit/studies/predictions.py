"""What the planner predicts for each published row, on the account's hardware: a line per candidate, kept in a file.

In: a study. Out: memory over all GPUs and the time of the whole training, for each candidate with a `script`. The
lengths of its rows are assumed, once for all rows, and come in several random orders (planning/trainer_run.py).

    quantiles [20, 50, 130], 4 rows     20 40 77 130, shuffled          mean 542, sigma 0.67      log-normal
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

from seqfit.conversion import ScriptSettings, check_script_settings
from seqfit.errors import PlanError
from seqfit.hardware import read_gpu
from seqfit.recipe import read_recipe
from seqfit.rundir import RecordFile, append_record, explained_failures
from seqfit.studies.load import Study
from seqfit.studies.results import PREDICTED, StudyLog
from seqfit.studies.schema import AssumedText, StudyCandidate, StudyPrediction
from seqfit.units import format_seconds

_MIB = 2**20


@dataclass(frozen=True)
class PredictedCandidate:
    candidate: str
    predicted_bytes: int  # over all GPUs
    low_bytes: int
    high_bytes: int
    gpu_bytes: tuple[int, ...]
    seconds: float  # of the whole training
    step_seconds: float
    fits: bool
    layout: str
    cause: str
    terms: dict[str, int]  # of the memory of one GPU that does all the work


def predict_study(study: Study, folder: Path, log: StudyLog) -> dict[str, PredictedCandidate]:
    """Those that are in the folder are not made again."""
    done = read_predicted(folder)
    wanted = [name for name, candidate in study.spec.candidates.items() if candidate.script is not None]
    prediction = study.spec.prediction
    missing = [name for name in wanted if name not in done]
    if prediction is None or not missing:
        return done
    log(f"predicting {len(missing)} of {len(wanted)} published rows")
    path = folder / PREDICTED
    known: dict[Any, Any] = {}  # traces that several rows share
    for name in missing:
        found = predict_candidate(prediction, name, study.spec.candidates[name], known)
        with explained_failures(path):
            RecordFile(path).truncate()
            with path.open("a", encoding="utf-8") as stream:
                append_record(stream, asdict(found))
        done[name] = found
        gib = found.predicted_bytes / 2**30
        log(f"predicted {name}: {gib:.1f} GiB, {format_seconds(found.seconds)} on {found.layout}")
    return done


def read_predicted(folder: Path) -> dict[str, PredictedCandidate]:
    found = [
        PredictedCandidate(**(record | {"gpu_bytes": tuple(record["gpu_bytes"])}))
        for record in RecordFile(folder / PREDICTED).read()
    ]
    return {one.candidate: one for one in found}


def check_prediction(study: Study) -> list[str]:
    """A sentence for each mistake that predicting would meet; the recipe's own are the recipe's error."""
    prediction = study.spec.prediction
    if prediction is None:
        return []
    mistakes = []
    try:
        read_gpu(prediction.gpu)
    except PlanError as error:
        mistakes.append(f"prediction.gpu: {error}")
    reading = read_recipe(prediction.recipe, prediction.overrides)
    if reading.recipe is None:
        mistakes += [f"prediction.recipe: {line}" for line in reading.explain([])[0]]
    for name, candidate in study.spec.candidates.items():
        if candidate.script is not None:
            found = check_script_settings({**prediction.script, **candidate.script})
            mistakes += [f"candidates.{name}.script: {line}" for line in found]
    return mistakes


def predict_candidate(
    prediction: StudyPrediction, name: str, candidate: StudyCandidate, known: dict[Any, Any]
) -> PredictedCandidate:
    from seqfit.planning import trainer_run  # imports torch
    from seqfit.validation import load_checked_recipe

    settings = ScriptSettings(**{"name": name, **prediction.script, **(candidate.script or {})})
    optimizer = "adafactor" if settings.optimizer == "adafactor" else "adamw"
    recipe = load_checked_recipe(prediction.recipe, [*prediction.overrides, f"train.optimizer.name={optimizer}"])
    context = prediction.context_mib
    place = trainer_run.TrainerPlace(
        prediction.gpu, prediction.gpus, prediction.torch_version, None if context is None else context * _MIB
    )
    limit = settings.max_source_tokens
    draws = [draw_lengths(prediction.lengths, prediction.rows, limit, seed) for seed in range(prediction.draws)]
    found = trainer_run.predict_trainer(settings, recipe, place, draws, known)
    steps = prediction.epochs * prediction.rows / found.examples_per_step
    return PredictedCandidate(
        candidate=name,
        predicted_bytes=found.predicted_bytes,
        low_bytes=found.low_bytes,
        high_bytes=found.high_bytes,
        gpu_bytes=found.gpu_bytes,
        seconds=steps * found.step_seconds,
        step_seconds=found.step_seconds,
        fits=found.fits,
        layout=found.layout,
        cause=found.cause,
        terms=found.terms,
    )


def draw_lengths(lengths: AssumedText, rows: int, limit: int | None, seed: int) -> tuple[Any, Any]:
    """Source and target tokens of every row, in an order of this seed."""
    import numpy as np
    import numpy.typing as npt

    sources: npt.NDArray[np.float64]
    ranks = (np.arange(rows) + 0.5) / rows
    if lengths.quantiles is not None:
        sources = np.interp(ranks, np.linspace(0, 1, len(lengths.quantiles)), lengths.quantiles)
    else:
        assert lengths.mean is not None
        assert lengths.sigma is not None
        scores = np.array([NormalDist().inv_cdf(rank) for rank in ranks])
        sources = np.exp(lengths.sigma * scores)
        sources = sources * (lengths.mean / sources.mean())
    if lengths.longest is not None:
        sources[-1] = lengths.longest
    sources = np.maximum(np.minimum(sources, limit or np.inf), 1).astype(np.int32)
    shuffled = np.random.default_rng(seed).permutation(sources)
    return shuffled, np.full(rows, lengths.target, dtype=np.int32)
