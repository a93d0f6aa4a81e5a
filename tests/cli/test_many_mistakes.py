"""Ninety things that users get wrong: exit code 2, a message of three parts, no traceback, nothing half-written."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.cli.main import main

Spoil = Callable[[Path], object]
NOTHING: Spoil = lambda _tmp: None  # noqa: E731


@pytest.fixture
def place(tmp_path: Path, tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe that would work, rows, and a copy of the model to spoil."""
    rows = [{"question": f"w3 w{n}", "answer": f"w{n}"} for n in range(4, 40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "model").mkdir()
    for path in tiny_model("t5").iterdir():
        (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
    recipe = {
        "model": {"path": "model"},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": "rows.jsonl"},
        "train": {"steps": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(text: str | bytes, name: str = "rows.jsonl") -> Spoil:
    return lambda tmp: (tmp / name).write_bytes(text.encode() if isinstance(text, str) else text)


def recipe(text: str | bytes) -> Spoil:
    return rows(text, "recipe.yaml")


def model_file(name: str, text: str | bytes) -> Spoil:
    return rows(text, f"model/{name}")


def without(name: str) -> Spoil:
    return lambda tmp: [path.unlink() for path in (tmp / "model").glob(name)]


def truncate(name: str) -> Spoil:
    def spoil(tmp: Path) -> None:
        path = next((tmp / "model").glob(name))
        path.write_bytes(path.read_bytes()[:-100])

    return spoil


def run_with(**texts: str) -> Spoil:
    def spoil(tmp: Path) -> None:
        (tmp / "run0").mkdir()
        for name, text in texts.items():
            (tmp / "run0" / name.replace("__", ".")).write_text(text)

    return spoil


def sqlite_without_tables(tmp: Path) -> None:
    connection = sqlite3.connect(tmp / "trace.sqlite")
    connection.execute("create table other (x)")
    connection.commit()
    connection.close()


TRAIN = ["train", "recipe.yaml", "--out", "out"]
OVERRIDES = [  # each alone makes the good recipe a bad one
    "train.steps=0",
    "train.steps=-1",
    "train.steps=many",
    "train.steps=1.5",
    "train.epochs=0",
    "train.epochs=nan",
    "train.batch_examples=0",
    "train.learning_rate=0",
    "train.learning_rate=-1",
    "train.learning_rate=fast",
    "train.clip_norm=0",
    "train.label_smoothing=2",
    "train.z_loss=-1",
    "train.log_every=0",
    "train.optimizer.name=sgdd",
    "train.optimizer.beta1=2",
    "train.schedule.name=linnear",
    "train.schedule.warmup_steps=-3",
    "train.snapshot.every_steps=0",
    "train.snapshot.keep=0",
    "train.when_not_finite=ignore",
    "train.nothing=1",
    "eval.every_steps=0",
    "eval.beams=0",
    "eval.metrics=[blue]",
    "eval.best=exactly",
    "eval.limit=0",
    "task.name=qaa",
    "task.source={nothing}",
    "task.source={question",
    "task.max_source_tokens=0",
    "task.max_target_tokens=-5",
    "data.path=nowhere.jsonl",
    "data.format=xlsx",
    "data.holdout={train: 2.0}",
    "data.weight=-1",
    "data.limit=0",
    "model.path=nowhere",
    "model.kind=decoder",
    "model.weights=none",
    "model.lora={rank: 0}",
    "model.freeze=[head]",
    "model.trim_vocabulary=everything",
    "model.dropout=1.5",
    "strategy=fastest",
    "strategy.precision=fp8",
    "strategy.precision=fp16",
    "strategy.optimizer=8bits",
    "strategy.optimizer=adafactor",
    "strategy.micro_batch_tokens=0",
    "strategy.recompute=all",
    "strategy.threads=0",
    "strategy.device=tpu",
    "strategy.lora_rank=4",
    "strategy.optimizer_in_backward=true",
    "allow=[fp7]",
    "seed=one",
    "unknown.field=1",
    "no-equals-sign",
    "=5",
]
MISTAKES: dict[str, tuple[Spoil, list[str]]] = {
    **{override: (NOTHING, [*TRAIN, override]) for override in OVERRIDES},
    "a recipe that is no YAML": (recipe("model: [1"), TRAIN),
    "a recipe that is a list": (recipe("[1, 2]"), TRAIN),
    "an empty recipe": (recipe(""), TRAIN),
    "a recipe with a tab": (recipe("model:\n\tpath: x\n"), TRAIN),
    "a recipe in another encoding": (recipe(b"\xff\xfe\x00m"), TRAIN),
    "a recipe that builds objects": (recipe("model: !!python/object/apply:os.system ['touch hacked']\n"), TRAIN),
    "a recipe that extends itself": (recipe("extends: recipe.yaml\n"), TRAIN),
    "a recipe that extends nothing": (recipe("extends: other.yaml\n"), TRAIN),
    "a recipe that is not there": (NOTHING, ["train", "nowhere.yaml"]),
    "no recipe": (NOTHING, ["train"]),
    "rows that are no JSON": (rows("{not json}\n"), TRAIN),
    "rows that are lists": (rows("[1]\n[2]\n"), TRAIN),
    "rows without the column": (rows('{"q": "a", "answer": "b"}\n' * 9), TRAIN),
    "no rows": (rows(""), TRAIN),
    "rows in another encoding": (rows(b'{"question": "\xff", "answer": "b"}\n' * 9), TRAIN),
    "half a surrogate": (rows('{"question": "\\ud800", "answer": "b"}\n' * 9), TRAIN),
    "one row is truncated": (rows('{"question": "a", "answer": "b"}\n' * 9 + '{"question": "a'), TRAIN),
    "a folder without data": (lambda tmp: (tmp / "folder").mkdir(), [*TRAIN, "data.path=folder"]),
    "a gzip that is none": (rows("plain", "rows.jsonl.gz"), [*TRAIN, "data.path=rows.jsonl.gz"]),
    "a parquet that is none": (rows("plain", "rows.parquet"), [*TRAIN, "data.path=rows.parquet"]),
    "a CSV of one line": (rows("question,answer\n", "rows.csv"), [*TRAIN, "data.path=rows.csv"]),
    "a CSV with a row too long": (rows("question,answer\n1,2,3\n" * 9, "rows.csv"), [*TRAIN, "data.path=rows.csv"]),
    "a model without weights": (without("*.safetensors"), TRAIN),
    "a model without config": (without("config.json"), TRAIN),
    "a model without tokenizer": (without("*token*"), TRAIN),
    "weights that are truncated": (truncate("*.safetensors"), TRAIN),
    "a config that is no JSON": (model_file("config.json", "{"), TRAIN),
    "a config of no model": (model_file("config.json", "{}"), TRAIN),
    "a tokenizer that is no JSON": (model_file("tokenizer.json", "{"), TRAIN),
    "weights of another size": (
        lambda tmp: (tmp / "model/config.json").write_text(
            (tmp / "model/config.json").read_text().replace('"d_ff": ', '"d_ff": 1')
        ),
        TRAIN,
    ),
    "an unknown command": (NOTHING, ["trian", "recipe.yaml"]),
    "an unknown option": (NOTHING, ["train", "recipe.yaml", "--oot", "x"]),
    "a limit that is no size": (NOTHING, [*TRAIN, "--memory-limit", "much"]),
    "a limit that is too small": (NOTHING, [*TRAIN, "--memory-limit", "10MiB"]),
    "nothing to resume": (NOTHING, ["train", "recipe.yaml", "--resume"]),
    "a tracker without its name": (NOTHING, [*TRAIN, "--track", "excel"]),
    "a run that is none": (NOTHING, ["evaluate", "nowhere"]),
    "a run without a checkpoint": (
        run_with(manifest__json='{"status": "running"}', recipe__yaml="{}"),
        ["evaluate", "run0"],
    ),
    "a run whose manifest is truncated": (run_with(manifest__json='{"sta'), ["evaluate", "run0"]),
    "a run whose records are corrupted": (
        run_with(manifest__json='{"status": "finished"}', steps__jsonl='{"step"\n{"step": 2}\n', recipe__yaml="{}"),
        ["track", "run0", "--to", "tensorboard"],
    ),
    "a split that is none": (NOTHING, ["evaluate", "nowhere", "--split", "tset"]),
    "a card that is none": (NOTHING, ["plan", "recipe.yaml", "--gpu", "rtx9999"]),
    "no cards": (NOTHING, ["plan", "recipe.yaml", "--gpu", "t4", "--gpus", "0"]),
    "a length of zero": (NOTHING, ["plan", "recipe.yaml", "--gpu", "t4", "--no-data", "--source-tokens", "0"]),
    "a trace that is not there": (NOTHING, ["profile", "--trace", "nowhere.json"]),
    "a trace that is none": (rows("not a trace", "trace.json"), ["profile", "--trace", "trace.json"]),
    "a trace without events": (rows("{}", "trace.json"), ["profile", "--trace", "trace.json"]),
    "a trace that is truncated": (
        rows('{"traceEvents": [{"ph": "X"', "trace.json"),
        ["profile", "--trace", "trace.json"],
    ),
    "a database without its tables": (sqlite_without_tables, ["profile", "--trace", "trace.sqlite"]),
    "a database that is none": (
        rows(b"SQLite format 3\x00" + b"\x00" * 50, "trace.sqlite"),
        ["profile", "--trace", "trace.sqlite"],
    ),
    "trimming without words": (NOTHING, ["trim", "model", "--out", "small"]),
    "a strategy that is not allowed": (NOTHING, [*TRAIN, "strategy.precision=bf16", "allow=[]"]),
    "a name of a recipe that is misspelt": (NOTHING, ["show", "demoo"]),
    "copying what is not there": (NOTHING, ["cp", "nothing", "mine.yaml"]),
}


def test_there_are_at_least_eighty() -> None:
    assert len(MISTAKES) >= 80


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", MISTAKES)
def test_it_is_answered_in_three_parts(case: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spoil, arguments = MISTAKES[case]
    spoil(place)
    before = set(place.rglob("*"))
    code = main(arguments)
    reported = capfd.readouterr().err
    assert code == 2, reported
    assert "Traceback" not in reported
    if not reported.startswith("Usage: "):  # the command line's own parser has two: what is wrong, and how to get help
        assert reported.startswith("error: ")
        assert count_parts(reported) >= 3, reported
    left = set(place.rglob("*")) - before
    assert not [path for path in left if "out" in path.parts or path.name in ("hacked", "small")], left


def count_parts(message: str) -> int:
    """Sentences; a colon before a list of mistakes ends one, too."""
    return len(re.findall(r"[.:?!](?:\s|$)", message))
