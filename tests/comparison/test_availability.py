from __future__ import annotations

from dataclasses import replace

import pytest

from seqfit.comparison.candidates import explain_unavailable
from seqfit.hardware.probe import Machine
from seqfit.recipe.load import load_recipe
from tests.comparison.comparisons import CPU, machine_with, recipe_values


def explain(machine: Machine, processes: int = 1, **strategy: object) -> str:
    recipe = load_recipe(recipe_values(strategy=strategy, allow=["bf16", "fp16", "8bit"]))
    return explain_unavailable(recipe, processes, machine)


ONE_V100 = machine_with("v100-16-sxm")


def test_a_cpu_has_fp32_and_bf16_but_no_fp16() -> None:
    assert explain(CPU) == ""
    assert explain(CPU, precision="bf16") == ""
    assert "fp16 needs a GPU" in explain(CPU, precision="fp16")


def test_a_process_needs_a_core_of_its_own() -> None:
    assert explain(CPU, 2) == ""
    assert explain(CPU, 3) == "3 processes need 3 cores, and there are 2 cores"


def test_a_gpu_that_is_asked_for_and_not_there_is_reported_with_the_reason() -> None:
    assert explain(CPU, device="cuda") == "it trains on a GPU, and there is none (no driver)"


def test_two_gpus_on_a_machine_with_one() -> None:
    assert explain(ONE_V100, 2) == "2 processes need 2 GPUs, and there is 1 GPU"
    assert explain(machine_with("v100-16-sxm", 2), 2) == ""


def test_a_v100_has_fp16_but_no_bf16() -> None:
    assert explain(ONE_V100, precision="fp16") == ""
    assert "has no bf16 in hardware" in explain(ONE_V100, precision="bf16")


def test_eight_bits_need_a_package_and_compiling_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqfit.comparison.candidates.importlib.util.find_spec", lambda name: None)
    assert "bitsandbytes and torchao" in explain(CPU, optimizer="8bit")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "the C++ compiler 'no-such-compiler'" in explain(CPU, compile=True)


def test_compiling_for_a_gpu_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqfit.comparison.candidates.importlib.util.find_spec", lambda name: None)
    assert "triton" in explain(ONE_V100, compile=True)


def test_a_card_that_no_table_has_is_given_the_benefit_of_the_doubt() -> None:
    unknown = replace(ONE_V100, driver=replace(ONE_V100.driver, gpus=(replace(ONE_V100.gpus[0], card=None),)))
    assert explain(unknown, precision="bf16") == ""
