from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.errors import RecipeError
from seqfit.rundir import Run, files
from seqfit.tracking import tracker
from seqfit.tracking.tracker import TOOLS, check_tool, identify_run


def test_a_renamed_directory_is_the_same_run_under_another_name(run_path: Path) -> None:
    before = identify_run(Run(run_path), "p")
    after = identify_run(Run(run_path.rename(run_path.with_name("other"))), "p")
    assert (before.id, before.name, after.name) == (after.id, "demo", "other")
    assert before.label == f"demo-{before.id[:8]}"


def test_two_runs_with_the_same_name_have_different_labels(run_path: Path) -> None:
    before = identify_run(Run(run_path), "p")
    manifest = json.loads((run_path / files.MANIFEST).read_text())
    (run_path / files.MANIFEST).write_text(json.dumps(manifest | {"started": manifest["started"] + 1e-3}))
    assert identify_run(Run(run_path), "p").label != before.label


@pytest.mark.parametrize("tool", TOOLS)
def test_a_package_that_is_missing_is_named_with_its_extra(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(RecipeError, match=rf"pip install 'seqfit\[{tool}\]'"):
        check_tool(tool)


def test_a_folder_of_the_packages_name_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_installed").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(TOOLS, "tensorboard", ("not_installed", "", ""))
    with pytest.raises(RecipeError, match="not installed"):
        check_tool("tensorboard")


def test_a_tool_that_is_not_known_gets_a_suggestion() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'wandb'"):
        check_tool("wanbd")
