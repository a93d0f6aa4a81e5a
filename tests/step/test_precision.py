from __future__ import annotations

import platform

import pytest
import torch
from pydantic import ValidationError

from seqfit.errors import RecipeError
from seqfit.step.precision import (
    Precision,
    advise_build,
    choose_device,
    choose_precision,
    explain_unused_gpu,
    find_cpu_bf16,
    has_kernels,
)
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
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_90"])


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


@pytest.mark.parametrize("card", [False], indirect=True)
@pytest.mark.usefixtures("card")
def test_a_gpu_without_kernels_is_refused_with_the_build_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A V100 and torch 2.13 as it comes, which is built for CUDA 13.0."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100-SXM2-16GB")
    wanted = r"Tesla V100-SXM2-16GB \(compute capability 7.0\)\. .* only sm_75, sm_80.* cu126 build .*device=cpu"
    for device in ("auto", "cuda"):
        with pytest.raises(RecipeError, match=wanted):
            choose_device(Strategy(device=device))
    assert choose_device(Strategy(device="cpu")) == CPU


def test_fp16_on_a_cpu_is_an_error_in_three_parts() -> None:
    with pytest.raises(RecipeError, match=r"'fp16' on a CPU\. CPUs compute .*\. Set strategy.precision=fp32 or bf16"):
        choose_precision(Strategy(precision="fp16"), CPU, ["fp16"])


def test_auto_on_a_cpu_is_fp32() -> None:
    assert choose_precision(Strategy(), CPU, ["bf16"]) == Precision("fp32", CPU, "the default on a CPU")


@pytest.mark.parametrize(
    ("one_dnn", "avx512", "avx512_bf16", "limit", "found"),
    [
        (True, True, True, "", "native"),
        (True, True, True, "avx512_core", "emulated"),
        (True, True, False, "", "emulated"),
        (True, False, False, "", "native"),  # AVX2 with bf16 instructions, or ARM
        (False, False, False, "", "none"),
    ],
)
def test_bf16_on_a_cpu_is_detected_by_what_onednn_may_use(
    monkeypatch: pytest.MonkeyPatch, one_dnn: bool, avx512: bool, avx512_bf16: bool, limit: str, found: str
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: one_dnn, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert find_cpu_bf16() == found
    chosen = choose_precision(Strategy(precision="bf16"), CPU, ["bf16"])
    assert ("no bf16 instructions" in chosen.reason) is (found != "native")


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
    with pytest.raises(RecipeError, match=r"'bf16' on Tesla T4\. This GPU has no bf16 .*\. Set .*=fp32"):
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


@pytest.mark.usefixtures("no_gpu")
def test_on_a_mac_auto_is_the_cpu_and_warns_that_the_gpu_is_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device(Strategy()) == CPU
    said = explain_unused_gpu(Strategy(), CPU)
    assert said is not None
    assert "mps" in said
    assert "strategy.device=cpu" in said
    assert explain_unused_gpu(Strategy(device="cpu"), CPU) is None


def test_without_a_macs_gpu_there_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert explain_unused_gpu(Strategy(), CPU) is None


def test_mps_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match=r"'mps' is not supported.*Apple's GPU.*set strategy\.device=cpu"):
        Strategy.model_validate({"device": "mps"})


CU130 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
CU126 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
BUILDS = {  # of torch 2.13
    "12.6": {"x86_64": {50, 60, 70, 75, 80, 86, 90}, "aarch64": {80, 90}},
    "12.9": {"x86_64": {75, 80, 86, 90, 100, 120}, "aarch64": {80, 90, 100, 120}},
    "13.0": {"x86_64": {75, 80, 86, 90, 100, 120}, "aarch64": {80, 90, 100, 110, 120}},
}


@pytest.mark.parametrize(
    ("capability", "arch_list", "runs"),
    [
        ((7, 0), CU130, False),  # V100
        ((7, 0), CU126, True),
        ((6, 1), CU126, True),  # GTX 1080 Ti: sm_60
        ((7, 5), CU130, True),
        ((8, 9), CU130, True),  # RTX 4090: sm_86
        ((8, 0), ["sm_86"], False),
        ((12, 0), CU126, False),  # RTX 5090
        ((12, 0), [*CU126, "compute_90"], True),  # by the driver
        ((8, 0), ["compute_90"], False),
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["sm_90a", "compute_90a"], False),
        ((10, 3), ["sm_100f"], True),
        ((8, 7), CU130, False),  # Jetson Orin
        ((7, 0), [], True),  # a CPU's build
        ((9, 4), ["gfx90a", "gfx942"], True),  # ROCm's
    ],
)
def test_code_runs_on_its_major_number_and_ptx_on_all_later(
    capability: tuple[int, int], arch_list: list[str], runs: bool
) -> None:
    assert has_kernels(capability, arch_list) is runs


@pytest.mark.parametrize(
    ("capability", "advice"),
    [
        ((7, 0), "Install the cu126 build of torch 2.13.0 (pip install"),
        ((12, 0), "Install the cu129 or cu130 build of torch 2.13.0 (pip install"),
        ((3, 5), "No published build of torch 2.13.0 is known"),
    ],
)
def test_the_build_to_install_is_named(
    capability: tuple[int, int], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert advise_build(capability, "2.13.0+cu130", BUILDS).startswith(advice)


def test_builds_for_arm_have_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "No published build" in advise_build((7, 0), "2.13.0", BUILDS)
