from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.errors import ModelError
from seqfit.export import export_run
from tests.export.exported import ROWS

pytest.importorskip("ctranslate2", reason="needs pip install 'seqfit[ct2]'")
NAMES = ["t5", "t5-untied", "mt5", "mt5-untied", "umt5-untied", "bart", "marian", "mbart", "nllb", "m2m_100", "pegasus"]


@pytest.mark.parametrize("name", NAMES)
def test_ctranslate2_answers_like_the_checkpoint(
    name: str, checkpoint_of: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    report = export_run(checkpoint_of(name), "ct2", out=tmp_path / "out", data=rows)
    assert report.problems == []
    assert (report.check.identical, report.check.long_changed) == (ROWS, 0)
    assert report.check.largest_difference < 1e-4


def test_int8_is_smaller_and_its_changed_rows_are_counted(
    checkpoint_of: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    whole = export_run(checkpoint_of("bart"), "ct2", out=tmp_path / "whole", data=rows)
    report = export_run(checkpoint_of("bart"), "ct2", out=tmp_path / "int8", data=rows, precision="int8")
    sizes = [(Path(one.folder) / "model.bin").stat().st_size for one in (whole, report)]
    assert sizes[1] < 0.75 * sizes[0]
    assert report.check.identical + report.check.ties + report.check.changed == ROWS
    assert report.check.largest_difference > whole.check.largest_difference
    assert report.passed is (report.check.changed <= 0.1 * ROWS)


def test_a_type_that_has_no_converter_is_an_error_that_leaves_nothing(
    checkpoint_of: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="blenderbot model"):
        export_run(checkpoint_of("blenderbot"), "ct2", out=tmp_path / "out", data=rows)
    assert list(tmp_path.iterdir()) == []
