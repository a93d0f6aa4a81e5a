"""What is exported has nothing private in it, and what is imported is checked before it is used."""

from __future__ import annotations

import getpass
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import PlanError
from seqfit.hardware import find_card
from seqfit.planning.calibration_files import read_calibrations, write_calibrations
from seqfit.planning.known_rates import (
    DeviceCalibration,
    RecordedRun,
    find_imported,
    find_rates,
    forget,
    has_measured,
    list_imported,
    list_own,
    record_run,
    store_imported,
    store_rates,
)
from seqfit.planning.timing import Rates, rates_of_card
from seqfit.yaml_text import read_yaml, write_yaml

CARD = find_card("rtx3090")
RATES = Rates(
    "measured on this machine",
    {"product": 1.9e13, "half product": 4.1e13, "batched product": 9e12, "half batched product": 2e13},
    7.4e11,
    7.1e11,
    6.2e-6,
    1e-4,
    products_wait_for_memory=False,
)
RUN = RecordedRun(1.13, 0.99, 1.4, 60_506_624, "bf16")


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))


def write(folder: Path, *known: DeviceCalibration) -> Path:
    file = folder / "calibration.yaml"
    file.write_text(write_calibrations(known or [DeviceCalibration(CARD.name, CARD.key, RATES, [RUN])]))
    return file


def change(file: Path, **values: Any) -> Path:
    """The file with other values of its device."""
    content, _ = read_yaml(file.read_text())
    content["devices"][0] |= values
    file.write_text(write_yaml(content))
    return file


def test_what_one_machine_measured_is_what_the_other_one_reads(tmp_path: Path) -> None:
    (found,), left_out = read_calibrations(write(tmp_path))
    assert found.rates is not None
    assert found.rates.flops_per_second == RATES.flops_per_second
    assert (found.rates.bytes_per_second, found.rates.call_seconds) == (7.4e11, 6.2e-6)
    assert not found.rates.products_wait_for_memory
    assert found.runs == [RecordedRun(1.13, 0.99, 1.4, 61_000_000, "bf16")]
    assert found.origin.startswith("seqfit ")
    assert left_out == []


def test_nothing_private_is_exported(tmp_path: Path) -> None:
    """Planted wherever the stored measurements have text."""
    secret, home = "Secret-Hospital", "/home/jane.doe/patients.csv"
    rates = Rates(f"{secret} on {home}", RATES.flops_per_second | {f"kernel of {secret}": 1e9}, 7e11, 7e11, 1e-6)
    run = RecordedRun(1.2, parameters=123_456_789, precision=f"bf16 {secret}")
    known = DeviceCalibration(f"{CARD.name} of {secret}", CARD.key, rates, [run], origin=home)
    text = write_calibrations([known])
    planted = (secret, home, "jane", "123456789", socket.gethostname(), str(Path.cwd()), str(tmp_path))
    assert [word for word in planted if word.lower() in text.lower()] == []
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)
    words = set(re.findall(r"[A-Za-z_]{3,}", text))
    assert words <= {
        *("seqfit_calibration", "made_with", "seqfit", "torch", "cpu", "dev", "devices", "device", "rtx", "rates"),
        *("last_wave", "host_call_seconds", "fused_share"),
        *("product", "half", "batched", "bytes_per_second", "update_bytes_per_second", "call_seconds", "step_seconds"),
        *(
            "last_wave",
            "host_call_seconds",
            "fused_share",
            "products_wait_for_memory",
            "true",
            "false",
            "runs",
            "step_seconds_ratio",
            "parameters",
        ),
    }


def test_an_imported_calibration_is_used_and_named_until_something_is_measured_here(tmp_path: Path) -> None:
    (found,), _ = read_calibrations(write(tmp_path))
    store_imported(found)

    def find() -> Rates:
        return find_rates(CARD.name, CARD.key, lambda: rates_of_card(CARD, "fp32"))

    imported = find()
    assert imported.flops_per_second["product"] == pytest.approx(1.9e13 / 1.13)
    assert "imported calibration" in imported.source
    assert "1 imported run" in imported.source
    store_rates(CARD.key, RATES)
    assert find() == RATES
    assert forget(CARD.name, CARD.key) == ["measured rates", "imported calibration"]
    assert find().source == rates_of_card(CARD, "fp32").source
    assert find_imported(CARD.key) is None


def test_imported_runs_without_rates_correct_the_data_sheet(tmp_path: Path) -> None:
    (found,), _ = read_calibrations(write(tmp_path, DeviceCalibration(CARD.name, CARD.key, None, [RUN])))
    store_imported(found)
    sheet = rates_of_card(CARD, "fp32")
    rates = find_rates(CARD.name, CARD.key, lambda: sheet)
    assert rates.bytes_per_second == pytest.approx(sheet.bytes_per_second / 1.13)
    record_run(CARD.name, predicted_seconds=1.0, factor=1.0, measured_seconds=2.0)
    assert find_rates(CARD.name, CARD.key, lambda: sheet).bytes_per_second == pytest.approx(sheet.bytes_per_second / 2)


def test_what_is_known_is_listed(tmp_path: Path) -> None:
    assert list_imported() == []
    assert not has_measured(CARD.name, CARD.key)
    facts = {"peak_bytes_ratio": 0.98, "parameters": 60_000_000, "precision": "fp32"}
    record_run(CARD.name, predicted_seconds=1.0, factor=1.0, measured_seconds=1.5, facts=facts)
    (measured,) = list_own({"t4": "NVIDIA Tesla T4", CARD.key: CARD.name})
    assert measured.runs == [RecordedRun(1.5, 0.98, None, 60_000_000, "fp32")]
    (found,), _ = read_calibrations(write(tmp_path))
    store_imported(found)
    assert list_imported() == [found]


def test_the_cpu_of_another_machine_is_left_out(tmp_path: Path) -> None:
    found, left_out = read_calibrations(write(tmp_path, DeviceCalibration("A processor, 2 cores", "cpu", RATES, [])))
    assert found == []
    assert len(left_out) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"device": "rtx9999"}, "is 'rtx9999'"),
        ({"device": ["rtx3090"]}, "table of GPUs"),
        ({"rates": None, "runs": []}, "neither rates nor runs"),
        ({"runs": [{"step_seconds_ratio": 80.0}]}, "is 80"),
        ({"runs": [{"step_seconds_ratio": float("nan")}]}, "It is a number"),
        ({"runs": [{"step_seconds_ratio": True}]}, "It is a number"),
        ({"runs": [{"step_seconds_ratio": 1.0, "model": "my-model"}]}, "has model"),
        ({"runs": [{"step_seconds_ratio": 1.0, "precision": "int4"}]}, "'int4'"),
        ({"runs": [{"peak_bytes_ratio": 1.0}]}, "lacks step_seconds_ratio"),
        ({"runs": [{"step_seconds_ratio": 1.0}] * 10}, "at most 9"),
        ({"runs": "many"}, "no list"),
        ({"rates": {"product": 1e13}}, "lacks half product"),
        ({"host": "machine-7"}, "has host"),
    ],
)
def test_what_such_a_file_can_not_have_is_refused(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=f"(?i){re.escape(message)}"):
        read_calibrations(change(write(tmp_path), **values))
    assert list_imported() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("product", 1e16),
        ("half product", 1e9),
        ("bytes_per_second", 5e13),
        ("update_bytes_per_second", 0),
        ("call_seconds", -1e-6),
        ("step_seconds", 1e6),
        ("batched product", "fast"),
        ("products_wait_for_memory", 1),
    ],
)
def test_rates_that_no_such_gpu_has_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    file = write(tmp_path)
    rates = read_yaml(file.read_text())[0]["devices"][0]["rates"]
    with pytest.raises(PlanError, match=name):
        read_calibrations(change(file, rates=rates | {name: value}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not YAML"),
        ("- 1\n", "no mapping"),
        ("!!python/object/apply:os.system [ls]\n", "is not YAML"),
        ("seqfit_calibration: 2\nmade_with: {seqfit: '1', torch: '2'}\ndevices: []\n", "format 2"),
        ("seqfit_calibration: 1\nmade_with: {seqfit: '/home/x', torch: '2'}\ndevices: []\n", "version is one"),
        ("seqfit_calibration: 1\nmade_with: {seqfit: '1', torch: '2'}\ndevices: 5\n", "devices is no list"),
        ("a: &a [1, 2]\nb: [*a, *a]\n", "repeats"),
        ("a: 1\na: 2\n", "repeats"),
        ("a" * 300_000, "bytes"),
        ("[" * 5000, "is not YAML"),
        ("\x80", "is not YAML"),
    ],
)
def test_other_files_are_refused_without_running_them(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(PlanError, match=message):
        read_calibrations(file)


def test_none_of_it_imports_torch() -> None:
    program = (
        "import sys; from seqfit.planning import calibrations; calibrations.list_known(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
