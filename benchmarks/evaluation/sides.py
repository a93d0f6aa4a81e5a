"""Both sides of the comparison, each over the same rows: seconds and token ids of all generated texts come out.

    ours           seqfit's generate_split, as `seqfit evaluate` and every evaluation during training call it
    trainer-16     Seq2SeqTrainer.predict with predict_with_generate, 16 rows per batch, dynamic padding; or 64
    grouped-16     the same with train_sampling_strategy="group_by_length", which also orders an evaluation

A model with random weights would end a text at once or never. So on both sides texts are as long as the rows' targets:
the end token can't be chosen before, and is forced then.

    target of 3 tokens    step 1: no end    step 2: no end    step 3: the end
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    DataCollatorForSeq2Seq,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from benchmarks.engine.rows import SQUAD_ES, find_data, find_tokenizer
from benchmarks.engine.workloads import MODELS, write_model
from benchmarks.trainer import to_feature
from seqfit.data import PreparedData, TokenizedSplit, prepare_data
from seqfit.generation.generator import Generator
from seqfit.generation.texts import generate_split
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import ModelRecipe
from seqfit.step.precision import Precision
from seqfit.system import quiet_transformers

END = 1  # T5's
MODEL = "t5-small"
WARM_UP_ROWS = 8
DATA = {"squad-es": ("mt5-squad-es", SQUAD_ES), "dialogsum": ("t5-summarize", "dialogsum")}
SIDES = ("ours", "trainer-16", "trainer-64", "grouped-16")


@dataclass(frozen=True)
class Run:
    """One process: a side on some rows."""

    side: str
    data: str  # a key of DATA
    rows: int
    work: str  # folder of the model
    repeat: int = 0

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @cached_property
    def model(self) -> ModelRecipe:
        """Random weights, with T5's tokenizer."""
        return ModelRecipe(path=str(Path(self.work) / MODEL), tokenizer=str(find_tokenizer("t5")))


@dataclass(frozen=True)
class EvaluatedRows:
    """The rows to generate for, and the longest text."""

    split: TokenizedSplit
    rows: Any  # spread evenly over the split, as eval.limit does it
    max_new_tokens: int


def prepare(run: Run) -> None:
    """Write the model and tokenize the data, so that no measured process has to."""
    if not (Path(run.work) / MODEL).exists():
        write_model(Path(run.work) / MODEL, MODELS[MODEL])
    load_rows(run, load_tokenizer(run.model))


def load_rows(run: Run, tokenizer: PreTrainedTokenizerBase) -> EvaluatedRows:
    """Test rows of the recipe's data."""
    recipe_name, path = DATA[run.data]
    recipe = load_recipe(recipe_name, [f"data.path={find_data(path)}", "~data.hub"])
    data: PreparedData = prepare_data(recipe, tokenizer, ("train", "validation", "test"))
    split = data.splits["test"]
    rows = np.linspace(0, len(split) - 1, min(run.rows, len(split))).round().astype(np.int64)
    return EvaluatedRows(split, rows, Generator.choose_answer_length(data.splits.values(), None))


def measure_side(run: Run) -> dict[str, Any]:
    """Seconds for all rows, and the ids of their texts. The first rows are generated before, to warm up."""
    tokenizer, model = load_tokenizer(run.model), load_model(run.model).eval()
    rows = load_rows(run, tokenizer)
    generate = build_ours(model, tokenizer) if run.side == "ours" else build_trainer(run.side, model, tokenizer)
    generate(replace(rows, rows=rows.rows[:WARM_UP_ROWS]))
    started = time.perf_counter()
    ids = generate(rows)
    return {"seconds": time.perf_counter() - started, "ids": ids, "threads": torch.get_num_threads()}


def build_ours(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Callable[[EvaluatedRows], list[list[int]]]:
    """Our side. Texts are decoded as usual, and their ids recorded."""
    precision = Precision("fp32", torch.device("cpu"), "both sides")
    recorder = RecordingTokenizer(tokenizer)

    def generate(rows: EvaluatedRows) -> list[list[int]]:
        generator = Generator(model, recorder, precision, 1, rows.max_new_tokens, 8192, force_lengths=True)
        assert generator.fallback is None
        texts = generate_split(generator, rows.split, rows.rows).texts
        return [recorder.ids[text] for text in texts]

    return generate


class RecordingTokenizer:
    """The tokenizer with numbered texts, so that the ids of each are known."""

    def __init__(self, inner: PreTrainedTokenizerBase) -> None:
        self._inner = inner
        self.pad_token_id = inner.pad_token_id
        self.ids: dict[str, list[int]] = {}

    def batch_decode(self, ids_BT: torch.Tensor, **settings: Any) -> list[str]:
        """The inner tokenizer's texts, each after a number."""
        texts = []
        for ids, text in zip(ids_BT.tolist(), self._inner.batch_decode(ids_BT, **settings), strict=True):
            texts.append(f"{len(self.ids)} {text}")
            self.ids[texts[-1]] = strip(ids)
        return texts


def build_trainer(
    side: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Callable[[EvaluatedRows], list[list[int]]]:
    """transformers' side: generation, loss and texts, as compute_metrics would need them."""
    kind, batch = side.split("-")
    model.set_attn_implementation("sdpa")
    force_lengths(model)

    def generate(rows: EvaluatedRows) -> list[list[int]]:
        pairs = [rows.split.token_ids(int(row)) for row in rows.rows]
        features = [to_feature((source.tolist(), target.tolist()), None, 0) for source, target in pairs]
        with tempfile.TemporaryDirectory() as folder:
            trainer = Seq2SeqTrainer(
                model=model,
                args=build_arguments(folder, int(batch), grouped=kind == "grouped"),
                data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
                processing_class=tokenizer,
            )
            order = list(trainer._get_eval_sampler(features))
            settings = {"num_beams": 1, "do_sample": False, "max_new_tokens": rows.max_new_tokens}
            with quiet_transformers():
                predicted = trainer.predict(features, **settings).predictions
        ids = np.where(predicted < 0, 0, predicted)
        tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [strip(ids[place].tolist()) for place in np.argsort(order)]

    return generate


def build_arguments(folder: str, batch: int, *, grouped: bool) -> Seq2SeqTrainingArguments:
    """The best settings for a CPU in fp32."""
    return Seq2SeqTrainingArguments(
        output_dir=folder,
        per_device_eval_batch_size=batch,
        predict_with_generate=True,
        train_sampling_strategy="group_by_length" if grouped else "sequential",
        use_cpu=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
    )


def force_lengths(model: PreTrainedModel) -> None:
    """`generate` gets the labels of its batch from the Trainer, and transformers' own ignores them."""
    original = model.generate

    def generate(**settings: Any) -> torch.Tensor:
        forced = ForcedLengths((settings["labels"] >= 0).sum(1))
        ids: torch.Tensor = original(**settings, logits_processor=LogitsProcessorList([forced]))
        return ids

    model.generate = generate


class ForcedLengths(LogitsProcessor):
    """The end token at each row's length, and not before."""

    def __init__(self, lengths_B: torch.Tensor) -> None:
        self._lengths_B = lengths_B

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, which is number input_ids.shape[1], because the start token does not count."""
        scores[:, END] = -torch.inf
        ending_B = self._lengths_B == input_ids.shape[1]
        scores[ending_B, END] = torch.inf
        return scores


def strip(ids: list[int]) -> list[int]:
    """Without the start token and what follows the end token."""
    return ids[1 : ids.index(END) + 1] if END in ids else ids[1:]


@torch.inference_mode()
def measure_gap(run: Run, place: int, ours: list[int], theirs: list[int]) -> float:
    """The difference of logits where two texts first differ: a tie up to rounding, or a mistake."""
    model = load_model(run.model).eval()
    rows = load_rows(run, load_tokenizer(run.model))
    source, _ = rows.split.token_ids(int(rows.rows[place]))
    at = next(at for at, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
    logits_V = model(
        input_ids=torch.tensor(np.array([source])), decoder_input_ids=torch.tensor([[0, *ours[:at]]])
    ).logits[0, -1]
    return float((logits_V[ours[at]] - logits_V[theirs[at]]).abs())
