from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.diagnosis.plants import PLANTS, SHAPE, load_planted, write_workload
from benchmarks.diagnosis.traces import run_cases
from seqfit.profiling.findings import RULES, Cause
from seqfit.strategy.load import load_strategy
from seqfit.validation import load_checked_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload")
    write_workload(path)
    return path


CASES = [(name, size) for name, plant in PLANTS.items() for size in range(len(plant.sizes))]


@pytest.mark.parametrize(("name", "size"), CASES)
def test_every_planted_recipe_loads_and_passes_all_checks(name: str, size: int, folder: Path) -> None:
    plant = PLANTS[name]
    assert load_checked_recipe(load_planted(plant, folder, size)).train.examples_per_step in (16, 4, 2, 1)
    assert (folder / plant.model / "config.json").is_file()
    changes_nothing = not plant.sizes[size] and not plant.row_seconds and not plant.reads
    assert changes_nothing == (plant.cause is None)


def test_each_override_reaches_the_strategy_it_is_planted_in(folder: Path) -> None:
    strategies = {name: load_strategy(load_planted(plant, folder, -1)) for name, plant in PLANTS.items()}
    healthy = strategies["nothing"]
    assert (strategies["data"].prefetch, healthy.prefetch > 0) == (0, True)
    assert (strategies["padding"].batching, strategies["threads"].threads) == ("max_length", 16)
    assert (strategies["batch"].micro_batch_examples, strategies["logits"].loss) == (1, "full")
    assert (strategies["recompute"].recompute, healthy.recompute) == ("blocks", "none")
    assert load_planted(PLANTS["evaluation"], folder, 2).eval.every_steps == 5


def test_different_causes_are_planted_and_rules_know_them() -> None:
    causes = [plant.cause for plant in PLANTS.values() if plant.cause is not None]
    assert len(causes) == len(set(causes)) == 9
    found = {Cause[name] for rule in RULES for name in rule.__code__.co_names if name in Cause.__members__}
    assert set(causes) <= found | {Cause.HOST_SYNCS}  # which is found in a trace


def test_every_cause_is_named_first_in_generated_traces_and_its_gain_is_the_truth(tmp_path: Path) -> None:
    """One size of each here; benchmarks/diagnosis/traces.py has three, and healthy ones."""
    cases = list(run_cases(tmp_path, sizes=range(1, 2)))
    wrong = [(case.cause, case.kind, [finding.cause for finding in case.found]) for case in cases if not case.is_right]
    assert wrong == []
    assert [(c.cause, c.kind, c.truth, c.found[0].gain) for c in cases if not c.is_close] == []


def test_the_workload_has_as_many_rows_as_a_hundred_steps_need(folder: Path) -> None:
    assert len((folder / "train.jsonl").read_text().splitlines()) == 100 * 16
    assert SHAPE["num_layers"] == SHAPE["num_decoder_layers"]
