"""Is the predicted efficiency of several GPUs what others measured? Pairs of one GPU and many, without a GPU.

    python benchmarks/scaling/published.py

In: published_speed.csv, in which some sources have the same run on one GPU and on several. Out: the table in README.md.
Of each pair the time of one GPU is the published one; its parts by block come from a trace, what several add from
`RankWork.predict_step`, as in a plan. So only the communication and the waiting are judged, not the speed of kernels.

    116 sequences/s on one A100, 861 on eight, 32 each    one step 276 ms, eight 297 ms, efficiency 92.8%

Two constants of planning/cluster.py come from pairs, and those are not the test. With gradient accumulation the
communication is negligible, and what is lost is how much later the slowest rank ends (`UNEVEN_SHARE`: the mean of these
pairs). What chance adds in each micro-batch is from FlagPerf's READMEs (`JITTER_SHARE`: the mean of its three models
that seqfit has, on one A100 and eight). The test are the other pairs of the file, and FlagPerf's runs on two machines.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    T5Config,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.rows import find_shared
from benchmarks.engine.table import update_readme
from benchmarks.published_memory.counted import name_card
from seqfit.hardware import find_card
from seqfit.model.load import ModelConfig
from seqfit.planning.cluster import Cluster, GpuLayout, RankWork
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.schedule import UnitSchedule
from seqfit.planning.shape import uniform
from seqfit.planning.step_model import StepModel
from seqfit.planning.timing import rates_of_card
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_SAME = ("source", "model", "task", "batch_per_gpu", "src_len", "precision", "optimizer")  # and the GPU


@dataclass(frozen=True)
class Pair:
    """A run on one GPU and on several."""

    name: str
    card: str
    model: str
    examples: int  # per GPU and micro-batch
    length: int
    precision: str
    micro_batches: int  # of a step on several
    count: int
    single_rate: float  # sequences per second
    rate: float
    targets: int | None = None  # tokens of a target
    machines: int = 1

    @property
    def efficiency(self) -> float:
        return self.rate / (self.count * self.single_rate)

    @property
    def role(self) -> str:
        if self.micro_batches > 1:
            return "with gradient accumulation, whose mean is UNEVEN_SHARE"
        if self.name.startswith("flagperf") and self.machines == 1:
            return "of FlagPerf on one machine, whose mean is JITTER_SHARE"
        return "of FlagPerf on two machines" if self.machines > 1 else "without gradient accumulation: the test"


def _flagperf(model: str, examples: int, length: int, single: float, eight: float, sixteen: float) -> list[Pair]:
    """training/nvidia/MODEL-pytorch/README.md at 1b5a0303, p_core: TF32, torch 1.12 or 1.13, batches per GPU."""
    targets = 128 if model.startswith("t5") else None
    return [
        Pair(
            f"flagperf-{model}-{n}g",
            "a100-40-sxm",
            model,
            examples,
            length,
            "tf32",
            1,
            n,
            single,
            rate,
            targets,
            n // 8,
        )
        for n, rate in ((8, eight), (16, sixteen))
    ]


FLAGPERF = [
    *_flagperf("t5-small", 32, 1024, 111.9, 875.1, 1706.6),
    *_flagperf("distilbert", 96, 512, 287.9, 2181.0, 4058.3),
    *_flagperf("bert-large", 12, 512, 42.1, 299.3, 506.9),
]


def read_pairs() -> list[Pair]:
    path = find_shared("data", "SEQFIT_DATA").parent / "published_speed.csv"
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [*_find_pairs(rows), *FLAGPERF]


def _find_pairs(rows: list[dict[str, str]]) -> Iterator[Pair]:
    singles = {_key(row): row for row in rows if row["num_gpus"] == "1"}
    for row in rows:
        if row["num_gpus"] not in ("2", "4", "8", "16") or not row["model"].startswith("bert-"):
            continue
        single, key = singles.get(_key(row)), name_card(row["gpu"])
        if single is None or key is None or "TensorFlow" in row["framework"]:
            continue
        stated = re.match(r"\d+$", row["grad_accum"])
        yield Pair(
            name=row["id"],
            card=key,
            model=row["model"].split(" ")[0],
            examples=int(row["batch_per_gpu"]),
            length=int(row["src_len"]),
            precision="fp16" if row["precision"].startswith("fp16") else row["precision"],
            micro_batches=int(stated.group()) if stated else 128,  # "default recipe accumulates", not how often
            count=int(row["num_gpus"]),
            single_rate=float(single["value"]),
            rate=float(row["value"]),
        )


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return *(row[name] for name in _SAME), row["gpu"]


def predict_efficiency(pair: Pair) -> float:
    """Of a step that takes as long as published on one GPU, on several with DDP."""
    config = build_model_config(pair.model)
    kind = "text-to-text" if pair.targets else "classifier"
    spec = StepSpec(
        config,
        ModelRecipe.model_validate({"path": pair.model, "kind": kind}),
        TrainRecipe(),
        Strategy(batching="padded", attention="eager", loss="full"),
        pair.precision if pair.precision == "fp16" else "fp32",
        rules_for("gpu"),
    )
    shape = uniform(pair.examples, pair.length, pair.targets, packed=False)
    card = find_card(pair.card)
    rates = rates_of_card(card, "fp16" if pair.precision == "fp16" else "fp32")
    model = StepModel(FakeStep(spec), shape)
    step_seconds = pair.micro_batches * pair.examples / pair.single_rate
    work = model.rank_work([[shape] * pair.micro_batches], step_seconds, rates)
    if pair.precision == "fp16":
        work = _halve(work)
    per_machine = pair.count // pair.machines  # two machines have one HDR adapter each: FlagPerf's README
    seconds, _ = work.predict_step(GpuLayout("ddp", pair.count), Cluster(card, 16, per_machine).link(pair.count))
    return step_seconds / seconds


def build_model_config(model: str) -> ModelConfig:
    if model == "t5-small":
        sizes = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "vocab_size": 32128}
        return ModelConfig(T5Config(**sizes, decoder_start_token_id=0), {}, AutoModelForSeq2SeqLM)
    config = DistilBertConfig() if model == "distilbert" else BertConfig(**(_LARGE if "large" in model else {}))
    return ModelConfig(config, {}, AutoModelForSequenceClassification)


def _halve(work: RankWork) -> RankWork:
    """With gradients in 16 bits, as apex's O2 has them."""
    assert work.schedule is not None
    segments = tuple(replace(segment, gradient_bytes=segment.gradient_bytes // 2) for segment in work.schedule.segments)
    return replace(
        work,
        gradient_bytes=work.gradient_bytes // 2,
        schedule=UnitSchedule(work.schedule.units, segments),
    )


def format_table(found: list[tuple[Pair, float]]) -> str:
    lines = [
        "| run | GPUs | micro-batches per step | published | predicted | difference |",
        "|---|---|---|---|---|---|",
    ]
    for pair, predicted in sorted(found, key=lambda item: -item[0].micro_batches):
        share = f"{predicted / pair.efficiency - 1:+.1%}"
        card = find_card(pair.card).name
        cells = [pair.name, f"{pair.count} x {card}", str(pair.micro_batches), f"{pair.efficiency:.1%}"]
        lines.append(f"| {' | '.join([*cells, f'{predicted:.1%}', share])} |")
    roles: dict[str, list[tuple[Pair, float]]] = {}
    for pair, predicted in found:
        roles.setdefault(pair.role, []).append((pair, predicted))
    lines.append("")
    for role, part in roles.items():
        errors = [abs(predicted / pair.efficiency - 1) for pair, predicted in part]
        published = statistics.fmean(pair.efficiency for pair, _ in part)
        off = f"predictions {statistics.fmean(errors):.1%} off on average, at most {max(errors):.1%}"
        lines.append(f"- {len(part)} pairs {role}: efficiency {published:.1%} published on average, {off}")
    return "\n".join(lines)


if __name__ == "__main__":
    table = format_table([(pair, predict_efficiency(pair)) for pair in read_pairs()])
    print(table)
    update_readme(Path(__file__).parent / "README.md", table, "published")
