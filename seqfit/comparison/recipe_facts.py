"""What a recipe states and what a run has recorded, as facts for an audit.

In: a recipe with its strategy, or a run directory. Out: facts by aspect; of a run also figures, scores, and which rows
it got right. What a run has measured (updates, rows per update, micro-batches) replaces what its recipe states.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.comparison.audits import MEASURED, PLANNED, AuditItem, Fact
from seqfit.comparison.script_facts import (
    Counts,
    describe_regularisation,
    describe_trained,
    format_passes,
    name_model,
    read_source_facts,
)
from seqfit.comparison.statistics import find_right
from seqfit.recipe import Recipe
from seqfit.rundir import EventKind, RecordFile, Run, files, summarise_steps
from seqfit.strategy import Strategy
from seqfit.units import format_number

SEQFIT = "seqfit"
_OTHER_WORK = (  # after which a run has done other work than its recipe states
    *(EventKind.OUT_OF_MEMORY, EventKind.NON_FINITE, EventKind.FALLBACK, EventKind.RESUME, EventKind.INTERRUPTED),
    EventKind.EARLY_STOPPING,
)
_PACKAGES = ("python", "seqfit", "torch", "transformers", "tokenizers")
_SCORED = ("test", "validation")


def read_recipe_facts(recipe: Recipe, strategy: Strategy, counts: Counts, processes: int | None) -> dict[str, Fact]:
    train = recipe.train
    facts = {
        **_read_batch(recipe, strategy, processes),
        **_read_length(recipe, counts),
        "learning_rate": Fact(train.learning_rate, f"{train.learning_rate:g}"),
        "schedule": _fact(_describe_schedule(recipe)),
        "optimizer": _fact(_describe_optimizer(recipe, strategy)),
        "regularisation": _fact(
            describe_regularisation(
                train.optimizer.weight_decay, train.clip_norm, train.label_smoothing, recipe.model.dropout
            )
            + (f", z-loss {train.z_loss:g}" if train.z_loss else "")
        ),
        "precision": Fact(strategy.precision, strategy.precision, PLANNED if strategy.precision == "auto" else ""),
        "checkpointing": _fact({"none": "none", "blocks": "every block"}.get(strategy.recompute, "every other block")),
        "padding": _fact(_describe_padding(strategy)),
        "lengths": _fact(
            f"source {recipe.task.max_source_tokens or 'any'}, target {recipe.task.max_target_tokens or 'any'}"
        ),
        "seed": Fact(recipe.seed, str(recipe.seed)),
        "text": _read_text(recipe),
        "evaluation": _fact(_describe_evaluation(recipe)),
        "model": _read_model(recipe),
        "trained_part": _fact(_describe_trained(recipe, strategy)),
        "attention": _fact(_describe_kernels(strategy)),
        "loader": _fact(f"{strategy.prefetch} batches ahead"),
        "program": _fact(SEQFIT),
        **_read_sources(recipe),
    }
    if processes is not None:
        facts["gpus"] = Fact(processes, str(processes))
        facts["layout"] = _fact("one GPU" if processes == 1 else _name_layout(strategy))
    elif strategy.parallel != "auto":
        facts["layout"] = _fact(_name_layout(strategy))
    return facts


def _fact(text: str) -> Fact:
    return Fact(text, text)


def _read_model(recipe: Recipe) -> Fact:
    name, weights = name_model(recipe.model.location), recipe.model.weights
    text = recipe.model.title if recipe.model.path else name
    return Fact([name, weights], f"{text}, new weights" if weights == "random" else text, name)


def _read_batch(recipe: Recipe, strategy: Strategy, processes: int | None) -> dict[str, Fact]:
    rows, micro = recipe.train.examples_per_step, strategy.micro_batch_examples
    facts: dict[str, Fact] = {}
    if rows is None:
        tokens = recipe.train.batch_tokens
        facts["rows_per_update"] = Fact(f"{tokens} tokens", f"{tokens:,} tokens")
    else:
        facts["rows_per_update"] = Fact(rows, str(rows))
    if micro is None:
        stated = recipe.strategy if isinstance(recipe.strategy, dict) else {}
        text = f"at most {strategy.micro_batch_tokens:,} tokens"
        facts["micro_batch"] = Fact(text, text, "" if processes or "micro_batch_tokens" in stated else PLANNED)
    else:
        facts["micro_batch"] = Fact(micro, str(micro))
        if rows is not None:
            pieces = math.ceil(rows / (micro * (processes or 1)))
            facts["accumulation"] = Fact(pieces, str(pieces))
    return facts


def _read_length(recipe: Recipe, counts: Counts) -> dict[str, Fact]:
    train, rows = recipe.train, recipe.train.examples_per_step
    per_epoch = math.ceil(counts.train / rows) if rows and counts.train else None
    passes: float | None = train.passes
    if train.steps is not None:
        facts = {"updates": Fact(train.steps, f"{train.steps:,}")}
        passes = train.steps * rows / counts.train if rows and counts.train else None
    elif per_epoch is not None:
        total = int(train.passes) * per_epoch + math.ceil(round(train.passes % 1 * per_epoch, 6))
        facts = {"updates": Fact(total, f"{total:,}")}
    else:
        size = rows or f"{train.batch_tokens} tokens"
        facts = {"updates": Fact(f"{passes:g}/{size}", f"{passes:g} epochs in batches of {size}")}
    if passes is not None:
        facts["passes"] = Fact(round(passes, 2), format_passes(passes))
    total, every = facts["updates"].value, recipe.eval.every_steps or per_epoch
    if train.steps is None and recipe.eval.every_steps is None:
        count = math.ceil(train.passes)
        facts["evaluations"] = Fact(count, f"{count}, one per epoch")
    elif isinstance(total, int) and every:
        count = math.ceil(total / every)
        facts["evaluations"] = Fact(count, f"{count}, every {every} updates")
    return facts


def _describe_schedule(recipe: Recipe) -> str:
    schedule = recipe.train.schedule
    if recipe.train.optimizer.name == "adafactor" and recipe.train.optimizer.relative_step:
        return "Adafactor's own"
    floor = f", floor {schedule.floor:g}" if schedule.floor else ""
    return f"{schedule.name}, warm-up {schedule.warmup_steps}{floor}"


def _describe_optimizer(recipe: Recipe, strategy: Strategy) -> str:
    optimizer = recipe.train.optimizer
    name = {"recipe": optimizer.name, "8bit": "8-bit AdamW"}.get(strategy.optimizer, strategy.optimizer)
    constants = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    other = [
        f"{key} {getattr(optimizer, key):g}" for key, usual in constants.items() if getattr(optimizer, key) != usual
    ]
    other += ["relative step"] if optimizer.relative_step else []
    return ", ".join([name, *other])


def _describe_padding(strategy: Strategy) -> str:
    named = {
        "packed": "none (packed)",
        "padded": "longest",
        "grouped": "longest, grouped by length",
        "max_length": "max length",
    }[strategy.batching]
    multiple = f", multiple of {strategy.pad_multiple}" if strategy.pad_multiple > 1 else ""
    return named + multiple


def _read_text(recipe: Recipe) -> Fact:
    task = recipe.task
    texts = task.model_dump(mode="json", exclude={"max_source_tokens", "max_target_tokens"}, exclude_none=True)
    written = {name: texts.get(name) for name in ("prefix", "source", "target")}
    return Fact(json.dumps(texts, sort_keys=True), " -> ".join(str(text) for text in written.values() if text))


def _describe_evaluation(recipe: Recipe) -> str:
    found = recipe.eval
    limit = f"at most {found.max_new_tokens} tokens" if found.max_new_tokens else "limit from the data"
    parts = [format_number(found.beams, "beam"), limit] if recipe.model.kind == "text-to-text" else []
    parts += [f"metrics {', '.join(found.metrics)}"] if found.metrics else []
    parts += [f"best by {found.best or 'the main score'}"]
    parts += [f"early stopping after {found.early_stopping.patience}"] if found.early_stopping else []
    return ", ".join(parts)


def _describe_trained(recipe: Recipe, strategy: Strategy) -> str:
    lora = recipe.model.lora.model_dump() if recipe.model.lora else None
    lora = {"rank": strategy.lora_rank} if strategy.lora_rank else lora
    return describe_trained(lora, [*recipe.model.freeze, *strategy.freeze], recipe.model.trim_vocabulary)


def _describe_kernels(strategy: Strategy) -> str:
    parts = [f"attention {strategy.attention}", f"{strategy.loss} loss"]
    parts += ["compiled"] if strategy.compile else []
    parts += ["update in the backward pass"] if strategy.optimizer_in_backward else []
    parts += [f"{strategy.optimizer_kernel} optimizer kernel"] if strategy.optimizer_kernel != "auto" else []
    return ", ".join(parts)


def _name_layout(strategy: Strategy) -> str:
    name = {"auto": "DDP", "ddp": "DDP", "fsdp": strategy.sharding}.get(strategy.parallel, strategy.parallel)
    return f"{name}, offloaded" if strategy.offload else name


def _read_sources(recipe: Recipe) -> dict[str, Fact]:
    evaluation = recipe.eval.model_dump(mode="json")
    found = [read_source_facts(source.model_dump(mode="json"), evaluation) for source in recipe.sources]
    return {
        name: Fact(
            [one[name].value for one in found],
            "; ".join(one[name].text for one in found),
            "; ".join(one[name].place for one in found),
        )
        for name in ("data", "test_data")
    }


def read_run(run: Run, name: str) -> AuditItem:
    """What can't be read is a note: an audit shows the rest."""
    manifest, recipe = run.manifest, run.recipe
    rows = (manifest.get("data") or {}).get("rows") or {}
    processes = manifest.get("processes")
    facts = read_recipe_facts(recipe, _read_strategy(run), Counts(rows.get("train"), None), processes)
    steps, notes = _scan(run, files.STEPS)
    evaluations, more = _scan(run, files.EVALUATIONS)
    events, last = _scan(run, files.EVENTS)
    facts |= _read_steps(steps) | _read_manifest(manifest)
    if (run.path / files.EVENTS).is_file() or run.status != "finished":
        facts |= _read_recovery(run, events)
    during = [one for one in evaluations if one["step"] and one["split"] == "validation"]
    if during:
        facts["evaluations"] = Fact(len(during), f"{len(during)} of {during[-1].get('rows')} rows")
    scored = _find_scores(run, evaluations)
    scores = {key: value for key, value in (scored.get("scores") or {}).items() if isinstance(value, int | float)}
    if scored:
        split, count = str(scored.get("split")), scored.get("rows")
        facts["scored"] = Fact([split, count], f"{count} {split} rows", MEASURED)
    answers = scored.get("predictions") or []
    language = recipe.task.language or "en"
    return AuditItem(
        name=name,
        kind="run",
        source=str(run.path),
        facts=facts,
        figures=_read_figures(manifest, steps),
        scores=scores,
        scored_rows=scored.get("rows"),
        memory_is_summed=False,
        seeds=(recipe.seed,),
        notes=tuple(notes + more + last),
        right_rows={key: tuple(right) for key in scores if (right := find_right(key, answers, language))},
    )


def _scan(run: Run, name: str) -> tuple[list[dict[str, Any]], list[str]]:
    path = run.path / name
    found = RecordFile(path).scanned
    missing = [f"there is no {name}"] if name != files.EVALUATIONS and not path.is_file() else []
    return found.records, [*missing, *found.gaps]


def _read_strategy(run: Run) -> Strategy:
    """What was planned and used; of older runs what the recipe states."""
    from seqfit.strategy import load_strategy, read_strategy

    path = run.path / files.STRATEGY
    return read_strategy(path) if path.is_file() else load_strategy(run.recipe)


def _read_steps(steps: Sequence[Mapping[str, Any]]) -> dict[str, Fact]:
    if not steps:
        return {}
    facts = {"updates": Fact(steps[-1]["step"], f"{steps[-1]['step']:,}", MEASURED)}
    rows = [one["examples"] for one in steps if isinstance(one.get("examples"), int)]
    pieces = [one["micro_batches"] for one in steps if isinstance(one.get("micro_batches"), int)]
    passes = steps[-1].get("epoch")
    if rows:
        most = statistics.mode(rows)
        facts["rows_per_update"] = Fact(most, str(most), MEASURED)
    if pieces:
        typical = statistics.median_high(pieces)
        facts["accumulation"] = Fact(typical, str(typical), MEASURED)
    if isinstance(passes, int | float):
        facts["passes"] = Fact(round(passes, 2), format_passes(passes), MEASURED)
    return facts


def _read_manifest(manifest: Mapping[str, Any]) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    if manifest.get("precision"):
        facts["precision"] = Fact(manifest["precision"], manifest["precision"], MEASURED)
    fingerprint = (manifest.get("data") or {}).get("fingerprint")
    if fingerprint:
        facts["tokenized"] = Fact(fingerprint, fingerprint[:8], MEASURED)
    hardware = manifest.get("hardware") or {}
    known = {key: hardware[key] for key in ("device", "name", "threads", "cores", "host_bytes") if key in hardware}
    if known:
        threads = f", {format_number(known['threads'], 'thread')}" if known.get("device") == "cpu" else ""
        cores = f" of {format_number(known['cores'], 'core')}" if "cores" in known and threads else ""
        facts["machine"] = Fact(known, f"{known.get('name', known.get('device'))}{threads}{cores}", MEASURED)
    versions = {name: text for name, text in (manifest.get("versions") or {}).items() if name in _PACKAGES}
    commit = manifest.get("commit")
    if versions:
        shown = [f"{name} {versions[name]}" for name in ("seqfit", "torch", "transformers") if name in versions]
        facts["software"] = Fact([versions, commit], ", ".join([*shown, *([str(commit)[:8]] if commit else [])]))
    return facts


def _read_recovery(run: Run, events: Sequence[Mapping[str, Any]]) -> dict[str, Fact]:
    status = run.status
    happened = [f"{event['kind']}: {event['message']}" for event in events if event["kind"] in _OTHER_WORK]
    parts = [] if status == "finished" else [f"status: {status}"]
    parts += list(dict.fromkeys(happened))
    kinds = [] if status == "finished" else [status]
    kinds += sorted({str(event["kind"]) for event in events if event["kind"] in _OTHER_WORK})
    return {"recovery": Fact(kinds, "; ".join(parts) or "nothing", MEASURED)}


def _find_scores(run: Run, evaluations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of `seqfit evaluate` where it has scored the run, else of the last evaluation during training."""
    for split in _SCORED:
        report = run.evaluation(split)
        if report is not None:
            return {**report, "scores": report.get("metrics")}
    return evaluations[-1] if evaluations and evaluations[-1]["step"] else {}


def _read_figures(manifest: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    summary = summarise_steps(steps)
    peak = (manifest.get("prediction") or {}).get("measured_peak_bytes")
    device = (manifest.get("hardware") or {}).get("device")
    allocated = [one["memory_bytes"] for one in steps if isinstance(one.get("memory_bytes"), int)]
    bytes_ = peak if peak is not None else max(allocated, default=None) if device == "cuda" else None
    found = {"step_seconds": summary.step_seconds, "memory_bytes": bytes_}
    return {name: float(value) for name, value in found.items() if value is not None}
