from __future__ import annotations

import importlib.util
import platform
import re
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from seqfit import doctor
from seqfit.doctor import DoctorFinding, check_disk, check_threads, check_torch, examine
from seqfit.hardware.cards import find_card
from seqfit.hardware.probe import Driver, Gpu, Machine

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def found(name: str) -> DoctorFinding:
    return next(finding for finding in examine() if finding.name == name)


def test_this_machine_has_all_that_is_needed() -> None:
    assert [finding for finding in examine() if finding.state == "missing"] == []


def test_whatever_is_not_in_order_comes_with_a_fix() -> None:
    assert [finding for finding in examine() if finding.state != "ok" and not finding.fix] == []


def test_the_libraries_are_those_of_the_project_file() -> None:
    needed = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    names = {re.split(r"[^a-z0-9-]", line)[0] for line in needed}
    assert names == {*doctor.LIBRARIES, *doctor.TOKENIZER_LIBRARIES, "torch"}


def test_a_library_that_is_absent_is_missing_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TOKENIZER_LIBRARIES", ("sentencepiece", "no-such-library"))
    finding = found("tokenizer libraries")
    assert (finding.state, finding.fix) == ("missing", "pip install no-such-library")


def test_a_machine_without_torch_gets_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else real(name))
    finding = found("torch")
    assert finding.state == "missing"
    assert finding.fix.startswith("pip install")


@pytest.mark.parametrize(
    ("built_for", "driver", "state", "word"),
    [
        (None, None, "ok", ""),
        ("13.0", (13, 2), "ok", ""),
        ("13.2", (13, 0), "ok", ""),
        (None, (13, 0), "warn", "not used"),
        ("13.0", (12, 8), "warn", "12.8 at most"),
    ],
)
def test_a_build_of_torch_must_fit_the_driver(
    built_for: str | None, driver: tuple[int, int] | None, state: str, word: str
) -> None:
    finding = check_torch("2.13.0", built_for, driver)
    assert finding.state == state
    assert word in finding.detail
    assert bool(finding.fix) == (state == "warn")


def test_a_gpu_is_named_with_its_free_memory_and_its_row_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (Gpu(0, "NVIDIA A10G", 22 * 2**30, 2**30, find_card("a10g")), Gpu(1, "NVIDIA X", 2**30, 0, None))
    machine = Machine("AMD EPYC", 2, 8 * 2**30, 2**30, True, Driver("595.10", (13, 2), gpus))
    monkeypatch.setattr(doctor, "probe_machine", lambda: machine)
    assert found("NVML").detail == (
        "driver 595.10 for CUDA 13.2 or older, NVIDIA A10G (21.0 GiB of 22.0 GiB free, 'a10g' in plans), "
        "NVIDIA X (1.0 GiB of 1.0 GiB free, not in the table of GPUs)"
    )
    assert found("torch").state == ("warn" if "CPUs only" in found("torch").detail else "ok")
    assert "AMD EPYC, 2 cores, 8.0 GiB of memory, 1.0 GiB free (limits of this process" in found("processor").detail


def test_a_gpu_that_torch_has_no_kernels_for_is_a_warning_with_the_build_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = SimpleNamespace(name="Tesla V100-SXM2-16GB", total_memory=16 * 2**30)
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "device": lambda index: nullcontext(),
        "get_device_properties": lambda device: card,
        "get_device_name": lambda device: card.name,
        "get_device_capability": lambda device: (7, 0),
        "get_arch_list": lambda: ["sm_75", "sm_80"],
        "is_bf16_supported": lambda including_emulation: False,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    finding = found("device 0")
    assert finding.state == "warn"
    assert "no kernels for Tesla V100-SXM2-16GB (compute capability 7.0), only sm_75, sm_80" in finding.detail
    assert "cu126 build" in finding.fix
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_70", "sm_75"])
    assert (found("device 0").state, found("device 0").fix) == ("ok", "")


@pytest.mark.parametrize(("setting", "state"), [(None, "ok"), ("4", "ok"), ("1", "warn"), ("64", "warn")])
def test_a_thread_setting_other_than_the_cores_is_pointed_out(setting: str | None, state: str) -> None:
    assert check_threads(4, "4 cores", setting).state == state


def test_a_folder_that_does_not_exist_yet_is_checked_by_its_disk(tmp_path: Path) -> None:
    finding = check_disk("runs", tmp_path / "not" / "yet")
    assert str(tmp_path / "not" / "yet") in finding.detail
    assert "free" in finding.detail


def test_the_disks_of_runs_and_caches_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "prepared"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "models"))
    assert str(tmp_path / "prepared") in found("disk: data cache").detail
    assert str(tmp_path / "models") in found("disk: Hugging Face cache").detail
    assert found("disk: runs").detail.startswith(str(Path.cwd() / "runs"))


def test_little_space_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LOW_DISK_BYTES", 2**80)
    assert check_disk("runs", tmp_path).state == "warn"


def test_offline_is_named_and_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(doctor, "reach_hub", lambda seconds: pytest.fail("went to the network"))
    finding = next(finding for finding in examine(network=True) if finding.name == "Hub")
    assert "HF_HUB_OFFLINE" in finding.detail


def test_an_endpoint_that_does_not_answer_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: refused at once
    finding = next(finding for finding in examine(network=True) if finding.name == "Hub")
    assert finding.state == "warn"
    assert "HF_HUB_OFFLINE=1" in finding.fix
