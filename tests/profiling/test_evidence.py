from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.profiling.findings import Evidence, add_recipe, add_run_evidence, add_summary
from seqfit.profiling.readers import read_trace
from seqfit.profiling.tables import diagnose, summarise_trace
from seqfit.recipe.load import load_recipe
from seqfit.rundir.reader import Run


def test_a_trace_says_whether_it_is_a_gpus_and_how_many_operators_run(both: dict[str, Path]) -> None:
    evidence = add_summary(Evidence(), summarise_trace(diagnose(read_trace(both["nsight"]))))
    assert (evidence.on_gpu, evidence.operators_per_step) == (True, None)


def test_a_recipe_gives_its_strategy_and_its_log() -> None:
    recipe = load_recipe("demo", ["strategy.prefetch=0", "train.log_every=3"])
    evidence = add_recipe(Evidence(), recipe)
    assert (evidence.strategy.prefetch, evidence.log_every) == (0, 3)


def write_run(folder: Path, steps: list[dict[str, object]], evaluations: list[dict[str, object]]) -> Run:
    (folder / "manifest.json").write_text("{}")
    for name, records in (("steps", steps), ("evaluations", evaluations)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return Run(folder)


def step(number: int, seconds: float, phases: dict[str, float], loss: float) -> dict[str, object]:
    return {"step": number, "step_seconds": seconds, "phase_seconds": phases, "loss": loss, "padding_share": 0.25}


def test_a_runs_records_give_phases_losses_and_evaluations(tmp_path: Path) -> None:
    steps = [
        step(10, 9.0, {"forward": 80.0}, 3.0),  # the warm-up is no measure
        step(20, 2.0, {"forward": 6.0, "backward": 12.0, "data_wait": 2.0, "evaluation": 50.0}, 2.0),
        step(30, 2.0, {"forward": 6.0, "backward": 12.0, "data_wait": 2.0}, 1.0),
    ]
    evaluations: list[dict[str, object]] = [
        {"step": 0, "loss": 5.0, "seconds": 1.0},
        {"step": 15, "loss": 1.5, "seconds": 50.0},
    ]
    evidence = add_run_evidence(Evidence(), write_run(tmp_path, steps, evaluations))
    assert evidence.step_seconds == pytest.approx(2.0)
    assert evidence.phases == pytest.approx({"forward": 0.3, "backward": 0.6, "data_wait": 0.1})
    assert (evidence.evaluation_seconds, evidence.evaluate_every, evidence.padding_share) == (50.0, 15, 0.25)
    assert evidence.validation_losses == ((0, 5.0), (15, 1.5))


def test_a_runs_records_say_how_long_it_was_writing_snapshots(tmp_path: Path) -> None:
    steps = [step(n, 1.0, {"forward": 10.0, "snapshot": 4.0, "checkpoint": 1.0}, 2.0) for n in (10, 20, 30)]
    assert add_run_evidence(Evidence(), write_run(tmp_path, steps, [])).saving_share == pytest.approx(4 / 15)


def test_a_run_without_records_leaves_the_evidence_as_it_was(tmp_path: Path) -> None:
    before = Evidence(step_seconds=1.0, phases={"forward": 1.0})
    after = add_run_evidence(before, write_run(tmp_path, [], []))
    assert (after.step_seconds, after.phases) == (1.0, {"forward": 1.0})
