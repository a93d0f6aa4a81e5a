from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.errors import RunError
from seqfit.planning.cluster import Link, ScalingFigures, ScalingRow
from seqfit.planning.cluster_prediction import ClusterPrediction
from seqfit.scaling.report import ScalingPlace, ScalingReport, check_place, describe_scaling_limits, write_scaling

ALONE = ScalingRow("single", 1, "strong", 32, ScalingFigures(1.0, 1000.0, 1.0, 0.0, 0.0, 2**30, 2**30), None)
TWO = ScalingRow(
    "ddp",
    2,
    "strong",
    32,
    ScalingFigures(0.6, 1666.0, 0.833, 0.05, 0.02, 2**30, 2**29),
    ScalingFigures(0.55, 1818.0, 0.909, 0.03, 0.01),
    "a note",
)
FAR = ScalingRow("fsdp", 512, "weak", 16384, None, ScalingFigures(0.1, 5e6, 0.4, 0.6, 0.0, 3 * 2**30), "does not fit")
PLACE = ScalingPlace(2, Link(2**30, 2e-4), 1.1)
SCALING = ScalingReport(
    [ALONE, TWO],
    [PLACE],
    "a model",
    ClusterPrediction("NVIDIA X", 2**30, "bf16", "data sheet", 32.0, [FAR]),
    ["predicted: it ends."],
)


def test_every_line_says_whether_it_is_measured_or_predicted() -> None:
    here, elsewhere = SCALING.tables()
    origin = [column.label for column in here.columns].index("")
    assert [row[origin] for row in here.rows] == ["measured", "measured", "predicted"]
    assert [row[origin] for row in elsewhere.rows] == ["predicted"]
    assert [table.columns[1].label for table in (here, elsewhere)] == ["processes", "GPUs"]
    assert elsewhere.title.startswith("Predicted: ")


def test_a_measurement_stands_above_its_prediction() -> None:
    _, measured, predicted = SCALING.tables()[0].rows
    assert measured[:5] == ("ddp", "2", "strong", "measured", "600 ms")
    assert predicted[:5] == ("ddp", "2", "strong", "predicted", "550 ms")
    assert measured[-2:] == ("512.0 MiB to 1.0 GiB", "a note")
    assert predicted[-2:] == ("-", "")  # memory is not predicted here, and the note is about the measurement


def test_what_is_not_known_is_not_shown_as_zero() -> None:
    unknown = replace(TWO, measured=ScalingFigures(0.6, 1666.0, 0.833, None, None), predicted=None)
    (row,) = replace(SCALING, rows=[unknown], cards=None).tables()[0].rows
    assert row[7:10] == ("-", "-", "-")


def test_both_files_are_written_with_the_same_content(tmp_path: Path) -> None:
    paths = write_scaling(SCALING, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["scaling.json", "scaling.md"]
    stored = json.loads(paths[0].read_text())
    assert stored["rows"][1]["measured"]["step_seconds"] == 0.6
    assert stored["rows"][1]["predicted"]["step_seconds"] == 0.55
    assert stored["cards"]["rows"][0]["measured"] is None
    text = paths[1].read_text()
    assert "| ddp | 2 | strong | measured | 600 ms | 1666 | 83.3% | 5.0% | 2.0% |" in text
    assert "- predicted: it ends." in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| ")}
    assert widths == {len(table.columns) + 1 for table in SCALING.tables()}


def test_a_report_is_not_overwritten(tmp_path: Path) -> None:
    check_place(tmp_path)
    write_scaling(SCALING, tmp_path)
    with pytest.raises(RunError, match=r"exists\. No report is overwritten\. Give another --out\."):
        check_place(tmp_path)


def test_a_file_is_refused_as_the_folder_of_a_report(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(RunError, match="which is a file"):
        check_place(tmp_path / "taken")


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_terminal_gets_what_fits_and_notes_below_the_table(width: int) -> None:
    text = SCALING.to_text(width)
    assert max(map(len, text.splitlines())) <= width
    assert "note: a note (ddp x 2)" in text
    assert "note: does not fit (fsdp x 512)" in text
    assert "predicted: it ends." in text
    assert all(line.count("600 ms") <= 1 for line in text.splitlines())
    assert ("imbalance" in text) is (width == 160)


def row(count: int, efficiency: float, kind: str = "strong") -> ScalingRow:
    figures = ScalingFigures(1.0, 1.0, efficiency, 0.0, 0.0)
    return ScalingRow("ddp", count, kind, 32, None, figures)  # type: ignore[arg-type]


def test_the_number_of_gpus_from_which_more_are_not_worthwhile_is_reported() -> None:
    rows = [row(1, 1.0), row(2, 0.8), row(4, 0.45), row(8, 0.2), row(1, 1.0, "weak"), row(2, 0.97, "weak")]
    assert describe_scaling_limits(rows) == [
        "predicted, ddp, strong scaling: efficiency falls to 45.0% with 4 GPUs; use 2 at most.",
        "predicted, ddp, weak scaling: efficiency is still 97.0% with 2 GPUs.",
    ]
