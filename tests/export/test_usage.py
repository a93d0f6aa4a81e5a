"""The program in a model card runs as it stands there and prints what the checkpoint answers."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.evaluation.evaluate import predict
from seqfit.export import EXPORT_FORMATS, export_run


@pytest.mark.parametrize("name", ["t5", "nllb"])
@pytest.mark.parametrize("form", ["hf", "ct2", pytest.param("onnx", marks=pytest.mark.journey)])
def test_the_program_of_the_card_prints_the_answer(
    form: str, name: str, checkpoint_of: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    for package in EXPORT_FORMATS[form].packages:
        pytest.importorskip(package, reason=f"needs pip install 'seqfit[{form}]'")
    export_run(checkpoint_of(name), form, out=tmp_path / "out", data=rows, rows=2)
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    source = json.loads(rows.read_text("utf-8").splitlines()[0])["en"]
    assert "text = '{en}'" in program
    program = program.replace('folder = "."', f"folder = {str(tmp_path / 'out')!r}").replace("'{en}'", repr(source))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "card", "exec"), {})
    assert printed.getvalue().strip() == predict(checkpoint_of(name), [source])[0].strip()
