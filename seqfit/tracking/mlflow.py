"""MLflow: one run of an experiment, through its client, so that nothing of this process becomes part of it.

In: a run's scalars and notes. Out: metrics with step and time, parameters, tags, in MLFLOW_TRACKING_URI or mlflow.db in
the working directory. The run is found again by its tag `seqfit.id`. MLflow's databases keep a point once, however
often it is logged (the whole point is the key of that table), so an export can be repeated. Its older file store
appends, and would have points twice; MLflow 3 refuses that store unless it is explicitly allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from seqfit.errors import SeqfitError
from seqfit.tracking.tracker import Identity, TrackedValue

ID_TAG = "seqfit.id"
_MOST_METRICS, _MOST_PARAMS = 1000, 100  # of one request
_LONGEST_PARAM, _LONGEST_TAG = 6000, 5000
_STATUSES = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "died": "KILLED"}


class MlflowTracker:
    sent_until = None

    def __init__(self, identity: Identity) -> None:
        with _explained():
            self._client = client = MlflowClient()
            found = client.get_experiment_by_name(identity.project)
            experiment = str(found.experiment_id if found else client.create_experiment(identity.project))
            runs: Sequence[Run] = client.search_runs([experiment], f"tags.`{ID_TAG}` = '{identity.id}'")
            started = _milliseconds(identity.started)
            created = {"start_time": started, "tags": {ID_TAG: identity.id}, "run_name": identity.label}
            self._run: Run = runs[0] if runs else client.create_run(experiment, **created)
        self.place = f"{self._client.tracking_uri}, experiment {identity.project}, run {identity.label}"
        self._points: list[Metric] = []
        self._notes: list[str] = []
        self._last = (0, started)

    def config(self, values: Mapping[str, TrackedValue]) -> None:
        """Parameters, which can't be changed later: existing ones stay."""
        known = self._run.data.params
        fresh = [Param(name, str(value)[:_LONGEST_PARAM]) for name, value in values.items() if name not in known]
        with _explained():
            for start in range(0, len(fresh), _MOST_PARAMS):
                self._client.log_batch(self._run.info.run_id, params=fresh[start : start + _MOST_PARAMS])

    def scalars(self, values: Mapping[str, float], step: int, time: float) -> None:
        self._last = max(self._last, (step, _milliseconds(time)))
        self._points += [Metric(name, value, _milliseconds(time), step) for name, value in values.items()]

    def note(self, kind: str, message: str, step: int, time: float) -> None:
        """Events become lines of the run's description: MLflow has no place for notes at a time."""
        self._notes.append(f"- step {step}, {kind}: {message}")

    def flush(self) -> None:
        points, self._points = self._points, []
        with _explained():
            for start in range(0, len(points), _MOST_METRICS):
                self._client.log_batch(self._run.info.run_id, metrics=points[start : start + _MOST_METRICS])

    def finish(self, status: str, ended: float | None, scores: Mapping[str, float]) -> None:
        """A run that goes on stays open."""
        step, milliseconds = self._last
        ended_milliseconds = milliseconds if ended is None else _milliseconds(ended)
        self._points += [Metric(name, value, ended_milliseconds, step) for name, value in scores.items()]
        self.flush()
        described = "\n".join([f"seqfit run, {status}", *self._notes])[:_LONGEST_TAG]
        with _explained():
            self._client.log_batch(self._run.info.run_id, tags=[RunTag("mlflow.note.content", described)])
            if status != "running":
                self._client.set_terminated(self._run.info.run_id, _STATUSES.get(status), ended_milliseconds)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        raise SeqfitError(
            f"MLflow refused the run ({str(error).splitlines()[0]})",
            "runs go to the server or database that MLFLOW_TRACKING_URI names, or to mlflow.db here",
            "Set MLFLOW_TRACKING_URI to one that responds, then run seqfit track again",
        ) from error


def _milliseconds(time: float) -> int:
    return round(1000 * time)
