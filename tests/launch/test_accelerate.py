"""Files of `accelerate config`, as that command writes them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from seqfit.errors import RecipeError
from seqfit.launch.accelerate import read_accelerate_file
from seqfit.launch.local import LaunchSpec

TWO = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
FSDP = TWO.replace("MULTI_GPU", "FSDP") + (
    "fsdp_config:\n  fsdp_activation_checkpointing: true\n  fsdp_offload_params: true\n  fsdp_version: 2\n"
)
DEEPSPEED = TWO.replace("MULTI_GPU", "DEEPSPEED") + (
    "deepspeed_config:\n  gradient_clipping: 0.5\n  offload_optimizer_device: none\n  zero_stage: 2\n"
)


def write(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text)
    return path


def test_two_processes_and_their_precision(tmp_path: Path) -> None:
    file = read_accelerate_file(write(tmp_path, TWO))
    assert file.place == LaunchSpec(2)
    assert file.overrides == ["strategy.parallel=ddp", "strategy.precision=bf16"]
    assert file.ignored == []


def test_fsdp_and_what_of_it_is_ours_to_decide(tmp_path: Path) -> None:
    file = read_accelerate_file(write(tmp_path, FSDP))
    assert file.overrides[2:] == ["strategy.offload=true", "strategy.recompute=blocks"]
    assert file.overrides[0] == "strategy.parallel=fsdp"
    assert len(file.ignored) == 1
    assert "fsdp_version: 2" in file.ignored[0]


def install_deepspeed(monkeypatch: pytest.MonkeyPatch, *, is_there: bool) -> None:
    find_spec = importlib.util.find_spec
    found = {"deepspeed": object() if is_there else None}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found[name] if name in found else find_spec(name))


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_is_used_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: int) -> None:
    install_deepspeed(monkeypatch, is_there=True)
    file = read_accelerate_file(write(tmp_path, DEEPSPEED.replace("zero_stage: 2", f"zero_stage: {stage}")))
    assert file.overrides[0] == "strategy.parallel=fsdp"
    assert file.overrides[2:] == [f"strategy.sharding=zero{stage}", "train.clip_norm=0.5"]
    assert file.ignored == []


def test_where_deepspeed_is_missing_fsdp_does_it_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_deepspeed(monkeypatch, is_there=False)
    file = read_accelerate_file(write(tmp_path, DEEPSPEED))
    assert file.overrides[0] == "strategy.parallel=fsdp"
    assert file.overrides[-1] == "train.clip_norm=0.5"
    (said,) = file.ignored
    assert "zero_stage: 2 (DeepSpeed is not installed, pip install 'seqfit[deepspeed]'" in said


def test_deepspeeds_clipping_of_zero_is_none(tmp_path: Path) -> None:
    text = DEEPSPEED.replace("gradient_clipping: 0.5", "gradient_clipping: 0.0")
    assert read_accelerate_file(write(tmp_path, text)).overrides[-1] == "train.clip_norm=null"


def test_deepspeeds_settings_in_a_file_of_another_type_are_named(tmp_path: Path) -> None:
    file = read_accelerate_file(
        write(tmp_path, DEEPSPEED.replace("distributed_type: DEEPSPEED", "distributed_type: FSDP"))
    )
    assert file.overrides == ["strategy.parallel=fsdp", "strategy.precision=bf16"]
    assert file.ignored == ["deepspeed_config (distributed_type is FSDP)"]


def test_several_machines_meet_at_the_first(tmp_path: Path) -> None:
    text = TWO.replace("num_machines: 1", "num_machines: 2").replace("machine_rank: 0", "machine_rank: 1")
    text = text.replace("num_processes: 2", "num_processes: 8") + "main_process_ip: n1\nmain_process_port: 29500\n"
    assert read_accelerate_file(write(tmp_path, text)).place == LaunchSpec(4, 2, 1, "n1", 29500)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("MULTI_GPU", "MEGATRON_LM"), "distributed_type is 'MEGATRON_LM'"),
        (("num_machines: 1", "num_machines: 2"), "without main_process_ip"),
        (("num_processes: 2", "num_processes: 3\nnum_machines: 2"), "holds|multiple|twice|num_machines"),
        (("num_processes: 2", "num_processes: many"), "at least one"),
    ],
)
def test_what_is_not_supported_is_an_error_in_three_parts(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        read_accelerate_file(write(tmp_path, TWO.replace(*change)))


def test_an_unknown_entry_is_named(tmp_path: Path) -> None:
    file = read_accelerate_file(write(tmp_path, TWO + "dynamo_config:\n  dynamo_backend: INDUCTOR\nquantum: 3\n"))
    assert [text.split(":")[0] for text in file.ignored] == ["dynamo_config", "quantum"]


def test_zero_of_stage_zero_shards_nothing(tmp_path: Path) -> None:
    file = read_accelerate_file(write(tmp_path, DEEPSPEED.replace("zero_stage: 2", "zero_stage: 0")))
    assert file.overrides[0] == "strategy.parallel=ddp"
    assert not any("sharding" in text for text in file.overrides)


def test_a_part_that_is_left_over_from_another_type_is_not_followed(tmp_path: Path) -> None:
    file = read_accelerate_file(write(tmp_path, FSDP.replace("FSDP", "MULTI_GPU")))
    assert file.overrides == ["strategy.parallel=ddp", "strategy.precision=bf16"]
    assert file.ignored == ["fsdp_config (distributed_type is MULTI_GPU)"]
