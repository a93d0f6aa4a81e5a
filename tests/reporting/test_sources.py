from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqfit.reporting.sources import show_events, show_sources
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files
from seqfit.rundir.records import SnapshotEvent
from seqfit.rundir.writer import RunWriter


def test_the_command_can_be_copied_and_the_rest_is_there_to_read(run_path: Path) -> None:
    shown = str(show_sources(read_report_subject([run_path])))
    assert '<pre class="copy">seqfit train mt5-squad-es</pre>' in shown
    assert "hub_config: v1.1.0" in shown
    assert "&quot;fingerprint&quot;: &quot;5f0c&quot;" in shown
    assert "<td>torch</td>" in shown


def test_the_command_is_as_it_is_typed(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, command="/opt/venv/lib/seqfit/__main__.py train demo seed=1")
    assert '<pre class="copy">seqfit train demo seed=1</pre>' in str(show_sources(read_report_subject([run_path])))


def test_secrets_are_masked(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, command="seqfit train demo --hf-token hf_AbCdEfGhIjKlMnOpQrSt")
    shown = str(show_sources(read_report_subject([run_path])))
    assert "--hf-token ***" in shown
    assert "AbCdEf" not in shown


def test_a_comparison_has_its_command_and_its_candidates(comparison_path: Path) -> None:
    shown = str(show_sources(read_report_subject([comparison_path])))
    assert '<pre class="copy">seqfit compare squad-es --strategies baseline,recompute,bf16,ddp2</pre>' in shown
    assert "strategy.recompute=blocks" in shown
    assert shown.count("Environment") == 3  # one for each way that has run


def test_events_of_one_run_stand_in_order(run_path: Path) -> None:
    shown = str(show_events(read_report_subject([run_path])))
    assert shown.index("no fast bf16") < shown.index("were truncated at 512 tokens")


def test_snapshots_are_counted_not_listed(run_path: Path) -> None:
    writer = RunWriter.reopen(run_path)
    writer.snapshot(SnapshotEvent(80, 100.0, 101.0, 1.0))
    writer.close()
    shown = str(show_events(read_report_subject([run_path])))
    assert "1 snapshot is not listed." in shown
    assert "of step 80" not in shown
    assert "were truncated at 512 tokens" in shown


def test_events_of_several_runs_are_those_that_say_something_of_one(comparison_path: Path) -> None:
    shown = str(show_events(read_report_subject([comparison_path])))
    assert "no fast bf16" not in shown
    assert "bf16-seed0-repeat0" in shown
    assert "6 events" in shown


def test_a_run_without_events_has_no_such_part(run_path: Path) -> None:
    (run_path / files.EVENTS).unlink()
    assert show_events(read_report_subject([run_path])) is None
