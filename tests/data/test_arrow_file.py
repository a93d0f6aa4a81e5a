from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa

from seqfit.data.tokenized import HashedFile, to_lists


def test_a_file_knows_the_hash_of_what_was_written(tmp_path: Path) -> None:
    schema = pa.schema({"ids": pa.list_(pa.int32())})
    with HashedFile(tmp_path / "a") as file, pa.ipc.new_file(file, schema) as writer:
        for length in (3, 5000):
            writer.write_batch(pa.RecordBatch.from_pydict({"ids": [list(range(length))]}, schema=schema))
    content = (tmp_path / "a").read_bytes()
    assert len(content) > 20_000
    assert file.sha256 == hashlib.sha256(content).hexdigest()


def test_lists_are_those_that_arrow_makes() -> None:
    for sequences in ([[1, 2], [], [7]], [[]], [[], []]):
        assert to_lists(sequences).equals(pa.array(sequences, pa.list_(pa.int32())))
