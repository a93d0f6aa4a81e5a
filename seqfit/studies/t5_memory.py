"""The study of T5's memory: its questions, answered in words and figures.

In: the evidence of the study. Out: its answer and sections:

    lengths        from total TFLOPs: tokens = TFLOPs / (6 x non-embedding parameters)
    memory         what 27 GB consist of, and why bytes per parameter say nothing
    speed          why model.parallelize() was faster than nn.DataParallel
    length limit   why T5 has none
    ZeRO           the example of its authors, by the same arithmetic
    plans          what t5-large and t5-3b need on that machine
    vocabulary     what its size costs

A plan is a prediction like those of the table; `measure_t5_memory` makes and keeps them, since they take a minute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seqfit
from seqfit.planning import trainer_run
from seqfit.rundir import write_json
from seqfit.studies.hooks import Explanation, StudyEvidence
from seqfit.studies.load import Study
from seqfit.studies.predictions import draw_lengths
from seqfit.studies.results import StudyLog, StudySection, StudyTable
from seqfit.studies.schema import StudyMode, StudyPrediction
from seqfit.units import format_bytes

_PARAMETERS = 222.9e6  # of t5-base
_WITHOUT_EMBEDDING = 198.2e6  # which the Trainer's total_flos counts
_WIDTH, _VOCABULARY, _TRIMMED = 768, 32_128, 250_112
_FLOPS = 6  # per parameter and token, forward and backward
_PLANS = "plans.json"
_PLANNED = {"t5-large": ("google-t5/t5-large", "RTX 3090"), "t5-3b": ("google-t5/t5-3b", "2x RTX 3090")}
_NEAR = 0.15


def measure_t5_memory(study: Study, mode: StudyMode, folder: Path, log: StudyLog) -> dict[str, Any]:
    """The plans for the larger models: one answer each."""
    path = folder / _PLANS
    done: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    prediction = study.spec.prediction
    assert prediction is not None
    for name, (model, gpu) in _PLANNED.items():
        if name in done:
            continue
        log(f"planning {name} on {gpu}")
        assert isinstance(prediction.recipe, dict)
        recipe = {**prediction.recipe, "model": {"name": model}, "train": {"batch_examples": 8, "epochs": 2}}
        longest, targets = prediction.lengths.longest, prediction.lengths.target
        done[name] = seqfit.plan(
            recipe, gpu=gpu, source_tokens=longest, target_tokens=targets, rows=prediction.rows, no_data=True
        ).answer
        write_json(path, done)
    return {"plans": done}


def explain_t5_memory(evidence: StudyEvidence) -> Explanation:
    sections = [
        _show_nearness(evidence),
        _show_memory(evidence),
        _show_lengths(evidence),
        _show_speed(evidence),
        _show_limit(),
        _show_zero(evidence),
        _show_plans(evidence),
        _show_vocabulary(evidence),
    ]
    return Explanation(_write_answer(evidence), tuple(one for one in sections if one is not None))


def _write_answer(evidence: StudyEvidence) -> str:
    terms = _find_terms(evidence)
    share = terms.get("scores", 0) / max(1, sum(terms.values()))
    planned = evidence.facts.get("plans", {}).get("t5-large", "")
    fits = "; t5-large then fits one of the cards" if planned.startswith("Fits") else ""
    return (
        f"The memory is that of attention scores, which grow with the square of the text's length: {share:.0%} of "
        "what one "
        "GPU holds, against 16 bytes per parameter (3.3 GiB) of weights, gradients and AdamW, so that truncating, "
        "gradient "
        f"checkpointing or attention without stored scores helps and another optimizer does not{fits}."
    )


def _find_terms(evidence: StudyEvidence) -> dict[str, int]:
    """The predicted memory of one GPU at bf16, in three parts."""
    found = evidence.predicted.get("single GPU")
    sums = {"scores": 0, "state": 0, "others": 0}
    for name, size in ({} if found is None else found.terms).items():
        is_state = any(word in name for word in ("weights", "gradients", "optimizer"))
        sums["scores" if "score" in name else "state" if is_state else "others"] += size
    return sums


def _show_nearness(evidence: StudyEvidence) -> StudySection | None:
    result = evidence.result
    published, predicted = (result.list_values(basis, "memory") for basis in ("published", "predicted"))
    errors = {name: predicted[name] / published[name] - 1 for name in published if name in predicted}
    if not errors:
        return None
    rows = tuple(
        (
            name,
            *(result.find_row(name).on(basis)["memory"].format() for basis in ("published", "predicted")),
            f"{error:+.0%}",
        )
        for name, error in errors.items()
    )
    near = [name for name, error in errors.items() if abs(error) <= _NEAR]
    far = [name for name in errors if name not in near]
    text = [f"{len(near)} of {len(errors)} rows are within 15%, under one assumption about lengths."]
    if "gradient_checkpointing" in far:
        text.append(
            "Not gradient_checkpointing: recomputing activations makes a step about a third slower, and this row "
            "took over "
            "15 times as long as the others. Something else ran in it, and its memory is not that of the training step "
            "alone. A likely cause is the evaluation: transformers turns the cache of generation off with gradient "
            "checkpointing, so that each new token runs the whole decoder again."
        )
    columns = ("candidate", "published", "predicted", "error")
    return StudySection("How near the predictions are", text=tuple(text), table=StudyTable(columns, rows))


def _show_memory(evidence: StudyEvidence) -> StudySection | None:
    found = evidence.predicted.get("single GPU")
    if found is None:
        return None
    total = sum(found.terms.values())
    rows = tuple((name, format_bytes(size), f"{size / total:.0%}") for name, size in found.terms.items())
    per_parameter = evidence.result.list_values("published", "memory")["baseline"] / _PARAMETERS
    text = (
        "Memory = weights + gradients + optimizer state (4 + 4 + 8 bytes per parameter with AdamW in mixed "
        "precision, as "
        "autocast keeps weights in fp32) + activations + the CUDA context. Only activations depend on the text: per "
        "layer "
        "some hidden states, which grow with its length, and the attention scores, heads x length x length, each kept "
        "several times (scores in 16 bits, softmax in fp32, the dropout mask, their gradients).",
        f"{per_parameter:.0f} bytes per parameter, on two GPUs, are therefore no property of the model: 16 are its "
        "state, and "
        "nn.DataParallel has weights and gradients on both GPUs, and the longest text decides the rest.",
    )
    columns = ("one GPU, longest text", "predicted", "share")
    return StudySection("How to compute the memory", "predicted", text=text, table=StudyTable(columns, rows))


def _show_lengths(evidence: StudyEvidence) -> StudySection:
    prediction = evidence.study.spec.prediction
    assert prediction is not None
    rows = []
    for name in ("baseline", "single GPU", "max_length=512", "max_length=512, model.parallelize()"):
        published = evidence.study.figures[name]["TFLOPs"].value
        assert published is not None
        limit = 512 if "512" in name else 4096
        tokens = _mean_tokens(prediction, limit, pairs=name in ("baseline", "max_length=512"))
        count = prediction.epochs * prediction.rows
        implied = published * 1e12 / (_FLOPS * _WITHOUT_EMBEDDING * count)
        computed = _FLOPS * _WITHOUT_EMBEDDING * count * tokens / 1e12
        rows.append((name, f"{published:.0f} TFLOP", f"{implied:.0f}", f"{tokens:.0f}", f"{computed:.0f} TFLOP"))
    text = (
        "The Trainer counts 6 x parameters without embeddings x input tokens. 129 TFLOP are 542 tokens per text on "
        "one GPU and "
        "175 are 736 with both GPUs' rows padded to the longer one: texts differ much in length. A log-normal "
        "distribution "
        "with that mean and a sigma of 0.67 gives all four figures. The texts were therefore far shorter than 4,096 "
        "tokens, and "
        "padded to the longest of a batch; only the longest one decides the memory.",
    )
    columns = ("row", "published", "tokens per row it means", "tokens per row assumed", "TFLOPs of the assumption")
    return StudySection("Which lengths the data had", text=text, table=StudyTable(columns, tuple(rows)))


def _mean_tokens(prediction: StudyPrediction, limit: int, *, pairs: bool) -> float:
    """Per row; in pairs, padded to the longer one, over many random orders."""
    means = []
    for seed in range(50 if pairs else 1):
        sources, _ = draw_lengths(prediction.lengths, prediction.rows, limit, seed)
        means.append(float(sources.reshape(-1, 2).max(axis=1).mean() if pairs else sources.mean()))
    return sum(means) / len(means)


def _show_speed(evidence: StudyEvidence) -> StudySection:
    text = [
        "nn.DataParallel pads the rows of both GPUs to the longer one: 175 TFLOP for the same data that takes 129 on "
        "one GPU. In "
        "each step it copies all weights to the second GPU, gathers all logits on the first and sums gradients "
        "there, from "
        "one Python process. model.parallelize() sends only hidden states, once in each direction: less work, and "
        "nothing "
        "copied, although one GPU computes at a time and each is busy half of the time. Its memory is more even "
        "because the "
        "blocks, with their weights, gradients, optimizer state and activations, are split in halves.",
    ]
    found = evidence.predicted
    if "baseline" in found and "model.parallelize()" in found:
        two, one = (found[name].seconds for name in ("baseline", "model.parallelize()"))
        text.append(
            f"Predicted are {two:.0f} s of training for nn.DataParallel and {one:.0f} s for model.parallelize(), "
            "without the two "
            "evaluations by generation that the published times include. The published 68 s of a single GPU, for the "
            "work that "
            "model.parallelize() did in 28 s, are no matter of computing, because both compute on one GPU at a time."
        )
    return StudySection("Why model.parallelize() was faster", text=tuple(text))


def _show_limit() -> StudySection:
    text = (
        "T5 has relative position biases, by distance in 32 buckets, with all distances from 128 on in the last one: "
        "no table "
        "of positions ends at 512. The tokenizer's warning about sequences longer than 512 names the length of its "
        "pretraining. Longer texts cost memory and time, and the model has seen none in pretraining.",
    )
    return StudySection("Why T5 has no maximum length", text=text)


def _show_zero(evidence: StudyEvidence) -> StudySection:
    facts: Mapping[str, Any] = evidence.study.spec.published.facts["zero"]
    count, gpus = float(facts["parameters"]), int(facts["gpus"])
    stages = trainer_run.split_model_state(count, float(facts["optimizer_bytes"]), gpus)
    names = ("everything on each GPU", "optimizer state split", "gradients, too", "weights, too")
    rows = tuple(
        (name, f"{gb} GB", f"{size / 1e9:.1f} GB") for name, gb, size in zip(names, facts["gb"], stages, strict=True)
    )
    text = (
        f"ZeRO's authors reckon {count / 1e9:g} billion parameters on {gpus} GPUs: 2 bytes of weights, 2 of "
        "gradients and 12 of "
        "optimizer state per parameter, split step by step. Activations come on top: for T5-base on long texts they "
        "are most of "
        "the memory, which is why that reckoning and the published 27 GB do not meet.",
    )
    columns = ("per GPU", "published", "computed")
    return StudySection("ZeRO's example", text=text, table=StudyTable(columns, rows))


def _show_plans(evidence: StudyEvidence) -> StudySection | None:
    plans: Mapping[str, str] = evidence.facts.get("plans", {})
    if not plans:
        return None
    rows = tuple((name, _PLANNED[name][1], answer) for name, answer in plans.items())
    text = ("Eight texts per update, every one as long as the longest of the account.",)
    return StudySection(
        "What t5-large and t5-3b need", "predicted", text=text, table=StudyTable(("model", "on", "plan"), rows)
    )


def _show_vocabulary(evidence: StudyEvidence) -> StudySection:
    prediction = evidence.study.spec.prediction
    assert prediction is not None
    sources = prediction.lengths.mean or 0.0
    text = (
        "Logits are computed for target tokens only: their products are width x vocabulary per target token, three "
        "times with "
        f"the backward. With texts of {sources:.0f} and summaries of {prediction.lengths.target} tokens that is the "
        "share below. "
        "A larger vocabulary costs mostly memory: weights, gradients and optimizer state of the embedding.",
    )
    columns = ("vocabulary", "share of the computing", "embedding with AdamW")
    rows = tuple(_describe_vocabulary(size, sources, prediction.lengths.target) for size in (_VOCABULARY, _TRIMMED))
    return StudySection(
        "Does the size of the vocabulary change the throughput?", text=text, table=StudyTable(columns, rows)
    )


def _describe_vocabulary(size: int, source_tokens: float, target_tokens: int) -> tuple[str, str, str]:
    logits = size * _WIDTH * target_tokens
    half = _WITHOUT_EMBEDDING / 2  # of the encoder and of the decoder, roughly
    share = logits / (logits + half * (source_tokens + target_tokens))
    return f"{size:,} tokens", f"{share:.1%}", format_bytes(16 * size * _WIDTH)
