"""The state of a run: taken out for a snapshot, restored by a resume; its schedule, best evaluation and RNG state.

In: the live parts of a run between two steps. Out: tensors and facts, and back. Together with the recipe, the strategy
and the data, which a snapshot only identifies (`identify_step`), this is all that the rest of the run depends on:

    trainable weights, buffers        tensors    model/NAME
    optimizer state                   tensors    optimizer/NAME/exp_avg     facts  optimizer
    RNG state of every process        tensors    random/0/torch             facts  random
    step number = position in the data, best score, schedule, loss scaler, size of micro-batches and of evaluation
    batches, open record, losses that a spike is compared with                                       facts

Frozen weights are not written; a sum over their bits shows whether they are still the same. torch's RNG state is
tensors, Python's and numpy's JSON. A step draws from torch's only; the order of the data needs none of them, because it
is a function of the seed (seqfit.data.batching).

The schedule is a factor of the peak learning rate for each step:

    linear, 2 warm-up steps of 6:   step 1 2 3 4 5 6  ->  0.5 1 1 0.75 0.5 0.25 (then 0)
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import platform
import random
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from seqfit.generation import Generator
from seqfit.metrics import higher_is_better
from seqfit.recipe import schema
from seqfit.training.log import StepLog
from seqfit.training.nonfinite import NonFiniteHandler
from seqfit.training.setup import TrainingSetup
from seqfit.training.snapshot_files import Snapshot, copy_tensors

_PACKAGES = (
    *("seqfit", "torch", "transformers", "tokenizers", "datasets", "safetensors", "numpy", "pyarrow", "peft"),
    *("bitsandbytes", "torchao", "deepspeed"),
)


@dataclass
class Best:
    """The best score so far, and how many evaluations ago it last improved."""

    name: str
    min_delta: float
    value: float | None = None
    mark: float | None = None  # the score that an improvement must exceed by min_delta
    loss: float = math.inf
    stale: int = 0

    def start_over(self, name: str) -> None:
        self.name, self.value, self.mark, self.loss, self.stale = name, None, None, math.inf, 0

    def update(self, value: float | None, loss: float | None) -> tuple[bool, bool]:
        """Whether to keep this model, and whether it is an improvement. Among equal scores the lower loss is kept."""
        loss = math.inf if loss is None else loss
        if value is None or self.value is None or self.mark is None:
            improved = kept = self.value is None
        else:
            sign = 1 if higher_is_better(self.name) else -1
            improved = sign * (value - self.mark) > self.min_delta
            kept = sign * (value - self.value) > 0 or (value == self.value and loss < self.loss)
        if kept:
            self.value, self.loss = value, loss
        if improved:
            self.mark, self.stale = value, 0
        else:
            self.stale += 1
        return kept, improved


class Schedule:
    """Factor of the peak rate: a function of the step, and for plateau also of evaluations."""

    def __init__(self, recipe: schema.ScheduleRecipe, total_steps: int) -> None:
        self._recipe = recipe
        self._total = total_steps
        self._plateau_factor = 1.0
        self._stale = 0

    def factor(self, step: int) -> float:
        """For update number `step`, counted from 1."""
        warmup = self._recipe.warmup_steps
        if step <= warmup:
            return step / warmup
        name = self._recipe.name
        if name == "plateau":
            return self._plateau_factor
        if name == "inverse_sqrt":
            return math.sqrt(max(warmup, 1) / max(step, 1))
        done = min(1.0, (step - 1 - warmup) / max(1, self._total - warmup))
        if name == "linear":
            return self._recipe.floor + (1 - self._recipe.floor) * (1 - done)
        if name == "cosine":
            return self._recipe.floor + (1 - self._recipe.floor) * (1 + math.cos(math.pi * done)) / 2
        return 1.0

    def read_state(self) -> dict[str, float]:
        return {"plateau_factor": self._plateau_factor, "stale": self._stale}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        self._plateau_factor, self._stale = float(state["plateau_factor"]), int(state["stale"])

    def observe(self, improved: bool) -> bool:
        """After an evaluation: whether plateau lowers the rate because of it."""
        self._stale = 0 if improved else self._stale + 1
        if self._recipe.name != "plateau" or self._stale < self._recipe.patience:
            return False
        self._stale = 0
        self._plateau_factor *= self._recipe.factor
        return True


_EVALUATION_SIZES = ("batch_tokens", "decoded_rows")


@dataclass
class TrainingState:
    setup: TrainingSetup
    best: Best
    schedule: Schedule
    log: StepLog
    nonfinite: NonFiniteHandler
    generator: Generator  # for evaluations; its batches become smaller after OOM
    step: int = 0
    evaluation_is_due: bool = False  # of `step`: the run was stopped before or during it
    is_best: bool = False  # whether the evaluation of `step` was the best so far

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return identify_step(self.setup)

    def take(self) -> Snapshot:
        """The current state. Tensors are not copied."""
        step, world = self.setup.step, self.setup.world
        tensors, values = self._read_live()
        for name, state in read_torch_states(step.precision.device).items():
            states = enumerate(world.all_gather_tensor(state))
            tensors |= {f"random/{rank}/{name}": of_rank for rank, of_rank in states}
        facts = {
            "identity": self._identity,
            "optimizer": {name: value for part in world.all_gather(values) for name, value in part.items()},
            "random": read_host_states(),
            "scaler": None if step.scaler is None else step.scaler.state_dict(),
            "schedule": self.schedule.read_state(),
            "best": {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in asdict(self.best).items()
            },
            "micro_batch_tokens": self.setup.loader.rule.tokens,
            "evaluation": {name: getattr(self.generator, name) for name in _EVALUATION_SIZES},
            "nonfinite": self.nonfinite.read_state(),
            "window": self.log.read_state(),
            "evaluation_is_due": self.evaluation_is_due,
            "is_best": self.is_best,
        }
        return Snapshot(self.step, tensors, facts)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of the same run (`find_state_differences` is empty)."""
        step, facts, world = self.setup.step, snapshot.facts, self.setup.world
        step.parallel.allocate_state(step.optimizer)
        live, _ = self._read_live()
        states: dict[str, torch.Tensor] = {}
        if facts["identity"].get("processes") == world.size:  # else each keeps the seed that it started with
            drawn = read_torch_states(step.precision.device)
            states = {name: torch.empty_like(state) for name, state in drawn.items()}
        copy_tensors(snapshot, live | {f"random/{world.rank}/{name}": state for name, state in states.items()})
        step.parallel.restore_values(step.optimizer, step.model, facts["optimizer"])
        if states:
            restore_torch_states(states, step.precision.device)
        restore_host_states(facts["random"])
        if step.scaler is not None:
            step.scaler.load_state_dict(facts["scaler"])
        self.schedule.restore_state(facts["schedule"])
        for name, value in facts["best"].items():
            setattr(self.best, name, math.inf if name == "loss" and value is None else value)
        rule = self.setup.loader.rule
        self.setup.loader.rule = replace(rule, tokens=min(rule.tokens, facts["micro_batch_tokens"]))
        sizes = {name: min(getattr(self.generator, name), facts["evaluation"][name]) for name in _EVALUATION_SIZES}
        self.generator = replace(self.generator, **sizes)
        self.nonfinite.restore_state(facts["nonfinite"])
        self.log.restore_state(facts["window"])
        self.step, self.evaluation_is_due = snapshot.step, facts["evaluation_is_due"]
        self.is_best = facts["is_best"]

    def _read_live(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Trainable weights, saved buffers and optimizer state, not copied, by their names in a snapshot; and the
        state's numbers."""
        step = self.setup.step
        state, values = step.parallel.read_state(step.optimizer, step.model)
        trainable = {name: weight.detach() for name, weight in step.model.named_parameters() if weight.requires_grad}
        saved = step.model.state_dict()
        buffers = {name: buffer for name, buffer in step.model.named_buffers() if name in saved}
        tensors = {f"model/{name}": tensor for name, tensor in (trainable | buffers).items()}
        return tensors | {f"optimizer/{name}": tensor for name, tensor in state.items()}, values


def read_torch_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Of the host and of this process's GPU, as bytes. No device sync: the RNG state of GPUs is on the host."""
    states = {"torch": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_torch_states(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def read_host_states() -> dict[str, Any]:
    state: Any = np.random.get_state(legacy=True)
    kind, keys, position, has_gauss, gauss = state
    version, numbers, spare = random.getstate()
    return {
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(numbers), spare],
    }


def restore_host_states(states: Mapping[str, Any]) -> None:
    kind, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    version, numbers, spare = states["python"]
    random.setstate((version, tuple(numbers), spare))


def collect_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def find_commit() -> str | None:
    """Commit of the working directory's repository, with '+changes' where files differ; None outside a repository."""
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}+changes" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def identify_step(setup: TrainingSetup) -> dict[str, Any]:
    """What must be the same for an exact resume, and is not in the snapshot itself.

    A process uses one GPU, so the number of visible GPUs is not part of it.
    """
    device = setup.step.precision.device
    on_gpu, versions = device.type == "cuda", collect_versions()
    packages = ["torch", "transformers", "seqfit", "peft"]  # that affect what a step of this run computes
    packages += ["bitsandbytes", "torchao"] if setup.strategy.optimizer == "8bit" else []
    packages += ["deepspeed"] if setup.strategy.sharding != "fsdp2" else []
    return {
        "data": setup.data_fingerprint,
        "recipe": _hash(setup.recipe.model_dump_json(exclude={"strategy"})),
        "strategy": _hash(setup.strategy.model_dump_json(exclude={"host_memory"})),  # it changes no result
        "device": torch.cuda.get_device_name(device) if on_gpu else torch.backends.cpu.get_cpu_capability(),
        "processes": setup.world.size,
        "threads": None if on_gpu else torch.get_num_threads(),
        "precision": setup.step.precision.name,
        **{name: versions.get(name) for name in packages},
        "frozen weights": setup.frozen_bits,
    }


def find_state_differences(snapshot: Snapshot, setup: TrainingSetup) -> dict[str, str]:
    """Why a resume would not be exact: what differs -> a sentence; empty where it is exact."""
    then, now = snapshot.facts["identity"], identify_step(setup)
    pairs = {name: (then.get(name), value) for name, value in now.items() if then.get(name) != value}
    return {name: f"{name}: {before} then, {value} now" for name, (before, value) in pairs.items()}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
