from __future__ import annotations

import json

import pytest

from seqfit.cli.main import main


def test_schema_prints_json_that_an_editor_can_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"]["extends"]["type"] == "string"
    assert (
        schema["$defs"]["TrainRecipe"]["properties"]["learning_rate"]["description"]
        == "Peak learning rate, such as 1e-4; default: 3e-4."
    )
