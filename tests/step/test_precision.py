from __future__ import annotations

import pytest
import torch

from seqfit.errors import RecipeError
from seqfit.step.precision import Precision, choose_device, choose_precision
from seqfit.strategy.schema import Strategy

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A GPU with bf16 in hardware or without it, as far as these functions ask."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: request.param)


@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_that_is_not_there_is_an_error_in_three_parts() -> None:
    with pytest.raises(
        RecipeError, match=r"strategy.device is 'cuda'\. This machine's torch .* sees no GPU\. Set .*device=cpu"
    ):
        choose_device(Strategy(device="cuda"))
    assert choose_device(Strategy()) == choose_device(Strategy(device="cpu")) == CPU


@pytest.mark.parametrize("card", [True], indirect=True)
@pytest.mark.usefixtures("card")
def test_auto_takes_the_gpu_and_cpu_does_not() -> None:
    assert choose_device(Strategy()) == choose_device(Strategy(device="cuda")) == CUDA
    assert choose_device(Strategy(device="cpu")) == CPU


def test_fp16_on_a_cpu_is_an_error_in_three_parts() -> None:
    with pytest.raises(RecipeError, match=r"'fp16' on a CPU\. CPUs compute .*\. Set strategy.precision=fp32 or bf16"):
        choose_precision(Strategy(precision="fp16"), CPU, ["fp16"])


def test_auto_on_a_cpu_is_the_fp32_reference() -> None:
    assert choose_precision(Strategy(), CPU, ["bf16"]) == Precision("fp32", CPU, "the reference on a CPU")


@pytest.mark.parametrize(
    ("card", "allow", "name", "reason"),
    [
        (True, ["bf16"], "bf16", "the GPU has bf16 and the recipe allows it"),
        (True, [], "fp32", "the recipe does not allow bf16"),
        (False, ["bf16"], "fp32", "the GPU has no bf16, and fp16 overflows in T5's feed-forward layers"),
    ],
    indirect=["card"],
)
@pytest.mark.usefixtures("card")
def test_auto_on_a_gpu_is_bf16_where_card_and_recipe_agree(allow: list[str], name: str, reason: str) -> None:
    assert choose_precision(Strategy(), CUDA, allow) == Precision(name, CUDA, reason)


@pytest.mark.parametrize("card", [False], indirect=True)
@pytest.mark.usefixtures("card")
def test_bf16_on_a_card_without_it_is_an_error_that_names_the_card() -> None:
    with pytest.raises(RecipeError, match=r"'bf16' on Tesla T4\. This card has no bf16 .*\. Set .*=fp32"):
        choose_precision(Strategy(precision="bf16"), CUDA, ["bf16"])


@pytest.mark.parametrize(("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_autocast_decides_the_type_of_a_product_and_can_be_entered_again(name: str, dtype: torch.dtype) -> None:
    precision = Precision(name, CPU, "")
    for _ in range(2):
        with precision.autocast():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


@pytest.mark.parametrize(("name", "needs"), [("fp32", False), ("bf16", False), ("fp16", True)])
def test_only_fp16_needs_a_scaler(name: str, needs: bool) -> None:
    assert Precision(name, CPU, "").needs_scaler is needs
