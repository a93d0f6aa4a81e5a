from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seqfit.reporting.comparison import show_pareto
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files


def test_one_run_has_nothing_to_be_compared_with(run_path: Path) -> None:
    assert show_pareto(read_report_subject([run_path])) is None


def test_measured_and_predicted_are_distinguished_and_each_device_is_a_choice(comparison_path: Path) -> None:
    shown = str(show_pareto(read_report_subject([comparison_path])))
    assert 'data-choice="this machine"' in shown
    assert 'data-choice="Tesla V100"' in shown
    assert "2 x Tesla V100" not in shown
    assert "recompute, measured" in shown
    assert "ddp2, predicted" in shown
    assert "ddp2, measured" not in shown
    assert "Pareto-optimal (fastest for its memory): recompute, bf16." in shown
    assert "Not baseline: another needs no more memory" in shown
    assert "resident memory" in shown


def test_what_trials_have_allocated_is_the_memory_of_all_where_all_have_counted_it(comparison_path: Path) -> None:
    subject = read_report_subject([comparison_path])
    assert subject.comparison is not None
    results = tuple(
        replace(one, figures=one.figures | {"allocated_bytes": replace(one.figures["f1"], mean=2.0**30)})
        if one.figures
        else one
        for one in subject.comparison.results
    )
    shown = str(show_pareto(replace(subject, comparison=replace(subject.comparison, results=results))))
    assert "Memory is that of tensors." in shown
    assert "resident memory" not in shown
    assert "1.0 GiB, " in shown


def test_several_runs_are_placed_by_their_own_records(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_lines: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text("precision: bf16\n")
    edit_lines(runs[1], files.STEPS, lambda line: line | {"tokens_per_second": 9_000.0, "memory_bytes": 2 * 2**30})
    shown = str(show_pareto(read_report_subject(runs)))
    assert "Pareto-optimal (fastest for its memory): b." in shown
    assert "2.0 GiB, 9000 tokens/s" in shown


def test_the_memory_of_all_is_of_one_kind_and_the_page_says_which(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text("precision: bf16\n")
    edit_manifest(runs[0], prediction={"measured_peak_bytes": 2**30})
    shown = str(show_pareto(read_report_subject(runs)))
    assert "Memory is that of the processes, because not every run has measured its tensors." in shown
    assert "1.0 GiB, " not in shown
    edit_manifest(runs[1], prediction={"measured_peak_bytes": 2**31})
    shown = str(show_pareto(read_report_subject(runs)))
    assert "Memory is that of tensors." in shown
    assert "1.0 GiB, " in shown


def test_a_single_measurement_is_named(comparison_path: Path) -> None:
    subject = read_report_subject([comparison_path])
    assert subject.comparison is not None
    first, *others = subject.comparison.results
    results = (first, *(replace(result, figures={}) for result in others))
    shown = str(show_pareto(replace(subject, comparison=replace(subject.comparison, results=results))))
    assert "Only baseline was measured here." in shown
    assert "nothing was measured" not in shown
