"""What a check decodes: rows of a split as token ids, with the token that each answer starts with.

In: a run, or a checkpoint folder and a data file. Out: `CheckedRow`s, spread evenly over the validation split; where
the recipe has none, over train. They are tokenized as for training, so a check sees the very sources that an
evaluation would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.data import prepare_data
from seqfit.errors import DataError
from seqfit.evaluation import spread_over_rows
from seqfit.generation import set_start
from seqfit.inspection import replace_data
from seqfit.model import Checkpoint, build_text_encoder
from seqfit.progress import Progress
from seqfit.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class CheckedRow:
    source: str
    ids: tuple[int, ...]
    start_id: int  # read by the decoder first; of a classifier -1
    first_id: int | None = None  # generated first, whatever is likeliest: a language code
    is_whole: bool = True  # not truncated


def load_rows(
    checkpoint: Checkpoint, recipe: Recipe, limit: int, progress: Progress | None = None
) -> tuple[list[CheckedRow], str]:
    """The rows, and the name of their split."""
    encoder = build_text_encoder(checkpoint.tokenizer)
    for name in ("validation", "train"):
        prepared = prepare_data(
            recipe,
            checkpoint.tokenizer,
            (name,),
            encoder=encoder,
            position_limit=checkpoint.position_limit,
            allow_bad_rows=True,
            progress=progress,
        )
        if name in prepared.splits:
            break
    split = prepared.splits[name]
    start_of = set_start(checkpoint.model, checkpoint.tokenizer, checkpoint.metadata.task)
    rows = []
    for number in spread_over_rows(len(split), limit).tolist():
        ids, source = tuple(split.token_ids(number)[0].tolist()), split.text(number).source
        start_id, first_id = -1, None
        if checkpoint.metadata.kind != "classifier":
            generation = checkpoint.model.generation_config
            start_id, first_id = generation.decoder_start_token_id, generation.forced_bos_token_id
        code = None if start_of is None else split.target_language(number)
        if start_of is not None and code is not None:
            start = start_of(code)
            start_id, first_id = start.start_id, start.first_id
        is_whole = len(encoder.encode([source])[0]) == len(ids)
        rows.append(CheckedRow(source, ids, start_id, first_id, is_whole))
    return rows, name


def choose_recipe(
    run_recipe: Recipe | None, checkpoint: Checkpoint, folder: Path, data: Any, overrides: Sequence[str]
) -> Recipe:
    """The run's, with other data where some is given; of a checkpoint folder one that says what its metadata says."""
    if run_recipe is None and data is None:
        raise DataError(
            f"'{folder}' is a checkpoint folder without a run",
            "An export is checked on rows of the data, and only a run knows where they are",
            "Name a file with --data, or give the run directory",
        )
    if run_recipe is None:
        run_recipe = load_recipe(
            {
                "model": {"path": str(folder), "kind": checkpoint.metadata.kind, "untested": True},
                "task": checkpoint.metadata.task.model_dump(exclude_none=True),
                "data": {"path": str(data)},
                "train": {"steps": 1, "learning_rate": 1e-4, "batch_examples": 1},
            }
        )
    recipe = load_recipe(run_recipe, overrides)
    if data is not None:
        replaced, _ = replace_data(recipe, data, "validation")
        recipe = load_recipe(recipe, replaced)
    return recipe
