from __future__ import annotations

import pytest

from seqfit.cli.main import main
from seqfit.recipe.library import list_library


def test_ls_names_each_recipe_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[entry.name, entry.description] for entry in list_library()]
