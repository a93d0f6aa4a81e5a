"""What a plan is made for: this machine, or a GPU that need not be available here; and how fast this machine is.

In: a GPU's name and how many, or nothing. Out: a `Target` with what planning needs of it: memory, rules of its kernels,
rates of its arithmetic. The rates of this machine are measured (`calibrate`) and cached by device: a few real steps of
different small models (long and short rows, wide and narrow layers, large and small vocabulary) are timed and traced,
and the rates are the non-negative numbers that explain the seconds best:

    seconds = products / rate + attention's products / rate + other bytes / bandwidth + the optimizer's bytes / its
              bandwidth + calls * overhead
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForSeq2SeqLM, T5Config

from seqfit.data import GlobalBatch
from seqfit.errors import PlanError
from seqfit.hardware import Card, Machine, match_card, probe_machine, read_gpu
from seqfit.model import ModelConfig
from seqfit.planning.device_rules import DeviceRules, rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec, build_real_step
from seqfit.planning.known_rates import CPU, find_rates, name_cpu, store_rates
from seqfit.planning.memory import CONTEXT_BYTES
from seqfit.planning.shape import Shape, build_batch, uniform
from seqfit.planning.timing import Rates, rates_of_card, sum_features
from seqfit.progress import Progress
from seqfit.recipe import ModelRecipe, TrainRecipe
from seqfit.step import TrainStep
from seqfit.strategy import Strategy

_KEPT_FREE = 0.03  # of a machine's free memory, for other processes
_REPEATS = 5
_MUCH_SLOWER = 0.1  # as fast as fp32: a processor that computes 16 bits one by one
_FEATURES = ("product", "batched product", "other", "update", "calls")
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Target:
    name: str
    kind: str  # cpu, gpu
    capacity_bytes: int
    count: int
    rules: DeviceRules
    card: Card | None
    context_bytes: int

    @property
    def has_bf16(self) -> bool:
        return self.card is not None and self.card.has_bf16

    def rates(self, precision: str) -> Rates:
        """Measured here or imported, else from the data sheet or a quick probe; corrected by earlier runs."""
        if self.card is None:
            return find_rates(self.name, CPU, probe_rates)
        return find_rates(self.name, self.card.key, partial(rates_of_card, self.card, precision))


def find_target(gpu: str | None, count: int) -> Target:
    """A card by name; without one, this machine's first GPU or its CPU."""
    if count < 1:
        raise PlanError(f"--gpus is {count}", "a plan needs at least one GPU", "Give 1 or more")
    if gpu is not None and gpu.lower() != "cpu":
        return card_target(read_gpu(gpu).card, count)
    machine = probe_machine()
    if machine.gpus and gpu is None:
        first = machine.gpus[0]
        if first.card is None:
            raise PlanError(
                f"this machine's GPU is {first.name}, which is not in the hardware table",
                "a plan needs its figures",
                "Plan for a GPU of the table with --gpu NAME, or for the CPU with --gpu cpu",
            )
        # The GPUs that training would use, without the memory that other processes hold.
        return card_target(first.card, count, free_bytes=min(found.free_bytes for found in machine.gpus[:count]))
    return cpu_target(machine)


def card_target(card: Card, count: int, *, free_bytes: int | None = None) -> Target:
    """`free_bytes`: what is left of its memory here, before this process has a CUDA context."""
    capability = float(card.arch.removeprefix("sm")) / 10 if card.arch.startswith("sm") else None
    rules = rules_for("gpu", compute_capability=capability)
    capacity = card.usable_bytes if free_bytes is None else min(card.usable_bytes, free_bytes)
    return Target(card.name, "gpu", capacity, count, rules, card, CONTEXT_BYTES)


def cpu_target(machine: Machine) -> Target:
    memory_bytes = machine.available_bytes or machine.memory_bytes
    if memory_bytes is None:
        raise PlanError(
            "this machine does not report how much memory it has",
            "a plan needs to know it",
            "Plan for a GPU with --gpu NAME",
        )
    return Target(name_cpu(machine), "cpu", int(memory_bytes * (1 - _KEPT_FREE)), 1, rules_for("cpu"), None, 0)


@dataclass(frozen=True)
class _Trial:
    width: int
    layers: int
    vocabulary: int
    shape: Shape
    optimizer: Literal["adamw", "adafactor"] = "adamw"


_TRIALS = (
    _Trial(512, 2, 2000, uniform(8, 128, 16, packed=True)),
    _Trial(512, 2, 2000, uniform(2, 512, 64, packed=True)),
    _Trial(256, 4, 2000, uniform(16, 64, 32, packed=True)),
    _Trial(512, 2, 32000, uniform(8, 64, 64, packed=True)),
    _Trial(768, 2, 2000, uniform(4, 256, 8, packed=True)),
    _Trial(512, 2, 2000, uniform(1, 1024, 16, packed=True)),
    _Trial(128, 4, 2000, uniform(32, 32, 8, packed=True)),
    _Trial(512, 2, 2000, uniform(8, 128, 16, packed=False)),
    _Trial(512, 2, 32000, uniform(2, 128, 16, packed=True), "adafactor"),
)


def calibrate(progress: Progress) -> Rates:
    """Time the trials on this machine's device, which takes a minute, and store its rates."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    features, seconds = [], []
    for number, trial in enumerate(_TRIALS):
        progress("calibrating", number, len(_TRIALS))
        spec = _build_spec(trial, device)
        totals = sum_features(FakeStep(spec).trace([trial.shape]))
        features.append([totals[name] for name in _FEATURES])
        seconds.append(_time_step(build_real_step(spec, device).step, build_batch([trial.shape])))
    progress("calibrating", len(_TRIALS), len(_TRIALS))
    rates = fit_rates(np.array(features), np.array(seconds), device)
    name, threads = CPU, torch.get_num_threads()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        card = match_card(properties.name, properties.total_memory)
        name = "gpu" if card is None else card.key
    source = f"measured on this machine ({device.type}, {threads} thread{'' if threads == 1 else 's'})"
    rates = replace(rates, source=source)
    store_rates(name, rates)
    return rates


def fit_rates(
    features: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64], device: torch.device = _CPU
) -> Rates:
    """From [trial, feature] and [trial], timed on the device; errors are relative to the seconds."""
    fastest = 1 / _product_rate(device)  # nothing is faster than a large product
    least = np.array([fastest, fastest, 1e-14, 1e-14, 0.0])
    solution = _solve_from(least, features / seconds[:, None], np.ones_like(seconds))
    product, batched, other, update, call = solution.tolist()
    half = _half_speed(device)
    return Rates(
        source="fitted",
        flops_per_second={
            "product": 1 / product,
            "half product": half / product,
            "batched product": 1 / batched,
            "half batched product": half / batched,
        },
        bytes_per_second=1 / other,
        update_bytes_per_second=1 / update,
        call_seconds=call,
        products_wait_for_memory=False,  # the wait is part of their measured rate
    )


@cache
def probe_rates() -> Rates:
    """A quick probe of this CPU instead of a calibration: one matrix product and one copy, a third of a second."""
    product = _product_rate(_CPU)
    block = torch.zeros(2**22)
    traffic = _best_rate(lambda: block.clone(), 2 * block.numel() * 4, _CPU)
    half = _half_speed(_CPU)
    return Rates(
        source="a quick probe of this CPU; `seqfit plan --calibrate` measures it properly",
        flops_per_second={
            "product": 0.85 * product,
            "half product": 0.85 * product * half,
            "batched product": 0.5 * product,
            "half batched product": 0.5 * product * half,
        },
        bytes_per_second=traffic,
        update_bytes_per_second=traffic,
        call_seconds=8e-6,
    )


def _best_rate(run: Callable[[], torch.Tensor], work: float, device: torch.device) -> float:
    run()
    return work / min(_time_once(run, device) for _ in range(8))


def _time_once(run: Callable[[], torch.Tensor], device: torch.device) -> float:
    """Seconds; on a GPU between two events of its stream, since the host only launches the kernel."""
    if device.type != "cuda":
        started = time.perf_counter()
        run()
        return time.perf_counter() - started
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


@cache
def _product_rate(device: torch.device) -> float:
    rows, inner, columns = _product_sizes(device)
    left, right = torch.randn(rows, inner, device=device), torch.randn(inner, columns, device=device)
    return _best_rate(lambda: torch.mm(left, right), 2 * rows * inner * columns, device)


@cache
def _half_speed(device: torch.device) -> float:
    """How much faster products in 16 bits are than fp32's; far below 1 on a CPU without such units.

    There a product of usual size takes seconds (4.2 s on an EPYC without AVX-512; fp32: 17 ms), so a small one decides.
    """
    small = _compare_half(device, (128, 64, 256))
    return small if small < _MUCH_SLOWER else _compare_half(device, _product_sizes(device))


def _compare_half(device: torch.device, sizes: tuple[int, int, int]) -> float:
    rows, inner, columns = sizes
    left, right = torch.randn(rows, inner, device=device), torch.randn(inner, columns, device=device)
    full = _best_rate(lambda: torch.mm(left, right), 1.0, device)
    left16, right16 = left.to(_half_type(device)), right.to(_half_type(device))
    return _best_rate(lambda: torch.mm(left16, right16), 1.0, device) / full


def _product_sizes(device: torch.device) -> tuple[int, int, int]:
    """Smaller ones gain less from 16 bits, and would leave most of a GPU idle."""
    return (1024, 512, 2048) if device.type == "cpu" else (4096, 4096, 4096)


def _half_type(device: torch.device) -> torch.dtype:
    """What a run computes in: fp16 on a GPU without bf16 in hardware."""
    lacks_bf16 = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.float16 if lacks_bf16 else torch.bfloat16


def _build_spec(trial: _Trial, device: torch.device) -> StepSpec:
    config = T5Config(
        vocab_size=trial.vocabulary,
        d_model=trial.width,
        d_kv=64,
        d_ff=4 * trial.width,
        num_layers=trial.layers,
        num_heads=max(2, trial.width // 64),
        decoder_start_token_id=0,
    )
    strategy = Strategy(batching="packed" if trial.shape.packed else "grouped", micro_batch_tokens=10**9)
    rules = rules_for("cpu" if device.type == "cpu" else "gpu")
    train = TrainRecipe.model_validate({"optimizer": {"name": trial.optimizer}})
    model = ModelRecipe(path="calibration", weights="random")
    return StepSpec(ModelConfig(config, {}, AutoModelForSeq2SeqLM), model, train, strategy, "fp32", rules)


def _time_step(step: TrainStep, batch: GlobalBatch) -> float:
    seconds = []
    for _ in range(1 + _REPEATS):
        started = time.perf_counter()
        float(step.run(batch).loss)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def _solve_from(
    least: npt.NDArray[np.float64], matrix: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Least squares with a lower bound for each number, by coordinate descent on scaled columns."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    columns, floor = matrix / scale, least * scale
    solution = floor.copy()
    rest = wanted - columns @ solution
    for _ in range(20_000):
        before = solution.copy()
        for place in range(len(solution)):
            change = max(columns[:, place] @ rest, floor[place] - solution[place])
            solution[place] += change
            rest -= change * columns[:, place]
        if np.abs(solution - before).max() < 1e-12:
            break
    return np.asarray(solution / scale)
