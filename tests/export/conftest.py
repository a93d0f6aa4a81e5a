from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.export.exported import write_checkpoint, write_classifier, write_rows


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a model type, with '-untied' where its head is a matrix of its own -> checkpoint folder."""

    @cache
    def build(name: str) -> Path:
        folder = tmp_path_factory.mktemp("exports")
        if name == "classifier":
            return write_classifier(folder)
        return write_checkpoint(folder, name.removesuffix("-untied"), untied=name.endswith("-untied"))

    return build


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows"))
