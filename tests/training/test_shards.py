"""What of a snapshot in parts can be read by whom. Parts on disk: test_ranks.py, and test_zero_ranks.py for ZeRO's."""

from __future__ import annotations

import pytest
import torch

from seqfit.errors import RunError
from seqfit.training.snapshot_files import Snapshot, copy_tensors


def take(value: float, parts: int | None = None) -> Snapshot:
    facts = {"optimizer": {} if parts is None else {"parts": parts}}
    return Snapshot(6, {"model/w": torch.full((2,), value)}, facts)


def test_tensors_are_copied_into_those_of_the_run() -> None:
    live = {"model/w": torch.zeros(2)}
    copy_tensors(take(3.0), live)
    assert live["model/w"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (2, 3, r"of step 6 was written by 2 processes of ZeRO, and 3 would read it\. .* Resume with 2,"),
        (2, None, "by 2 processes of ZeRO, and 1 would read it"),
        (None, 2, "by 1 processes of ZeRO, and 2 would read it"),
    ],
)
def test_zero_parts_are_read_by_the_number_of_processes_that_wrote_them(
    then: int | None, now: int | None, said: str
) -> None:
    live = {"model/w" if now is None else f"optimizer/part-0-of-{now}/0/weights": torch.zeros(2)}
    with pytest.raises(RunError, match=said):
        copy_tensors(take(3.0, then), live)
    assert all(not tensor.any() for tensor in live.values())
