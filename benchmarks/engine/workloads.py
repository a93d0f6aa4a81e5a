"""What is trained: models of published shapes with random weights, real rows, and the recipe of our side.

In: a workload's name. Out: a recipe as `seqfit train` reads it. Models and made data files are kept in a work folder
and built once; weights are saved and loaded as a user's would be, so both sides start from the same numbers.

    squad-es         T5's tokenizer, sources of at most 1,024 tokens: a Trainer's batch of 16 x 1,744 takes 36 GiB (by
                     fake execution, see long_source.py), of 16 x 1,024 it takes 15 GiB
    squad-es-512     the same at 512/128, as padding="max_length" needs it
    words-512        SQuAD-es as mT5's tokenizer splits it, for a model of T5's size (see rows.renumber), 512/128
    full-512         16 sources of exactly 512 tokens
    base-4096        one source of 4,096 tokens and a target of 64;   base-512: the same number of tokens in 8 rows
    rows-1000        a thousand rows for a very small model, where loading weighs most;   rows-100000: repeated to 100k
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine import rows

LEARNING_RATE = 1e-4  # constant on both sides, so that a short run has the same rate as a long one
_T5 = {"model_type": "t5", "vocab_size": 32128, "d_kv": 64, "dropout_rate": 0.1, "feed_forward_proj": "relu"}
_T5 |= {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "is_encoder_decoder": True}
_GATED = {"vocab_size": 250112, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
_SMALL = {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
MODELS: dict[str, dict[str, Any]] = {
    "t5-small": _T5 | _SMALL,
    "t5-base": _T5 | {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "t5-mini": _T5 | {"d_model": 64, "d_kv": 16, "d_ff": 256, "num_layers": 2, "num_heads": 4},
    "mt5-small": _T5 | _GATED | {"model_type": "mt5", "d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
}
_PLAIN_QA = {"name": "qa", "source": "question: {question} context: {context}", "target": "{answer}", "language": "es"}
_WORDS = {"name": "qa", "source": "{source}", "target": "{target}", "language": "es"}
_MATH = {"name": "math", "source": "{question}", "target": "{answer}"}


@dataclass(frozen=True)
class Workload:
    """One model on one data set."""

    model: str
    task: dict[str, Any]
    data: str  # a file of the real data, or the name of a made one
    limits: tuple[int, int] | None = None  # source, target
    tokenizer: str = "t5"  # a published one, or "words"
    batch_examples: int = 16
    make: Callable[[Path, Path], None] | None = None  # writes the data file (and a tokenizer's folder)


def _lengthened(count: int, characters: int, long_target: bool) -> Callable[[Path, Path], None]:
    return lambda path, _: rows.lengthen(path, rows=count, characters=characters, long_target=long_target)


def _repeated(count: int) -> Callable[[Path, Path], None]:
    return lambda path, _: rows.repeat(path, rows=count)


def _renumbered(path: Path, tokenizer_folder: Path) -> None:
    rows.renumber(path, tokenizer_folder, task=_SQUAD_QA)


_SQUAD_QA = _PLAIN_QA | {"target": "{answers.text}"}
WORKLOADS = {
    "squad-es": Workload("t5-small", _SQUAD_QA, rows.SQUAD_ES, (1024, 128)),
    "squad-es-512": Workload("t5-small", _SQUAD_QA, rows.SQUAD_ES, (512, 128)),
    "words-512": Workload("t5-small", _WORDS, "words.jsonl", (512, 128), tokenizer="words", make=_renumbered),
    "squad-es-mt5": Workload("mt5-small", _SQUAD_QA, rows.SQUAD_ES, (512, 128), tokenizer="mt5"),
    "gsm8k": Workload("t5-small", _MATH, "gsm8k/train.jsonl", (512, 512)),  # longer than any row: nothing is truncated
    "dialogsum": Workload(
        "t5-small",
        {"name": "summarize", "prefix": "summarize: ", "source": "{dialogue}", "target": "{summary}"},
        "dialogsum/dialogsum.dev.jsonl",
    ),
    "full-512": Workload("t5-small", _PLAIN_QA, "full.jsonl", (512, 128), make=_lengthened(128, 6_000, False)),
    "base-4096": Workload(
        "t5-base", _PLAIN_QA, "long.jsonl", (4096, 64), batch_examples=1, make=_lengthened(8, 40_000, True)
    ),
    "base-512": Workload(
        "t5-base", _PLAIN_QA, "long.jsonl", (512, 8), batch_examples=8, make=_lengthened(8, 40_000, True)
    ),
} | {
    f"rows-{count}": Workload("t5-mini", _MATH, f"rows-{count}.jsonl", (512, 512), make=_repeated(count))
    for count in (1_000, 10_000, 100_000)
}


def build_recipe(name: str, work: Path, *, dropout: float | None = None, trim: bool = False) -> dict[str, Any]:
    """The recipe of our side; data and model must have been prepared."""
    workload = WORKLOADS[name]
    model: dict[str, Any] = {"path": str(work / workload.model), "tokenizer": str(locate_tokenizer(workload, work))}
    limits = workload.limits or (None, None)
    return {
        "model": model | {"dropout": dropout} | ({"trim_vocabulary": "data"} if trim else {}),
        "task": workload.task | {"max_source_tokens": limits[0], "max_target_tokens": limits[1]},
        "data": {"path": str(locate_data(workload, work)), "holdout": {}},
        "train": {
            "steps": 1_000_000,  # the rate is constant and the caller stops
            "batch_examples": workload.batch_examples,
            "learning_rate": LEARNING_RATE,
            "schedule": {"name": "constant"},
            "clip_norm": 1.0,
        },
        "allow": ["trim"] if trim else [],
    }


def prepare_files(name: str, work: Path) -> None:
    """The model's folder and the made data, where they aren't there yet."""
    workload = WORKLOADS[name]
    if workload.make is not None and not locate_data(workload, work).exists():
        workload.make(locate_data(workload, work), work / "words")
    if not (work / workload.model).exists():
        write_model(work / workload.model, MODELS[workload.model])


def locate_data(workload: Workload, work: Path) -> Path:
    """The real file, or the made one in the work folder."""
    return rows.find_data(workload.data) if workload.make is None else work / workload.data


def locate_tokenizer(workload: Workload, work: Path) -> Path:
    """A published tokenizer, or that of the renumbered words."""
    return work / "words" if workload.tokenizer == "words" else rows.find_tokenizer(workload.tokenizer)


def write_model(folder: Path, config: dict[str, Any]) -> None:
    """Random weights of a fixed seed, whole or not at all."""
    import torch

    from seqfit.model.load import load_model
    from seqfit.recipe.schema import ModelRecipe
    from seqfit.system import quiet_transformers

    draft = folder.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    (draft / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    model = load_model(ModelRecipe(path=str(draft), weights="random"))
    with quiet_transformers():
        model.save_pretrained(draft)
    draft.rename(folder)
