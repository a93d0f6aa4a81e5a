from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from seqfit.rundir.records import (
    EVENT_TYPES,
    EvaluationRecord,
    EventKind,
    EventRecord,
    FallbackEvent,
    InterruptedEvent,
    NonFiniteEvent,
    OutOfMemoryEvent,
    PredictionEvent,
    ResumeEvent,
    StepRecord,
)


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


def test_every_kind_with_data_has_one_class() -> None:
    kinds = [event.kind for event in EVENT_TYPES]
    assert len(set(kinds)) == len(kinds)
    assert all(dataclasses.is_dataclass(event) and dataclasses.fields(event) for event in EVENT_TYPES)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            OutOfMemoryEvent(12, "backward", "retry", micro_batch_tokens=2048, rank=1, examples=8, tokens=4096),
            "OOM on rank 1 in the backward pass of step 12 (micro-batch of 8 examples, 4,096 tokens); retrying the "
            "same global batch with micro-batches of at most 2,048 tokens",
        ),
        (
            OutOfMemoryEvent(11, "optimizer", "restore", micro_batch_tokens=2048, failed_step=12),
            "OOM in the update of step 12, which left weights half updated; back to the snapshot of step 10, with "
            "micro-batches of at most 2,048 tokens",
        ),
        (
            OutOfMemoryEvent(20, "evaluation", "retry", evaluation_tokens=512, evaluation_rows=4),
            "OOM in the evaluation of step 20; retrying with batches of at most 512 tokens, and 4 rows decoded at once",
        ),
        (NonFiniteEvent(3, "skipped", {"loss": "nan"}, [5]), "loss is nan at step 3; the update is skipped"),
        (
            NonFiniteEvent(3, "retried", precision="bf16"),
            "non-finite values in bf16 at step 3; retrying the step in fp32",
        ),
        (ResumeEvent(0), "resumed from the start: there is no snapshot yet"),
        (
            InterruptedEvent("SIGTERM", "best"),
            "stopped by SIGTERM; the checkpoint is that of the best evaluation so far",
        ),
        (FallbackEvent("batching", "padded batches", "no packing for Marian"), "padded batches: no packing for Marian"),
        (
            PredictionEvent(2**30, 2**30, "allocated in step 4, the most of all steps", 0.4, None),
            "peak memory 1.0 GiB predicted, 1.0 GiB allocated in step 4, the most of all steps; time per step 400 ms "
            "predicted, not measured",
        ),
        (
            PredictionEvent(1000, 1031, "reserved", 0.4, 0.3, 5.0, 6.0, "NVIDIA GeForce RTX 3090"),
            "peak memory 1000 B predicted, 1.0 KiB reserved; time per step 400 ms predicted, 300 ms measured; "
            "evaluation 5.0 s predicted, 6.0 s measured. On NVIDIA GeForce RTX 3090: memory 3.1% above the prediction, "
            "time 25.0% below the prediction. To help plans for such a GPU, send in the file of `seqfit calibration "
            "export FILE` with an issue of seqfit; no names of yours are in it",
        ),
    ],
)
def test_the_message_is_made_from_the_fields(event: Any, message: str) -> None:
    assert event.message == message
