from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seqfit.reporting.costs import show_memory
from seqfit.reporting.subject import read_report_subject

GIB = 2**30
PREDICTION = {
    "predicted_peak_bytes": 4 * GIB,
    "predicted_parts": {"weights": GIB, "activations": 2 * GIB, "inputs": 0},
    "measured_peak_bytes": int(4.4 * GIB),
    "measured_peak_is": "allocated in step 4, the most of those watched",
    "predicted_step_seconds": 1.0,
    "measured_step_seconds": 1.1,
}


def test_the_predicted_peak_is_split_by_category_and_the_measured_one_is_not(
    run_path: Path, edit_manifest: Callable[..., None]
) -> None:
    edit_manifest(run_path, prediction=PREDICTION)
    shown = str(show_memory(read_report_subject([run_path])))
    for said in (
        "weights",
        "activations",
        "allocator overhead",
        "4.0 GiB",
        "4.4 GiB",
        "+10.0%",
        "allocated in step 4",
    ):
        assert said in shown
    assert "inputs" not in shown


def test_resident_memory_is_not_compared_with_predicted_tensors(
    run_path: Path, edit_manifest: Callable[..., None]
) -> None:
    edit_manifest(run_path, prediction={**PREDICTION, "measured_peak_bytes": None})
    shown = str(show_memory(read_report_subject([run_path])))
    assert "resident memory of the process" in shown
    assert "the two can&#x27;t be compared" in shown
    assert "%" not in shown.split("<tbody>")[1]


def test_a_prediction_without_categories_is_one_hollow_bar(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, prediction={**PREDICTION, "predicted_parts": {}})
    assert "predicted total" in str(show_memory(read_report_subject([run_path])))


def test_without_a_prediction_the_page_says_so(run_path: Path) -> None:
    shown = str(show_memory(read_report_subject([run_path])))
    assert "Nothing was predicted. Possible causes: several processes, a GPU that is not in the hardware table" in shown
    assert "3.1 GiB" in shown  # the records' own


def read_chart(shown: str, device: str) -> dict[str, dict[str, float]]:
    """Bar -> part -> GB, of a comparison's chart for one device."""
    written = shown.split('<script type="application/json">')[1].split("</script>")[0]
    bars: dict[str, dict[str, float]] = {}
    for trace in json.loads(written)[device]["data"]:
        if trace["type"] == "bar":
            for bar, size in zip(trace["y"], trace["x"], strict=True):
                bars.setdefault(bar, {}).update({trace["name"]: round(size / 1e9, 2)} if size else {})
    return bars


def test_a_comparisons_predicted_peaks_are_split_by_category_next_to_the_measured_ones(comparison_path: Path) -> None:
    shown = str(show_memory(read_report_subject([comparison_path])))
    bars = read_chart(shown, "this machine")
    assert bars["recompute, predicted"] == {"weights": 0.6, "activations": 1.3}
    assert bars["recompute, measured"] == {"measured": 2.1}
    assert {name.split(",")[0] for name in bars} == {"baseline", "recompute", "bf16"}
    assert "resident" in shown


def test_every_card_that_a_comparison_was_predicted_for_is_a_choice(comparison_path: Path) -> None:
    shown = str(show_memory(read_report_subject([comparison_path])))
    bars = read_chart(shown, "Tesla V100")
    assert bars["baseline, predicted"] == {"weights": 0.6, "activations": 1.4, "allocator and CUDA context": 1.0}
    assert bars["ddp2, predicted"] == {"predicted total": 2.7}
    assert not any("measured" in name for name in bars)
    assert "With several GPUs, for the one that needs most." in shown


def test_peaks_of_tensors_and_of_processes_are_not_compared(comparison_path: Path) -> None:
    subject = read_report_subject([comparison_path])
    assert subject.comparison is not None
    first, *others = subject.comparison.results
    counted = replace(first, figures=first.figures | {"allocated_bytes": replace(first.figures["f1"], mean=1e9)})
    shown = str(show_memory(replace(subject, comparison=replace(subject.comparison, results=(counted, *others)))))
    assert read_chart(shown, "this machine")["baseline, measured"] == {"measured": 3.2}


def test_without_measured_tensors_of_all_runs_no_peak_is_compared_with_its_prediction(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    edit_manifest(runs[0], prediction=PREDICTION)
    edit_manifest(runs[1], prediction={**PREDICTION, "measured_peak_bytes": None}, precision="bf16")
    shown = str(show_memory(read_report_subject(runs)))
    assert shown.count("resident memory of the process") == 2
    assert "4.4 GiB" not in shown
    assert "%" not in shown.split("<tbody>")[1]


def test_allocated_memory_is_not_compared_with_all_that_the_gpu_holds(comparison_path: Path) -> None:
    subject = read_report_subject([comparison_path])
    assert subject.comparison is not None
    result = subject.comparison.results[0]
    size = result.figures["resident_bytes"]
    on_gpu = replace(result, figures={"allocated_bytes": size, "reserved_bytes": size})
    on_cpu = replace(result, figures={"allocated_bytes": size})
    shown, compared = (
        str(show_memory(replace(subject, comparison=replace(subject.comparison, results=(one,)))))
        for one in (on_gpu, on_cpu)
    )
    assert "allocated tensors, which are a part of it, so the two can&#x27;t be compared" in shown
    assert "+60.0%" not in shown
    assert "+60.0%" in compared
