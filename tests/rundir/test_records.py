from __future__ import annotations

import dataclasses
import json

import pytest

from seqfit.rundir.records import EvaluationRecord, EventKind, EventRecord, StepRecord


def test_an_event_without_data_has_an_empty_dict_of_its_own() -> None:
    first, second = EventRecord(0.0, EventKind.PLAN, "b"), EventRecord(0.0, EventKind.PLAN, "b")
    assert first.data == {}
    assert first.data is not second.data


def test_records_are_frozen() -> None:
    record = EventRecord(0.0, EventKind.PLAN, "b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.kind = EventKind.DATA  # type: ignore[misc]


@pytest.mark.parametrize("kind", [StepRecord, EvaluationRecord, EventRecord])
def test_every_record_says_when_it_was_made(kind: type) -> None:
    assert "time" in {field.name for field in dataclasses.fields(kind)}


def test_a_record_survives_json() -> None:
    record = EvaluationRecord(3, "validation", None, {"f1": 61.5}, 20, 1.5, 1e9)
    assert EvaluationRecord(**json.loads(json.dumps(dataclasses.asdict(record)))) == record
