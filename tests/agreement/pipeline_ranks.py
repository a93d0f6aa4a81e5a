"""One of four processes that train as pipelines of two to four stages: `run_rank`.

The first one also trains each model alone, on whole padded batches, and writes how far both are apart, a case a line.
Steps differ in their number of micro-batches and in their lengths, so wires and schedules change.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from seqfit.data.loader import MicroBatch, Padding
from seqfit.model.load import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.packing import PackedModel
from seqfit.parallel import pipeline as pipelines
from seqfit.parallel.execution import Recompute, enable_recompute
from seqfit.parallel.pipeline import Pipeline, count_rows, round_rows
from seqfit.recipe.schema import ModelRecipe

WORLD = 4
WAIT = timedelta(seconds=120)  # for the other processes: none hangs where one has failed
SHORT_WAIT = timedelta(seconds=4)
CLIP_NORM = 0.5
# Examples of each micro-batch of each step. Two micro-batches are fewer than there are stages in most cases.
STEPS = ([2, 1, 2, 1], [1, 3, 2, 2, 1], [2, 2], [4, 4, 4, 1, 1, 2], [1, 2, 1, 2])
STEP_NUMBERS = range(len(STEPS))
LONGEST = (20, 40, 10, 60, 20)  # source tokens
Pair = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Case:
    """One way to train one model."""

    model: str
    stages: int
    schedule: Literal["1f1b", "gpipe"]
    batching: Literal["packed", "padded"] = "packed"
    recompute: Recompute = "none"
    costs: tuple[float, ...] | None = None
    frozen: tuple[str, ...] = ()  # beginnings of names
    rule: LossRule = LossRule()  # noqa: RUF009, frozen
    dtype: torch.dtype = torch.float64

    @property
    def name(self) -> str:
        details = [self.batching, self.recompute, *map(str, self.costs or ()), *self.frozen, str(self.dtype)[6:]]
        details += [] if self.rule == LossRule() else ["another loss"]
        return f"{self.model}, {self.stages} stages, {self.schedule}, {' '.join(details)}"


CASES = (
    Case("t5", 2, "gpipe"),
    Case("t5", 3, "1f1b", costs=(1, 1, 1, 5)),
    Case("t5", 4, "1f1b", recompute="blocks"),
    Case("t5", 4, "gpipe", "padded"),
    Case("t5", 4, "1f1b", dtype=torch.float32),
    Case("mt5", 2, "1f1b"),
    Case("mt5", 3, "gpipe", costs=(5, 1, 1, 1)),
    Case("mt5", 4, "1f1b", "padded", recompute="alternate"),
    Case("mt5", 4, "1f1b", rule=LossRule(0.1, 1e-3)),
    Case("mt5", 2, "gpipe", dtype=torch.float32, rule=LossRule(chunked=False)),
    Case("umt5", 3, "1f1b", recompute="blocks"),
    Case("umt5", 4, "gpipe"),
    Case("deep-decoder", 2, "1f1b", costs=(1, 1, 1, 1)),
    Case("t5", 4, "1f1b", frozen=("encoder", "shared")),
    Case("bart", 3, "1f1b", "padded", recompute="blocks"),
    Case("bart", 4, "gpipe", dtype=torch.float32),
    Case("marian", 2, "1f1b", "padded"),
)


def run_rank(meeting: str, rank: int, results: Path, folders: dict[str, str]) -> None:
    torch.set_num_threads(1)
    pipelines.KEPT_WIRES = 2  # so that some are forgotten
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD, timeout=WAIT)
    try:
        groups = {size: dist.new_group(list(range(size)), timeout=WAIT) for size in (2, 3)} | {WORLD: None}
        for case in CASES:
            if rank < case.stages:
                compare(case, folders[case.model], rank, groups[case.stages], results)
        if rank < 2:
            compare_recompute_with_dropout(folders["umt5"], groups[2], rank, results)
        hurry = dist.new_group([0, 1], timeout=SHORT_WAIT)
        if rank < 2:
            dist.barrier(groups[2])  # both begin together: what follows has little time
            fail_on_the_second_rank(folders["t5"], hurry, rank, results)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def compare(case: Case, folder: str, rank: int, group: dist.ProcessGroup | None, results: Path) -> None:
    began = time.monotonic()
    pipeline = build_pipeline(case, folder, group)
    losses, norms = train_pipeline(pipeline, case, group)
    hashes: list[Any] = [None] * case.stages
    own = {name: hashlib.sha256(weight.detach().numpy()).hexdigest() for name, weight in named(pipeline)}
    dist.all_gather_object(hashes, own, group=group)
    weights = {name: weight.clone() for name, weight in pipeline.whole_weights()}
    if rank > 0:
        return
    alone = prepare(case, folder)
    expected_losses, expected_norms = train_alone(alone, case)
    found: dict[str, Any] = {
        "case": case.name,
        "losses": [abs(a - b) for a, b in zip(losses, expected_losses, strict=True)],
        "norms": [abs(a - b) / b for a, b in zip(norms, expected_norms, strict=True)],
        "weights": max(float((weights[name] - weight).detach().abs().max()) for name, weight in named(alone)),
        "moved": float((weights["shared.weight"] - prepare(case, folder).shared.weight).detach().abs().max())
        if "shared.weight" in weights
        else None,
        "copies": {name: len({held[name] for held in hashes if name in held}) for name in weights},
        "copied": sorted(name for name in weights if sum(name in held for held in hashes) > 1),
        "wires": [
            round_rows(max(sum(count_rows(batch)) for batch in split_step(case, step)[0])) for step in STEP_NUMBERS
        ],
        "seconds": time.monotonic() - began,
    }
    write(results, found)


def build_pipeline(case: Case, folder: str, group: dist.ProcessGroup | None, dropout: float = 0.0) -> Pipeline:
    model = prepare(case, folder, dropout)
    packed = PackedModel(model) if case.batching == "packed" else None
    pipeline = Pipeline(model, case.rule, packed, schedule=case.schedule, costs=case.costs, group=group)
    enable_recompute(pipeline.model, case.recompute)
    return pipeline


def run_pipeline(pipeline: Pipeline, micro_batches: list[MicroBatch], terms: int) -> torch.Tensor:
    with pipeline.prepared(micro_batches, terms, nullcontext, None) as (schedule, targets):
        schedule.step(target=targets, return_outputs=False)
    return pipeline.loss


def prepare(case: Case, folder: str, dropout: float = 0.0) -> Any:
    model = load_model(ModelRecipe(path=folder, dropout=dropout)).to(case.dtype).train()
    for name, weight in model.named_parameters():
        weight.requires_grad_(not name.startswith(case.frozen) if case.frozen else weight.requires_grad)
    return model


def train_pipeline(pipeline: Pipeline, case: Case, group: dist.ProcessGroup | None) -> tuple[list[float], list[float]]:
    learning = [weight for weight in pipeline.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-3) if learning else None
    losses, norms = [], []
    for step in STEP_NUMBERS:
        micro_batches, terms = split_step(case, step)
        loss = run_pipeline(pipeline, micro_batches, terms).to(torch.float64)
        dist.all_reduce(loss, group=group)
        norm = pipeline.total_norm()
        if optimizer is not None:
            nn.utils.clip_grads_with_norm_(learning, CLIP_NORM, norm)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(loss))
        norms.append(float(norm))
    return losses, norms


def train_alone(model: Any, case: Case) -> tuple[list[float], list[float]]:
    wrapped = LossModel(model, case.rule)
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-3)
    losses, norms = [], []
    for step in STEP_NUMBERS:
        pairs = draw_pairs(step)
        whole = collate(case, [pair for part in pairs for pair in part], "padded")
        loss = wrapped(whole.source_ids, whole.labels, whole.decoder_ids, whole.source_mask, whole.target_tokens)
        loss = loss / whole.target_tokens
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(learning, CLIP_NORM)))
        losses.append(float(loss.detach()))
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms


def split_step(case: Case, step: int) -> tuple[list[MicroBatch], int]:
    """The micro-batches of a step, and its target tokens."""
    micro_batches = [collate(case, pairs, case.batching) for pairs in draw_pairs(step)]
    return micro_batches, sum(batch.target_tokens for batch in micro_batches)


def draw_pairs(step: int) -> list[list[Pair]]:
    """Every third target is long, the others have a token or two."""
    random = np.random.default_rng(step)
    counts = iter(range(sum(STEPS[step])))
    return [
        [_draw(random, LONGEST[step], 25 if next(counts) % 3 == 0 else 2) for _ in range(examples)]
        for examples in STEPS[step]
    ]


def _draw(random: np.random.Generator, longest_source: int, longest_target: int) -> Pair:
    source, target = (random.integers(1, longest + 1) for longest in (longest_source, longest_target))
    return random.integers(3, 100, source), random.integers(3, 100, target)


def collate(case: Case, pairs: list[Pair], batching: str) -> MicroBatch:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    padding = Padding(0, 2 if case.model in ("bart", "marian") else 0)
    shape = None if batching == "packed" else (max(map(len, sources)), max(map(len, targets)))
    return MicroBatch.collate(sources, targets, padding, shape=shape)


def compare_recompute_with_dropout(folder: str, group: Any, rank: int, results: Path) -> None:
    """Each rank draws its own dropout; what is computed again must draw the same, of the same micro-batch."""
    gradients = []
    for recompute in ("none", "blocks"):
        case = Case("umt5", 2, "1f1b", recompute=recompute, dtype=torch.float32)
        pipeline = build_pipeline(case, folder, group, dropout=0.3)
        torch.manual_seed(rank)
        run_pipeline(pipeline, *split_step(case, 1))
        gradients.append([weight.grad for _, weight in named(pipeline)])
    apart = max(float((stored - again).abs().max()) for stored, again in zip(*gradients, strict=True))
    write(results, {"case": f"recompute with dropout, rank {rank}", "apart": apart})


def fail_on_the_second_rank(folder: str, group: Any, rank: int, results: Path) -> None:
    case = Case("t5", 2, "1f1b", dtype=torch.float32)
    pipeline = build_pipeline(case, folder, group)
    if rank == 1:

        def run_out(*_: Any) -> None:
            raise torch.OutOfMemoryError("no room for 3 GiB")

        pipeline.model.base_model.decoder.register_forward_pre_hook(run_out)
    began = time.monotonic()
    try:
        run_pipeline(pipeline, *split_step(case, 0))
    except RuntimeError as error:
        seen = {"case": f"failure, rank {rank}", "error": type(error).__name__, "text": str(error)}
        write(results, {**seen, "seconds": time.monotonic() - began})


def named(module: Any) -> list[tuple[str, nn.Parameter]]:
    model = module.model if isinstance(module, Pipeline) else module
    return list(model.named_parameters())


def write(results: Path, found: dict[str, Any]) -> None:
    with results.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(found) + "\n")
