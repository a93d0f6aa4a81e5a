"""Which GPUs a build of torch runs on."""

from __future__ import annotations

import platform

import pytest

from seqfit.hardware.probe import advise_build, has_kernels

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
