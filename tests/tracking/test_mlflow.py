from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import SeqfitError
from seqfit.tracking.track import export_runs
from seqfit.tracking.tracker import open_tracker
from tests.tracking.records import START

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library and those that it imports
pytest.importorskip("mlflow", reason="mlflow is not installed; pip install 'seqfit[mlflow]' has it")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    return MlflowClient()


def export(run_path: Path) -> None:
    export_runs([run_path], partial(open_tracker, "mlflow"), "p")


def only_run(client: Any) -> Any:
    (run,) = client.search_runs([client.get_experiment_by_name("p").experiment_id])
    return run


def test_points_read_back_have_the_records_steps_and_times(run_path: Path, client: Any) -> None:
    export(run_path)
    run = only_run(client)
    losses = [(p.step, p.timestamp, p.value) for p in client.get_metric_history(run.info.run_id, "train/loss")]
    assert losses == [(10, 1000 * (START + 10), 0.5), (20, 1000 * (START + 13), 0.25)]
    assert (run.info.start_time, run.info.end_time) == (1000 * START, 1000 * (START + 15))
    assert run.info.status == "FINISHED"
    assert run.data.metrics["final/test/f1"] == 58.5


def test_config_and_events_are_kept_without_secrets(run_path: Path, client: Any) -> None:
    export(run_path)
    data = only_run(client).data
    assert data.params["recipe.train.steps"] == "20"
    assert "step 10, data: 3 rows were truncated" in data.tags["mlflow.note.content"]
    assert "hunter2" not in str(data.params) + str(data.tags)


def test_a_second_export_goes_to_the_same_run_and_adds_nothing(run_path: Path, client: Any) -> None:
    export(run_path)
    export(run_path)
    run = only_run(client)
    for name, count in (("train/loss", 2), ("gpu/0/busy_share", 4), ("final/test/f1", 1)):
        assert len(client.get_metric_history(run.info.run_id, name)) == count


def test_a_store_that_mlflow_refuses_is_an_error_of_three_parts(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://host")
    with pytest.raises(SeqfitError, match="Set MLFLOW_TRACKING_URI"):
        export(run_path)
