"""Why a candidate can't run on this machine: a recipe and the machine come in, '' or a reason goes out.

Such a candidate is not an error: it is predicted and not run. The rules are training's own, checked without torch: a
process that has used a GPU would hold memory there while the trials run.
"""

from __future__ import annotations

import importlib.util
import os
import shutil

from seqfit.errors import RecipeError
from seqfit.hardware import Machine
from seqfit.recipe import Recipe
from seqfit.strategy import EIGHT_BIT_PACKAGES, Strategy, check_processes, load_strategy


def explain_unavailable(recipe: Recipe, processes: int, machine: Machine, *, knows_packages: bool = True) -> str:
    """'' if it can run there; `knows_packages`: the machine has the packages of this Python."""
    strategy = load_strategy(recipe)
    on_cpu = strategy.device == "cpu" or (strategy.device == "auto" and not machine.gpus)
    reasons = (
        _explain_device(strategy, machine),
        _explain_precision(strategy, machine, on_cpu=on_cpu),
        _explain_count(processes, machine, on_cpu=on_cpu),
        _explain_conflict(strategy, processes),
        _explain_packages(strategy, on_cpu=on_cpu) if knows_packages else "",
    )
    return next((reason for reason in reasons if reason), "")


def _explain_device(strategy: Strategy, machine: Machine) -> str:
    missing = strategy.device == "cuda" and not machine.gpus
    return f"it trains on a GPU, and there is none ({machine.no_gpu_reason})" if missing else ""


def _explain_precision(strategy: Strategy, machine: Machine, *, on_cpu: bool) -> str:
    if on_cpu:
        return "fp16 needs a GPU: CPUs compute it more slowly than fp32" if strategy.precision == "fp16" else ""
    lacking = [gpu.name for gpu in machine.gpus if gpu.card is not None and not gpu.card.has_bf16]
    return f"{lacking[0]} has no bf16 in hardware" if strategy.precision == "bf16" and lacking else ""


def _explain_count(processes: int, machine: Machine, *, on_cpu: bool) -> str:
    there, what = (machine.cores, "core") if on_cpu else (len(machine.gpus), "GPU")
    if processes <= there:
        return ""
    is_there = f"is {there} {what}" if there == 1 else f"are {there} {what}s"
    return f"{processes} processes need {processes} {what}s, and there {is_there}"


def _explain_conflict(strategy: Strategy, processes: int) -> str:
    try:
        check_processes(strategy, processes)
    except RecipeError as error:
        return error.given
    return ""


def _explain_packages(strategy: Strategy, *, on_cpu: bool) -> str:
    if strategy.optimizer == "8bit" and not any(map(importlib.util.find_spec, EIGHT_BIT_PACKAGES)):
        return f"8-bit AdamW needs one of the packages {' and '.join(EIGHT_BIT_PACKAGES)}"
    if not strategy.compile:
        return ""
    if not on_cpu and importlib.util.find_spec("triton") is None:
        return "torch.compile needs the package triton on a GPU"
    compiler = os.environ.get("CXX", "g++")
    return "" if shutil.which(compiler) else f"torch.compile needs the C++ compiler '{compiler}'"
