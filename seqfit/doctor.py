"""What this machine has and lacks for training, as a list of findings.

    DoctorFinding("torch", "warn", "2.13.0+cpu, but there is an NVIDIA GPU", "pip install --force-reinstall torch")

States: `ok`; `warn`, training works but not as well as it could; `missing`, it cannot work. Each that is not ok
comes with the command that fixes it. The network is not used without `network`.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from seqfit import __version__
from seqfit.cache import cache_root
from seqfit.hardware import Gpu, Machine, probe_machine
from seqfit.hub import hub_address, is_offline_by_setting, reach_hub
from seqfit.units import format_bytes

# The dependencies in pyproject.toml apart from torch, which has a finding of its own.
LIBRARIES = (
    *("transformers", "datasets", "tokenizers", "safetensors", "peft", "pyarrow", "numpy", "pydantic", "pyyaml"),
    *("typer", "rich", "sacrebleu", "rouge-score", "nvidia-ml-py", "psutil", "plotly", "charset-normalizer"),
    *("starlette", "uvicorn", "prometheus-client"),
)
TOKENIZER_LIBRARIES = ("sentencepiece", "protobuf")
EXTRAS = (
    *("python-calamine", "bitsandbytes", "torchao", "ctranslate2", "deepspeed", "tensorboard", "wandb", "mlflow"),
    *("trackio", "onnx", "onnxscript", "onnxruntime"),
)
_NEEDED_PYTHON = (3, 11)
_LOW_DISK_BYTES = 10 * 1024**3  # a t5-base run with its snapshots takes about 6 GiB
_NETWORK_SECONDS = 3.0


@dataclass(frozen=True)
class DoctorFinding:
    """`fix` is a command or a sentence, '' where there is nothing to do."""

    name: str
    state: Literal["ok", "warn", "missing"]
    detail: str
    fix: str = ""


def examine(network: bool = False) -> list[DoctorFinding]:
    """All findings; with `network` the Hub is tried, for three seconds at most."""
    machine = probe_machine()
    return [
        _examine_python(),
        DoctorFinding("seqfit", "ok", f"{__version__} in {Path(__file__).parent}"),
        *_examine_torch(machine),
        _examine_driver(machine),
        _examine_processor(machine),
        check_disk("runs", Path("runs")),
        check_disk("data cache", cache_root()),
        check_disk("Hugging Face cache", _hub_cache()),
        _examine_hub(network),
        _examine_libraries("libraries", LIBRARIES),
        _examine_libraries("tokenizer libraries", TOKENIZER_LIBRARIES),
        _examine_extras(),
    ]


def _examine_python() -> DoctorFinding:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < _NEEDED_PYTHON:
        return DoctorFinding("Python", "missing", f"{detail}; 3.11 or newer is needed", "Install Python 3.11 or newer")
    return DoctorFinding("Python", "ok", detail)


def _examine_driver(machine: Machine) -> DoctorFinding:
    if not machine.gpus:
        reason = f"{machine.no_gpu_reason}: no GPU telemetry, which is fine where there is no NVIDIA GPU"
        return DoctorFinding("NVML", "ok", reason)
    cuda = ".".join(map(str, machine.driver.cuda))
    cards = ", ".join(_describe_gpu(gpu) for gpu in machine.gpus)
    return DoctorFinding("NVML", "ok", f"driver {machine.driver.version} for CUDA {cuda} or older, {cards}")


def _describe_gpu(gpu: Gpu) -> str:
    known = f"'{gpu.card.key}' in plans" if gpu.card else "not in the table of GPUs"
    free = format_bytes(gpu.memory_bytes - gpu.used_bytes)
    return f"{gpu.name} ({free} of {format_bytes(gpu.memory_bytes)} free, {known})"


def _examine_torch(machine: Machine) -> list[DoctorFinding]:
    if importlib.util.find_spec("torch") is None:
        return [DoctorFinding("torch", "missing", "not installed", 'pip install "torch>=2.13,<3"')]
    import torch

    from seqfit.step import find_missing_kernels

    cuda, hip = torch.version.cuda, torch.version.hip
    built_for = f"CUDA {cuda}" if cuda is not None else f"ROCm {hip}" if hip is not None else "CPUs only"
    driver_cuda = machine.driver.cuda if machine.gpus else None
    findings = [check_torch(f"{torch.__version__} (built for {built_for})", cuda, driver_cuda)]
    if not torch.cuda.is_available():
        return [*findings, DoctorFinding("devices", "ok", "torch has no GPU to use: training runs on the CPU")]
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        with torch.cuda.device(index):
            has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)  # emulated, it is slower than fp32
        bf16 = "bf16" if has_bf16 else "no bf16: fp32 is used"
        detail = f"{card.name}, {format_bytes(card.total_memory)}, {bf16}"
        missing = find_missing_kernels(torch.device("cuda", index))
        if missing is None:
            findings.append(DoctorFinding(f"device {index}", "ok", detail))
        else:
            built_for = ", ".join(torch.cuda.get_arch_list())
            detail += f"; torch {torch.__version__} has no kernels for {missing[0]}, only {built_for}"
            findings.append(DoctorFinding(f"device {index}", "warn", detail, missing[1]))
    return findings


def check_torch(detail: str, built_for_cuda: str | None, driver_cuda: tuple[int, int] | None) -> DoctorFinding:
    """Whether the build of torch fits the driver; `driver_cuda` is None where there is no NVIDIA GPU."""
    if driver_cuda is None:
        return DoctorFinding("torch", "ok", detail)
    if built_for_cuda is None:
        fix = 'pip install --force-reinstall "torch>=2.13,<3" (Linux; for others see pytorch.org/get-started/locally)'
        return DoctorFinding("torch", "warn", f"{detail}, but there is an NVIDIA GPU: it is not used", fix)
    # Within a major version a newer CUDA runs on an older driver; across major versions it does not.
    if int(built_for_cuda.split(".")[0]) > driver_cuda[0]:
        fix = f"Update the NVIDIA driver to one for CUDA {built_for_cuda}"
        detail += f", but the driver runs CUDA {'.'.join(map(str, driver_cuda))} at most: the GPU is not used"
        return DoctorFinding("torch", "warn", detail, fix)
    return DoctorFinding("torch", "ok", detail)


def _examine_processor(machine: Machine) -> DoctorFinding:
    detail = f"{machine.processor}, {machine.cores} cores"
    if machine.memory_bytes is not None and machine.available_bytes is not None:
        detail += f", {format_bytes(machine.memory_bytes)} of memory, {format_bytes(machine.available_bytes)} free"
    if machine.is_limited:
        detail += " (limits of this process; the machine has more)"
    return check_threads(machine.cores, detail, os.environ.get("OMP_NUM_THREADS"))


def check_threads(cores: int, detail: str, omp_num_threads: str | None) -> DoctorFinding:
    """Whether OMP_NUM_THREADS equals the number of cores; unset, torch uses all of them."""
    if omp_num_threads is None:
        return DoctorFinding("processor", "ok", detail)
    detail += f", OMP_NUM_THREADS={omp_num_threads}"
    if omp_num_threads.isdecimal() and int(omp_num_threads) == cores:
        return DoctorFinding("processor", "ok", detail)
    detail += f": torch uses that many of {cores} cores"
    return DoctorFinding("processor", "warn", detail, "unset OMP_NUM_THREADS")


def check_disk(name: str, folder: Path) -> DoctorFinding:
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free_bytes = shutil.disk_usage(place).free
    title, detail = f"disk: {name}", f"{folder.absolute()}, {format_bytes(free_bytes)} free"
    if not os.access(place, os.W_OK):
        return DoctorFinding(title, "warn", f"{detail}, but not writable", f"Make {place} writable or use another")
    if free_bytes < _LOW_DISK_BYTES:
        return DoctorFinding(title, "warn", detail, "Free some space: a model and its snapshots take several GiB")
    return DoctorFinding(title, "ok", detail)


def _hub_cache() -> Path:
    """Where `huggingface_hub` puts models; read here, because importing it takes a second."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def _examine_hub(network: bool) -> DoctorFinding:
    if is_offline_by_setting():
        detail = "offline by HF_HUB_OFFLINE: models and data come from the cache or from local folders"
        return DoctorFinding("Hub", "ok", detail)
    if not network:
        return DoctorFinding("Hub", "ok", "not tried; 'seqfit doctor --network' tries to reach it")
    wrong = reach_hub(_NETWORK_SECONDS)
    if wrong is None:
        return DoctorFinding("Hub", "ok", f"{hub_address()} answers")
    fix = "Give local folders (model.path=... data.path=...) and set HF_HUB_OFFLINE=1, or check the proxy settings"
    return DoctorFinding("Hub", "warn", f"{hub_address()} does not answer: {wrong}", fix)


def _versions(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    present, absent = [], []
    for name in names:
        try:
            present.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            absent.append(name)
    return present, absent


def _examine_libraries(title: str, names: tuple[str, ...]) -> DoctorFinding:
    present, absent = _versions(names)
    if absent:
        return DoctorFinding(title, "missing", f"not installed: {', '.join(absent)}", f"pip install {' '.join(absent)}")
    return DoctorFinding(title, "ok", ", ".join(present))


def _examine_extras() -> DoctorFinding:
    present, absent = _versions(EXTRAS)
    has, lacks = ", ".join(present) or "none", ", ".join(absent) or "none"
    return DoctorFinding("optional extras", "ok", f"installed: {has}; not installed: {lacks}")
