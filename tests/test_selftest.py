from __future__ import annotations

from typing import Any

import pytest
import torch

from seqfit.kernels.attention import attend_blockwise
from seqfit.selftest import run_selftest

CPU = torch.device("cpu")


def test_every_strategy_agrees_on_a_cpu() -> None:
    checks = list(run_selftest(CPU))
    assert {check.state for check in checks} == {"ok", "skipped"}
    assert [check.name for check in checks if check.state == "skipped"] == ["T5: fp16", "mT5: fp16", "BERT: fp16"]
    assert len(checks) == 3 * 8 + 1


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_the_bias(*states: Any, **settings: Any) -> torch.Tensor:
        return attend_blockwise(*states, **settings | {"bias_HR": None})

    monkeypatch.setattr("seqfit.model.packing.attend_blockwise", forget_the_bias)
    wrong = {check.name for check in run_selftest(CPU) if check.state == "wrong"}
    assert {"T5: packed, blockwise", "mT5: packed, blockwise"} <= wrong
    assert not wrong & {"T5: packed, torch's attention", "BERT: packed, blockwise"}


def test_what_a_device_refuses_is_reported_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr("seqfit.model.packing.attend_blockwise", refuse)
    (check,) = [check for check in run_selftest(CPU) if check.name == "T5: packed, blockwise"]
    assert (check.state, check.detail) == ("wrong", "RuntimeError: no kernel image is available")
