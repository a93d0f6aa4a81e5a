"""Tests run what users run: who needs prediction or telemetry off asks for it by name, and tests/cli never does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
OPT_OUTS = {"no_prediction", "no_telemetry", "prediction_off", "telemetry_off", "NO_PREDICTION", "switched_off"}
AS_USERS_RUN_IT = [TESTS / "cli", TESTS / "journeys", TESTS / "laptops"]
VARIABLE = "SEQFIT_" + "PREDICTION"  # in two parts: this file may not be found by it
MAY_NAME_IT = {"switched_off.py", "comparison/test_trial.py"}  # the latter: what a comparison sets for its trials


def autouse_fixtures(text: str) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and any(
            keyword.arg == "autouse" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            for decorator in node.decorator_list
            if isinstance(decorator, ast.Call)
            for keyword in decorator.keywords
        ):
            yield node


def words_of(tree: ast.AST) -> set[str]:
    """Names, attributes, parts of imports and whole strings."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias | ast.ImportFrom):
            found |= set(str(node.name if isinstance(node, ast.alias) else node.module).split("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_no_fixture_switches_anything_off_unasked() -> None:
    switching = {"Recorder", "telemetry_hz", VARIABLE, *OPT_OUTS}
    found = {
        f"{path.relative_to(TESTS)}: {fixture.name}"
        for path in TESTS.rglob("conftest.py")
        for fixture in autouse_fixtures(path.read_text("utf-8"))
        if words_of(fixture) & switching
    }
    assert found == set()


def test_such_a_fixture_would_be_found() -> None:
    text = "@pytest.fixture(autouse=True)\ndef quiet(monkeypatch):\n    monkeypatch.setenv('X', 'off')\n"
    (fixture,) = autouse_fixtures(text)
    assert {"X", "setenv"} <= words_of(fixture)
    assert not list(autouse_fixtures(text.replace("True", "False")))


@pytest.mark.parametrize("folder", AS_USERS_RUN_IT, ids=lambda path: path.name)
def test_commands_are_tested_as_users_run_them(folder: Path) -> None:
    files = sorted(folder.rglob("*.py"))
    assert files
    switched = {str(path.relative_to(TESTS)): words_of(ast.parse(path.read_text("utf-8"))) & OPT_OUTS for path in files}
    assert {name: words for name, words in switched.items() if words} == {}


def test_the_variable_has_one_place() -> None:
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if re.search(rf"{VARIABLE}\b", path.read_text("utf-8"))
    }
    assert found == MAY_NAME_IT
