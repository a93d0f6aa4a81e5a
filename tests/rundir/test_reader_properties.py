"""Any content of a run directory is read or is a RunError; a truncated last line is never an error."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from seqfit.errors import RunError, SeqfitError
from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile, Run

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
records = st.lists(st.dictionaries(st.sampled_from(["step", "loss", "x"]), values, max_size=3), max_size=8)


@given(records, st.integers(0, 400))
@settings(deadline=None, max_examples=100)
def test_a_file_that_is_truncated_anywhere_has_its_complete_lines(written: list[dict[str, object]], lost: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / files.STEPS
        content = b"".join(json.dumps(record).encode() + b"\n" for record in written)
        path.write_bytes(content[: len(content) - min(lost, len(content))])
        whole = path.read_bytes().count(b"\n")
        read = RecordFile(path).read()
        assert read[:whole] == written[:whole]
        RecordFile(path).truncate()
        assert RecordFile(path).read() == written[:whole]


@given(
    st.binary(max_size=300), st.sampled_from([files.MANIFEST, files.STEPS, files.EVENTS, files.SENSORS, files.RECIPE])
)
@settings(deadline=None, max_examples=150)
def test_any_bytes_are_read_or_are_an_error_of_ours(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / files.MANIFEST).write_text("{}")
        (Path(folder) / name).write_bytes(content)
        for read in (lambda run: run.manifest, Run.steps, Run.events, Run.sensors, lambda run: run.recipe):
            try:
                read(Run(folder))
            except RunError:
                pass
            except SeqfitError:
                assert name == files.RECIPE or not (Path(folder) / files.RECIPE).is_file()
