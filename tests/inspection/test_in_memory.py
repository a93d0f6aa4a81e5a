from __future__ import annotations

import ast
import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import seqfit
from seqfit.data.formats import read_rows
from seqfit.errors import DataError
from seqfit.inspection.in_memory import is_in_memory, store_data

ROWS = [{"text": "a", "label": 1}, {"text": "b", "label": None}]


def stored_rows(given: object) -> list[dict[str, Any]]:
    return list(read_rows(store_data(given).path))


def make_dataset(rows: list[dict[str, Any]], **features: Any) -> Any:
    import datasets

    return datasets.Dataset.from_list(rows, features=datasets.Features(features) if features else None)


FORMS = {
    "rows": ROWS,
    "DataFrame": pd.DataFrame(ROWS),
    "polars": pl.DataFrame(ROWS),
    "lazy": pl.LazyFrame(ROWS),
    "Table": pa.Table.from_pylist(ROWS),
    "RecordBatch": pa.RecordBatch.from_pylist(ROWS),
    "Dataset": make_dataset(ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_come_back_whatever_held_them(form: str) -> None:
    assert is_in_memory(FORMS[form])
    assert stored_rows(FORMS[form]) == ROWS


def test_the_same_content_is_one_file_and_other_content_another() -> None:
    first = store_data(pd.DataFrame(ROWS))
    assert first.label == "DataFrame"
    assert store_data(pd.DataFrame(ROWS, index=[7, 9])).path == first.path
    assert store_data([*ROWS, ROWS[0]]).path != first.path


def test_an_interrupted_writer_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    place = store_data(ROWS).path.parents[1]
    before = sorted(place.iterdir())
    monkeypatch.setattr("pyarrow.parquet.write_table", lambda *_: (_ for _ in ()).throw(OSError(28, "no space left")))
    with pytest.raises(DataError, match=r"no space left\..*SEQFIT_CACHE"):
        store_data([{"another": 1}])
    assert sorted(place.iterdir()) == before


COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "missing": ([None, np.nan, "x", ""], [None, None, "x", ""]),
    "whole numbers with a gap": ([1, None, 3], [1, None, 3]),
    "fractions with a gap": ([1.5, None, 3], [1.5, None, 3.0]),
    "fractions": ([1.0, 2.0], [1.0, 2.0]),
    "nullable": (pd.array([1, None], dtype="Int64"), [1, None]),
    "truth": (pd.array([True, None], dtype="boolean"), [True, None]),
    "category": (pd.Categorical(["u", "v", None]), ["u", "v", None]),
    "days": (pd.to_datetime(["2026-01-31", None]), ["2026-01-31", None]),
    "times": (
        pd.to_datetime(["2026-01-31 17:05", "2026-02-01 00:00"]),
        ["2026-01-31 17:05:00", "2026-02-01 00:00:00"],
    ),
    "time zones": (pd.to_datetime(["2026-01-31"]).tz_localize("UTC"), ["2026-01-31 00:00:00+00:00"]),
    "dates": ([date(2026, 1, 31), None], ["2026-01-31", None]),
    "spans": (pd.to_timedelta(["90s"]), ["0:01:30"]),
    "lists": ([[1, 2], [], None], [[1, 2], [], None]),
    "arrays": ([np.array(["a", "b"]), None], [["a", "b"], None]),
    "records": ([{"k": 1}, {"k": 2, "z": "q"}], [{"k": 1, "z": None}, {"k": 2, "z": "q"}]),
    "mixed": (pd.Series([1, "x", True, 2.5, None, pd.NaT], dtype=object), ["1", "x", "true", "2.5", None, None]),
    "large": ([2**70, 1], [str(2**70), "1"]),
    "decimals": ([Decimal("1.20"), None], ["1.20", None]),
    "nothing": ([None, None], [None, None]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_pandas_column_comes_back(kind: str) -> None:
    values, expected = COLUMNS[kind]
    rows = stored_rows(pd.DataFrame({"column": values, "number": range(len(expected))}))
    assert [row["column"] for row in rows] == expected
    assert [type(row["column"]) for row in rows] == [type(value) for value in expected]


def test_a_gap_in_one_split_does_not_rename_the_labels_of_the_other() -> None:
    whole = pd.DataFrame({"text": ["a", "b", "c"], "label": [1, None, 0]})
    place = store_data({"train": whole.iloc[[0, 2]], "test": whole.iloc[[1, 2]]}).path
    assert [row["label"] for row in read_rows(place / "train.parquet")] == [1, 0]
    assert [row["label"] for row in read_rows(place / "test.parquet")] == [None, 0]


def test_an_index_is_a_column_only_where_it_has_a_name() -> None:
    frame = pd.DataFrame({"text": ["a", "b"]}, index=["x", "y"])
    assert stored_rows(frame) == [{"text": "a"}, {"text": "b"}]
    assert stored_rows(frame.rename_axis("key"))[0] == {"key": "x", "text": "a"}
    assert stored_rows(frame.rename_axis("text"))[0] == {"text": "a"}
    several = pd.DataFrame({"n": [1, 2]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["key", None]))
    assert stored_rows(several)[1] == {"key": "b", "n": 2}


def test_columns_without_a_name_of_their_own_get_one() -> None:
    frame = pd.DataFrame([["a", "b", "c", "d"]], columns=["text", "text", 0, ""])
    assert stored_rows(frame) == [{"text": "a", "text_2": "b", "0": "c", "column4": "d"}]
    frame.columns = pd.MultiIndex.from_tuples([("x", "a"), ("x", "b"), ("y", ""), ("z", "c")])
    assert list(stored_rows(frame)[0]) == ["x_a", "x_b", "y", "z_c"]


def test_rows_may_lack_columns_and_nan_is_missing() -> None:
    assert stored_rows([{"a": "x"}, {"b": float("nan"), "a": float("nan")}]) == [
        {"a": "x", "b": None},
        {"a": None, "b": None},
    ]
    assert stored_rows(pl.DataFrame({"a": [1.0, float("nan")]})) == [{"a": 1.0}, {"a": None}]


def test_class_labels_are_written_out_and_a_selection_is_what_was_selected() -> None:
    import datasets

    rows = [{"text": "a", "label": 0}, {"text": "b", "label": 1}, {"text": "c", "label": -1}]
    dataset = make_dataset(rows, text=datasets.Value("string"), label=datasets.ClassLabel(names=["no", "yes"]))
    assert stored_rows(dataset) == [
        {"text": "a", "label": "no"},
        {"text": "b", "label": "yes"},
        {"text": "c", "label": None},
    ]
    assert stored_rows(dataset.select([1])) == [{"text": "b", "label": "yes"}]


def test_splits_become_files_by_their_names() -> None:
    import datasets

    parts = {"train": make_dataset(ROWS), "dev": make_dataset(ROWS[:1])}
    assert is_in_memory(datasets.DatasetDict(parts))
    place = store_data(datasets.DatasetDict(parts)).path
    assert sorted(file.name for file in place.iterdir()) == ["train.parquet", "validation.parquet"]


@pytest.mark.parametrize("given", [{"model": {}, "data": {}}, {"train": "x.csv"}, {}, "my.csv", Path("x"), None])
def test_recipes_and_places_are_not_data(given: object) -> None:
    assert not is_in_memory(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"a": [1]}, {"a": "x"}], r"The column 'a' mixes .* \(list, str\).*jsonl"),
        ([{"a": {"k": 1}}, {"a": {"k": "x"}}], r"The column 'a' mixes"),
        ([], "0 rows"),
        (pd.DataFrame({"a": []}), "0 rows"),
        (["a", "b"], "data is a builtins.list"),
        (pd.Series(["a"]), "data is a pandas.*DataFrame"),
        ((row for row in ROWS), r"data is a builtins.generator.*list\(\.\.\.\)"),
    ],
)
def test_what_cannot_be_a_table_is_refused(given: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        store_data(given)


def test_no_module_imports_pandas_or_polars() -> None:
    """pyarrow imports pandas where it is installed; nothing of ours may need it."""
    for file in Path(seqfit.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"pandas", "polars"}, file


def test_rows_are_stored_where_pandas_is_not_installed() -> None:
    program = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "polars"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
from seqfit.inspection.in_memory import store_data
from seqfit.data.formats import read_rows
import json
print(json.dumps(list(read_rows(store_data({ROWS!r}).path))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ROWS
