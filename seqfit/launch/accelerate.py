"""Reads a file written by `accelerate config`, so that a machine that has one needs no second file.

In: the YAML file. Out: the processes to start, overrides of the recipe, and a line for every setting that is ignored.

    distributed_type: FSDP                    ->   strategy.parallel=fsdp
    distributed_type: DEEPSPEED, zero_stage 3 ->   strategy.parallel=fsdp strategy.sharding=zero3, if it is installed
    mixed_precision: bf16                     ->   strategy.precision=bf16
    num_processes: 4, num_machines: 2         ->   two processes here, on machine number machine_rank
    dynamo_config: {...}                      ->   ignored, and reported
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seqfit.errors import RecipeError
from seqfit.launch.local import LaunchSpec
from seqfit.yaml_text import read_yaml

_NEUTRAL = {  # values that say nothing about training, or the same as no entry
    "compute_environment": "LOCAL_MACHINE",
    "debug": False,
    "downcast_bf16": "no",
    "enable_cpu_affinity": False,
    "main_training_function": "main",
    "rdzv_backend": "static",
    "same_network": True,
    "tpu_env": [],
    "tpu_use_cluster": False,
    "tpu_use_sudo": False,
    "gpu_ids": "all",
}
_READ = {
    *("num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port", "distributed_type"),
    *("mixed_precision", "use_cpu", "fsdp_config", "deepspeed_config"),
}
_STAGES = (2, 3)  # of ZeRO
_PARALLEL = {"NO": None, "MULTI_GPU": "ddp", "MULTI_CPU": "ddp", "FSDP": "fsdp", "DEEPSPEED": "fsdp"}


@dataclass(frozen=True)
class AccelerateFile:
    place: LaunchSpec
    overrides: list[str]
    ignored: list[str] = field(default_factory=list)  # settings


def read_accelerate_file(path: Path) -> AccelerateFile:
    try:
        content, _ = read_yaml(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RecipeError(
            f"--accelerate-config is '{path}' ({error})", "it is a YAML file", "Make one with accelerate config"
        ) from error
    if not isinstance(content, Mapping):
        raise RecipeError(
            f"'{path}' holds no settings",
            "a file of accelerate config has names and values",
            "Make it again with accelerate config",
        )
    kind = str(content.get("distributed_type", "NO"))
    if kind not in _PARALLEL:
        raise RecipeError(
            f"{path}: distributed_type is '{kind}'",
            f"seqfit supports {', '.join(_PARALLEL)}",
            "Use seqfit train --nproc N instead of the file",
        )
    strange = {name: value for name, value in content.items() if name not in _READ and value not in (None, {}, [])}
    ignored = [f"{name}: {value}" for name, value in strange.items() if _NEUTRAL.get(name, ...) != value]
    overrides = []
    stage = (content.get("deepspeed_config") or {}).get("zero_stage", 2)
    parallel = "ddp" if kind == "DEEPSPEED" and stage == 0 else _PARALLEL[kind]  # ZeRO-0 shards nothing
    if parallel is not None:
        overrides.append(f"strategy.parallel={parallel}")
    if content.get("use_cpu"):
        overrides.append("strategy.device=cpu")
    precision = str(content.get("mixed_precision", "no"))
    if precision in ("bf16", "fp16"):
        overrides.append(f"strategy.precision={precision}")
    elif precision != "no":
        ignored.append(f"mixed_precision: {precision} (seqfit has bf16 and fp16)")
    for more, left in (_read_fsdp(kind, content), _read_deepspeed(kind, content)):
        overrides += more
        ignored += left
    return AccelerateFile(_read_place(path, content), overrides, ignored)


def _read_place(path: Path, content: Mapping[str, Any]) -> LaunchSpec:
    processes, machines = content.get("num_processes", 1), content.get("num_machines", 1)
    whole = isinstance(processes, int) and isinstance(machines, int) and processes >= machines >= 1
    if not whole or processes % machines:
        raise RecipeError(
            f"{path}: num_processes is {processes} and num_machines {machines}",
            "every machine runs the same number of processes, at least one",
            "Set num_processes to a multiple of num_machines",
        )
    address, port = content.get("main_process_ip"), content.get("main_process_port")
    if machines > 1 and (address is None or port is None):
        raise RecipeError(
            f"{path}: num_machines is {machines} without main_process_ip and main_process_port",
            "the machines connect to the first of them",
            "Add both to the file",
        )
    return LaunchSpec(processes // machines, machines, int(content.get("machine_rank", 0)), address, port)


def _read_fsdp(kind: str, content: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    part = content.get("fsdp_config") or {}
    if kind != "FSDP":
        return [], [f"fsdp_config (distributed_type is {kind})"] if part else []
    used = {"fsdp_offload_params": "offload=true", "fsdp_activation_checkpointing": "recompute=blocks"}
    overrides = [f"strategy.{override}" for name, override in used.items() if part.get(name)]
    left = [(name, value) for name, value in part.items() if name not in used]
    return overrides, [f"fsdp_config.{name}: {value} (blocks and root are sharded by FSDP2)" for name, value in left]


def _read_deepspeed(kind: str, content: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """ZeRO-2 and ZeRO-3 by DeepSpeed where it is installed, else by FSDP2. accelerate's own stage is 2."""
    part = content.get("deepspeed_config") or {}
    if kind != "DEEPSPEED":
        return [], [f"deepspeed_config (distributed_type is {kind})"] if part else []
    overrides, ignored = [], []
    stage = part.get("zero_stage", 2)
    if stage in _STAGES and importlib.util.find_spec("deepspeed") is not None:
        overrides.append(f"strategy.sharding=zero{stage}")
    elif stage in _STAGES:
        note = "" if stage == 3 else ", and also weights"
        ignored.append(
            f"deepspeed_config.zero_stage: {stage} (DeepSpeed is not installed, pip install 'seqfit[deepspeed]': "
            f"torch's FSDP2 shards gradients and state{note})"
        )
    for name, value in part.items():
        if name == "zero_stage" and value in (0, *_STAGES):
            continue
        if name in ("offload_optimizer_device", "offload_param_device") and value == "cpu":
            overrides.append("strategy.offload=true")
        elif name == "gradient_clipping" and isinstance(value, int | float):
            overrides.append(f"train.clip_norm={value or 'null'}")  # DeepSpeed's 0 is no clipping
        elif value not in ("none", None) and value is not False:
            ignored.append(f"deepspeed_config.{name}: {value}")
    return list(dict.fromkeys(overrides)), ignored
