from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path

import pytest

from seqfit.training.state import collect_versions, find_commit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def git(*words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)


def test_versions_are_those_that_are_installed() -> None:
    versions = collect_versions()
    assert versions["python"] == platform.python_version()
    assert versions["torch"] == importlib.metadata.version("torch")


def test_a_package_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqfit.training.state._PACKAGES", ("no-such-package",))
    assert list(collect_versions()) == ["python"]


@pytest.mark.usefixtures("folder")
def test_outside_a_repository_there_is_no_commit() -> None:
    assert find_commit() is None


def test_without_git_there_is_no_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert find_commit() is None


def test_the_commit_says_whether_files_differ_from_it(folder: Path) -> None:
    git("init")
    (folder / "a.txt").write_text("1")
    git("add", "a.txt")
    git("commit", "-m", "first")
    clean = find_commit()
    assert clean is not None
    assert len(clean) == 40
    (folder / "untracked.txt").write_text("2")
    assert find_commit() == clean
    (folder / "a.txt").write_text("2")
    assert find_commit() == f"{clean}+changes"
