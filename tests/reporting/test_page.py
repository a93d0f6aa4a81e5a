from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.errors import RunError
from seqfit.reporting.page import build_parts, report
from seqfit.rundir import Run, files


def test_the_page_is_written_into_the_run(run_path: Path) -> None:
    assert report(run_path) == run_path / files.SUMMARY
    page = (run_path / files.SUMMARY).read_text("utf-8")
    assert f"<title>{run_path.name} · seqfit</title>" in page


def test_it_can_be_written_elsewhere(run_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "page.html"
    assert report(Run(run_path), out) == out
    assert out.is_file()
    assert not (run_path / files.SUMMARY).exists()


def test_the_page_of_a_comparison_is_written_into_its_folder(comparison_path: Path) -> None:
    assert report(comparison_path) == comparison_path / "report.html"
    page = (comparison_path / "report.html").read_text("utf-8")
    order = ["Ranked by time", "Is it fair?", "What it costs", "Training", "Time to quality", "Memory"]
    places = [page.index(f"<h2>{title}") for title in order]
    assert places == sorted(places)


def test_the_page_of_several_runs_is_written_here(
    tmp_path: Path, make_run: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    monkeypatch.chdir(tmp_path)
    assert report(runs) == Path("report.html")
    assert "<title>2 runs · seqfit</title>" in (tmp_path / "report.html").read_text("utf-8")


def test_what_matters_most_comes_first(run_path: Path, add_telemetry: Callable[..., None]) -> None:
    add_telemetry(run_path, [], {})
    (run_path / files.EVENTS).write_bytes((run_path / files.EVENTS).read_bytes() + b'{"time"')
    page = report(run_path).read_text("utf-8")
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles == [
        *("What is missing", "Overview", "What was trained", "Training", "Memory", "Telemetry", "Scores"),
        *("Predictions on test", "Data", "Events", "How to reproduce"),
    ]


def test_nothing_a_model_wrote_becomes_markup(run_path: Path) -> None:
    page = report(run_path).read_text("utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(&#x27;prediction&#x27;)" in page
    assert "<b>bold</b>" not in page


def test_a_run_that_failed_at_once_has_a_page(run_path: Path) -> None:
    for name in (files.STEPS, files.EVALUATIONS, files.EVENTS, files.STRATEGY, files.evaluation("test")):
        (run_path / name).unlink()
    manifest = json.loads((run_path / files.MANIFEST).read_text("utf-8"))
    (run_path / files.MANIFEST).write_text(json.dumps({**manifest, "status": "failed"}), "utf-8")
    page = report(run_path).read_text("utf-8")
    assert '<span class="badge bad">failed</span>' in page
    assert len(page) < 60_000  # without figures there is no need for plotly's script


def test_a_loss_that_is_not_a_number_leaves_a_gap(run_path: Path) -> None:
    with open(run_path / files.STEPS, "a", encoding="utf-8") as stream:
        last = json.loads((run_path / files.STEPS).read_text("utf-8").splitlines()[-1])
        stream.write(json.dumps({**last, "step": 402, "loss": float("nan"), "gradient_norm": None}) + "\n")
    page = report(run_path).read_text("utf-8")
    assert "NaN" not in page.split("<main>")[1].split("</main>")[0]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no manifest\.json"):
        report(tmp_path)


def test_parts_of_a_folder_without_a_run_say_that_there_is_none_yet(tmp_path: Path) -> None:
    title, parts = build_parts([tmp_path / "later"])
    assert title == "later · seqfit"
    assert "holds no run yet" in "".join(parts)


def test_ten_runs_make_a_page_under_six_megabytes(
    tmp_path: Path, make_run: Callable[[Path], Path], add_telemetry: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / f"run{number}") for number in range(10)]
    for number, run in enumerate(runs):
        (run / files.STRATEGY).write_text(f"micro_batch_tokens: {number + 1}\n")
        line = json.loads((run / files.STEPS).read_text("utf-8").splitlines()[0])
        steps = [
            json.dumps(line | {"step": step, "loss": 1 / step, "time": line["time"] + step}) for step in range(1, 5_001)
        ]
        (run / files.STEPS).write_text("\n".join(steps) + "\n")
        add_telemetry(run, [], {})
        sample = json.loads((run / files.TELEMETRY).read_text().splitlines()[0])
        samples = [json.dumps(sample | {"time": sample["time"] + second}) for second in range(5_000)]
        (run / files.TELEMETRY).write_text("\n".join(samples) + "\n")
    page = report(runs, tmp_path / "page.html")
    assert page.stat().st_size < 6_000_000


def test_building_a_page_imports_no_torch(run_path: Path) -> None:
    program = (
        f"import sys; from seqfit.reporting.page import report; report({str(run_path)!r}); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_a_browser_draws_every_figure(run_path: Path, open_page: Callable[[Path], str]) -> None:
    page = report(run_path)
    expected = page.read_text("utf-8").count("<figure ")
    assert expected >= 7
    document = open_page(page)
    assert document.count('data-drawn="yes"') == expected
    assert "&lt;script&gt;alert('prediction')" in document
