"""Shared fixtures: where real data lies, and one thread per process so that parallel workers do not collapse."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _shared(name: str, variable: str) -> Path:
    folder = Path(os.environ.get(variable, Path(__file__).resolve().parents[2] / "shared" / name))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set {variable} to a folder that has it")
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    return _shared("data", "SEQFIT_DATA")


@pytest.fixture(scope="session")
def shared_tokenizers() -> Path:
    return _shared("tokenizers", "SEQFIT_TOKENIZERS")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenized data goes to a cache of the session's, never to the user's."""
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
