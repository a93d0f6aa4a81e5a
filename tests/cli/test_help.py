"""`--help` answers at once and for every command."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from seqfit.cli.main import _SHARED, COMMANDS, TRUST, main

MOST_MODULES = 60  # 36 on Python 3.11; typer alone would bring hundreds
PROGRAM = """
import json, sys
before = set(sys.modules)
from seqfit.cli.main import main
code = main(["--help"])
print(json.dumps([code, sorted(set(sys.modules) - before)]))
"""


def test_help_imports_little_and_nothing_that_was_installed() -> None:
    """So it answers at once; benchmarks/startup has the time."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"seqfit"}
    assert len(modules) <= MOST_MODULES


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text and help_line in text for name, help_line in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: seqfit {name} ")
    assert "\n\n  " in text  # a sentence on what it does


def read_parser(name: str) -> Any:
    module = importlib.import_module(f"seqfit.cli.{_SHARED.get(name, name)}")
    app = typer.Typer(add_completion=False)
    app.command()(getattr(module, name if name in _SHARED else "command"))
    return typer.main.get_command(app)


def list_options(name: str) -> dict[str, Any]:
    """By their longest name, without --help."""
    parameters = read_parser(name).params
    return {max(one.opts, key=len): one for one in parameters if one.param_type_name == "option"}


OPTIONS = [(name, option) for name in COMMANDS for option in list_options(name)]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_an_option_explains_what_it_does_its_default_and_an_example(name: str, option: str) -> None:
    """A flag is its own example, and off by default."""
    found = list_options(name)[option]
    assert found.help
    if found.is_flag:
        assert found.default is False
        return
    assert found.metavar, "a type is no name for a value"
    assert found.required or re.search(r"\bdefault\b", found.help, re.IGNORECASE), found.help
    assert re.search(r"such as|for example|Example: ", found.help), found.help


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_a_help_text_use_options_that_exist(name: str) -> None:
    parser = read_parser(name)
    text = " ".join((parser.help or "").split())
    examples = re.findall(rf"seqfit {name} [^;.]*", text.partition("Example")[2])
    assert examples or not parser.params
    known = {option for one in parser.params for option in (*one.opts, *one.secondary_opts)} | {TRUST}
    for example in examples:
        words = shlex.split(example) if example.count("'") % 2 == 0 else example.split()
        assert {word for word in words[2:] if re.match(r"--?[a-z]", word)} <= known or name == "convert", example
