from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqfit.data import splits as splits_module
from seqfit.data.file_tables import DataTable
from seqfit.data.splits import GroupRanks, SourceSplits, choose_rows, read_ids
from seqfit.errors import DataError
from seqfit.recipe.schema import SPLITS, SourceRecipe


def _write(path: Path, count: int, first: int = 0, per_group: int = 4) -> None:
    rows = [
        {"id": str(n), "context": f"c{n // per_group}", "label": "rare" if n % 10 == 0 else "common"}
        for n in range(first, first + count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _splits(path: Path, seed: int = 0, **fields: Any) -> SourceSplits:
    return SourceSplits(SourceRecipe(path=str(path), **fields), seed, lambda row: str(row["context"]))


def _ids(splits: SourceSplits, split: str) -> set[str]:
    return {row["id"] for _, row in splits.select(split).rows()}


def _groups(splits: SourceSplits, split: str) -> set[str]:
    return {row["context"] for _, row in splits.select(split).rows()}


def test_one_file_gives_three_splits_and_no_group_is_in_two(tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", 400)
    splits = _splits(tmp_path / "mine.jsonl")
    groups = {split: _groups(splits, split) for split in SPLITS}
    assert {split: len(found) for split, found in groups.items()} == {"train": 80, "validation": 10, "test": 10}
    assert len(set.union(*groups.values())) == 100
    assert splits.select("validation").events == (
        "validation: split from mine.jsonl (10.0% of its groups; rows with the same context or source are one group)",
    )
    assert splits.select("train").events == (
        "train: split from mine.jsonl (80.0% of its groups; rows with the same context or source are one group)",
    )


def test_the_split_depends_on_seed_and_group_alone(tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", 400)
    path = tmp_path / "mine.jsonl"
    assert _ids(_splits(path), "test") == _ids(_splits(path), "test")
    assert _ids(_splits(path), "test") != _ids(_splits(path, seed=1), "test")
    reordered = tmp_path / "other.jsonl"
    reordered.write_text("".join(reversed(path.read_text("utf-8").splitlines(keepends=True))), "utf-8")
    assert _ids(_splits(path), "test") == _ids(_splits(reordered), "test")


def test_another_share_for_validation_leaves_test_as_it_was(tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", 400)
    path = tmp_path / "mine.jsonl"
    more = _splits(path, holdout={"validation": 0.3, "test": 0.1})
    assert _ids(more, "test") == _ids(_splits(path), "test")
    assert _ids(more, "validation") > _ids(_splits(path), "validation")


def test_missing_splits_are_split_from_train(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", 400)
    _write(tmp_path / "test.jsonl", 40, first=1000)
    splits = _splits(tmp_path)
    assert splits.names == SPLITS
    assert len(_ids(splits, "train")) == 360
    assert len(_ids(splits, "validation")) == 40
    assert splits.select("validation").events == (
        "validation: split from train (10.0% of its groups; rows with the same context or source are one group)",
    )
    assert _ids(splits, "test") == {str(n) for n in range(1000, 1040)}
    assert splits.select("test").kept is None
    assert splits.select("train").events == ()


def test_without_train_it_is_split_from_validation(tmp_path: Path) -> None:
    _write(tmp_path / "dev.jsonl", 400)
    _write(tmp_path / "test.jsonl", 40, first=1000)
    splits = _splits(tmp_path)
    assert (len(_ids(splits, "train")), len(_ids(splits, "validation")), len(_ids(splits, "test"))) == (360, 40, 40)
    assert splits.select("train").events == (
        "train: split from validation (90.0% of its groups; rows with the same context or source are one group)",
    )
    assert splits.select("validation").events == (
        "validation: keeps 10.0% of its groups; the others go to other splits",
    )


def test_with_only_test_all_are_split_from_it(tmp_path: Path) -> None:
    _write(tmp_path / "test.jsonl", 400)
    splits = _splits(tmp_path)
    assert (len(_ids(splits, "train")), len(_ids(splits, "validation")), len(_ids(splits, "test"))) == (320, 40, 40)


def test_a_holdout_of_zero_is_no_split(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", 40)
    splits = _splits(tmp_path, holdout={"validation": 0.1, "test": 0})
    assert splits.names == ("train", "validation")
    assert len(_ids(splits, "train")) == 36
    assert _splits(tmp_path, holdout={}).names == ("train",)
    assert _splits(tmp_path, holdout={}).select("train").kept is None


def test_a_validation_file_with_a_share_of_zero_stays_whole(tmp_path: Path) -> None:
    _write(tmp_path / "dev.jsonl", 40)
    splits = _splits(tmp_path, holdout={})
    assert splits.names == ("validation",)
    assert splits.select("validation").kept is None


def test_a_group_column_wins_over_the_tasks_groups(tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", 100)
    by_id = _splits(tmp_path / "mine.jsonl", group="id")
    assert len(_ids(by_id, "test")) == 10
    assert len(_groups(by_id, "test")) > 3


def test_too_few_groups_of_a_named_column_are_an_error(tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", 4)
    lines = [
        json.dumps({**json.loads(line), "book": "one"}) for line in (tmp_path / "mine.jsonl").read_text().splitlines()
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"mine\.jsonl: no rows are left for train.*data\.holdout\.test=0"):
        _splits(tmp_path / "mine.jsonl", group="book").select("train")


def test_if_all_rows_share_a_context_the_data_is_split_by_row_and_that_is_reported(tmp_path: Path) -> None:
    rows = [{"id": str(n), "context": "The only text.", "question": f"What is {n}?"} for n in range(40)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = SourceRecipe(path=str(tmp_path / "mine.jsonl"))
    splits = SourceSplits(source, 0, lambda row: row["context"])
    selections = {split: splits.select(split) for split in ("train", "validation", "test")}
    assert sum(int(one.kept.sum()) for one in selections.values() if one.kept is not None) == 40
    assert all(one.kept is not None and one.kept.any() for one in selections.values())
    assert any("all rows share 1 context, so the data is split by row" in event for event in selections["train"].events)


@pytest.mark.parametrize(
    ("name", "text"), [("ids.json", '["3", "5"]'), ("ids.json", '{"3": "yes", "5": "no"}'), ("ids.txt", "3\n\n5\n")]
)
def test_ids_come_as_list_object_or_lines(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert read_ids(tmp_path / name) == {"3", "5"}


def test_a_wrong_list_of_ids_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text('["3",\n', "utf-8")
    with pytest.raises(DataError, match=r"ids\.json, line 2"):
        read_ids(tmp_path / "ids.json")


def test_listed_ids_are_a_split_and_the_rest_is_split(tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", 400)
    (tmp_path / "ids.json").write_text(json.dumps([str(n) for n in range(40)] + ["gone"]), "utf-8")
    splits = _splits(tmp_path, ids={"test": "ids.json"})
    assert _ids(splits, "test") == {str(n) for n in range(40)}
    assert len(_ids(splits, "validation")) == 36
    assert len(_ids(splits, "train")) == 324
    assert splits.select("test").events == (
        "test: 40 rows listed in ids.json",
        "test: 1 ids of ids.json are not in the data",
    )


def test_a_group_that_a_list_divides_is_reported(tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", 400)
    (tmp_path / "ids.txt").write_text("0\n1\n", "utf-8")
    events = _splits(tmp_path, ids={"test": "ids.txt"}).select("test").events
    assert "test: 1 of its groups also have rows that ids.txt does not list" in events


def test_rows_in_no_list_are_left_out_where_train_has_a_list(tmp_path: Path) -> None:
    _write(tmp_path / "mine.jsonl", 400)
    for name, numbers in (("a.txt", range(200)), ("b.txt", range(200, 300))):
        (tmp_path / name).write_text("\n".join(map(str, numbers)), "utf-8")
    splits = _splits(tmp_path, ids={"train": "a.txt", "validation": "b.txt"}, holdout={})
    assert len(_ids(splits, "train")) == 200
    assert splits.select("train").events[-1] == "train: 100 rows are left out, because no list has their ids"


def test_lists_of_ids_are_not_used_with_a_hub_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": str(n), "context": f"c{n}"} for n in range(20)]
    monkeypatch.setattr(
        splits_module,
        "find_tables",
        lambda *_: {"train": DataTable("a/b, train", (), lambda: iter(rows), lambda: ("converted",))},
    )
    source = SourceRecipe(hub="a/b", ids={"test": "ids.json"})
    selection = SourceSplits(source, 0, lambda row: str(row["context"])).select("test")
    assert selection.count == 2
    assert selection.events[0] == "converted"
    assert selection.events[1].startswith("test: data.ids.test is not used")


def test_a_split_with_a_file_and_a_list_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", 40)
    _write(tmp_path / "test.jsonl", 40)
    (tmp_path / "ids.txt").write_text("0\n", "utf-8")
    with pytest.raises(DataError, match=r"data\.ids\.test is ids\.txt, and test\.jsonl is a test file"):
        _splits(tmp_path, ids={"test": "ids.txt"})


def test_a_limit_takes_rows_by_seed_and_not_the_first(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", 400)
    few = _splits(tmp_path, holdout={}, limit={"train": 50})
    assert len(_ids(few, "train")) == 50
    assert max(map(int, _ids(few, "train"))) > 300
    assert _ids(few, "train") == _ids(_splits(tmp_path, holdout={}, limit={"train": 50}), "train")
    assert _ids(few, "train") != _ids(_splits(tmp_path, seed=1, holdout={}, limit={"train": 50}), "train")
    assert few.select("train").events == ("train: 50 of 400 rows chosen by seed (data.limit.train=50)",)
    assert len(_ids(_splits(tmp_path, holdout={}, limit={"train": 500}), "train")) == 400


def test_a_limit_holds_for_a_held_out_split(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", 400)
    limited, whole = _splits(tmp_path, limit={"validation": 7}), _splits(tmp_path)
    assert len(_ids(limited, "validation")) == 7
    assert _ids(limited, "validation") < _ids(whole, "validation")
    assert _ids(limited, "train") == _ids(whole, "train")


def test_a_balanced_limit_takes_equally_many_of_each_value(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", 400)
    splits = _splits(tmp_path, holdout={}, limit={"train": 60}, balance="label")
    labels = [row["label"] for _, row in splits.select("train").rows()]
    assert (labels.count("rare"), labels.count("common")) == (30, 30)


def test_a_value_with_too_few_rows_is_reported(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", 400)
    splits = _splits(tmp_path, holdout={}, limit={"train": 100}, balance="label")
    assert splits.select("train").events[0] == "train: the value 'rare' has only 40 rows of the 50 per value"


def test_balancing_over_too_many_values_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", 400)
    with pytest.raises(DataError, match="which has 400 values in train"):
        _splits(tmp_path, holdout={}, limit={"train": 10}, balance="id").select("train")


def test_real_squad_contexts_stay_together(shared_data: Path) -> None:
    source = {"splits": {"validation": "dev-v2.0-es_small.json"}}
    splits = _splits(shared_data / "squad_es", **source)
    groups = [_groups(splits, split) for split in SPLITS]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert sum(len(_ids(splits, split)) for split in SPLITS) == 7134


def test_the_real_list_of_test_ids_is_used(shared_data: Path) -> None:
    source = SourceRecipe(path=str(shared_data / "pubmedqa"), ids={"test": "test_ground_truth.json"})
    splits = SourceSplits(source, 0, lambda row: " ".join(row["CONTEXTS"]))
    assert [splits.select(split).count for split in SPLITS] == [450, 50, 500]


def test_the_real_news_are_balanced(shared_data: Path) -> None:
    source = SourceRecipe(
        path=str(shared_data / "ag_news"),
        columns=["label", "title", "description"],
        limit={"train": 1000, "validation": 100, "test": 100},
        balance="label",
    )
    splits = SourceSplits(source, 0, lambda row: str(row["description"]))
    for split, each in (("train", 250), ("validation", 25), ("test", 25)):
        labels = [row["label"] for _, row in splits.select(split).rows()]
        assert {label: labels.count(label) for label in "1234"} == dict.fromkeys("1234", each)


@pytest.mark.parametrize("count", [1, 3, 5000])
def test_groups_are_ranked_as_if_they_were_sorted(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "_CHOSEN_FROM", 700)
    generator = np.random.default_rng(count)
    hashes = generator.choice(generator.integers(0, 2**64, count, dtype=np.uint64), 2 * count)
    ranked = np.unique(hashes)
    ranks = GroupRanks(hashes)
    assert len(ranks) == len(ranked)
    for start, stop in ((0, 1), (0, len(ranked)), (len(ranked) // 3, len(ranked) // 2), (len(ranked) - 1, len(ranked))):
        assert np.array_equal(ranks.contain(hashes, start, stop), np.isin(hashes, ranked[start:stop]))
    rows = generator.random(2 * count) < 0.7
    numbers = np.flatnonzero(rows)
    best = numbers[np.argsort(splits_module._scramble(numbers, 3))][: count // 2]
    assert np.array_equal(np.flatnonzero(choose_rows(rows, count // 2, 3)), np.sort(best))


def test_a_file_that_is_all_train_is_not_indexed(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"context": "a"}\n' * 3, "utf-8")
    found = SourceSplits(SourceRecipe(path=str(tmp_path / "rows.jsonl"), holdout={}), 0, _no_groups)
    selection = found.select("train")
    assert selection.kept is None
    assert len(list(selection.rows())) == 3


def _no_groups(row: Any) -> str:
    raise AssertionError("nothing is to be split")
