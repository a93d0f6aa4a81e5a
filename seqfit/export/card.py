"""The model card: README.md of an exported folder, which the Hub shows as its page.

Everything in it is read from the run, the checkpoint's metadata and the check. What a run has not recorded is absent
with its reason. Paths of the machine that trained are reduced to their last part, and secrets are masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from seqfit.export.formats import Format
from seqfit.export.usage import describe_usage
from seqfit.metrics import format_score
from seqfit.model import Checkpoint
from seqfit.recipe import Recipe, TaskRecipe
from seqfit.rundir import Run, mask_data
from seqfit.telemetry import find_trained, summarise_gpus
from seqfit.units import format_bytes, format_count, format_seconds, format_share
from seqfit.yaml_text import write_yaml

CARD = "README.md"
_LIBRARIES = {"hf": "transformers", "ct2": "ctranslate2", "onnx": "onnx"}
_TASK_FIELDS = ("prefix", "source", "target", "answer_after", "source_language", "target_language", "labels")
_LONGEST_TEXT = 300


def write_card(
    folder: Path, chosen: Format, report: Mapping[str, Any], checkpoint: Checkpoint, run: Run | None
) -> None:
    manifest = run.manifest if run else {}
    recipe = run.recipe if run else None
    base = recipe.model.title if recipe else "a model"
    title = (
        recipe.model.title.split("/")[-1] + f" fine-tuned: {checkpoint.metadata.task.name}"
        if recipe
        else (f"Model for {checkpoint.metadata.task.name}")
    )
    parts = [
        _front_matter(chosen, checkpoint, recipe, run),
        f"# {title}",
        f"{base} fine-tuned with seqfit ({checkpoint.metadata.task.name}, {checkpoint.metadata.kind}). "
        f"Format: {chosen.title}, {report['precision']}. {_verdict(report)}",
        f"## Use\n\n{describe_usage(chosen.name, checkpoint)}",
        f"## Task\n\n{_table(('setting', 'value'), _task_rows(checkpoint.metadata.task, checkpoint))}",
        f"## Scores\n\n{_scores(run, checkpoint)}",
        f"## Data\n\n{_data(manifest)}",
        f"## Training\n\n{_training(run, checkpoint, manifest)}",
        f"## Check of this export\n\n{_check(report)}",
        f"## Limits\n\n{_limits(checkpoint, manifest, chosen)}",
    ]
    if recipe is not None:
        parts.append(f"## Recipe\n\n```yaml\n{write_yaml(_public_recipe(recipe)).rstrip()}\n```")
    (folder / CARD).write_text("\n\n".join(parts) + "\n", "utf-8")


def _front_matter(chosen: Format, checkpoint: Checkpoint, recipe: Recipe | None, run: Run | None) -> str:
    values: dict[str, Any] = {
        "library_name": _LIBRARIES[chosen.name],
        "tags": ["seqfit", checkpoint.metadata.task.name],
    }
    if recipe is not None and recipe.model.path is None and recipe.model.name:
        values["base_model"] = recipe.model.name
    if checkpoint.metadata.task.language:
        values["language"] = checkpoint.metadata.task.language
    metrics = sorted({name for _, scores, _ in _scored(run, checkpoint) for name in scores if name != "loss"})
    if metrics:
        values["metrics"] = metrics
    return f"---\n{write_yaml(values).rstrip()}\n---"


def _verdict(report: Mapping[str, Any]) -> str:
    if not report["passed"]:
        return "**It failed its check and should not be used**: " + "; ".join(report["problems"]) + "."
    check = report["check"]
    same = check["identical"] + check["ties"]
    return f"Checked: {same} of {check['rows']} rows have the checkpoint's answer."


def _task_rows(task: TaskRecipe, checkpoint: Checkpoint) -> list[tuple[str, str]]:
    values = task.model_dump(exclude_none=True)
    rows: list[tuple[str, str]] = [("name", task.name)]
    rows += [(name, _code(values[name])) for name in _TASK_FIELDS if values.get(name)]
    if checkpoint.metadata.kind != "classifier":
        rows.append(("longest answer", f"{checkpoint.metadata.max_new_tokens} tokens"))
        rows.append(("beams", str(checkpoint.metadata.beams)))
    if checkpoint.metadata.threshold is not None:
        rows.append(("threshold", f"{checkpoint.metadata.threshold:.3g}"))
    return rows


def _scored(run: Run | None, checkpoint: Checkpoint) -> list[tuple[str, dict[str, float], Mapping[str, Any]]]:
    """Split with its rows, scores, and intervals by score, by `seqfit evaluate` or as training recorded them."""
    if run is None:
        return []
    found = []
    results = {split: run.evaluation(split) or {} for split in run.evaluated_splits()}
    results = {split: result for split, result in results.items() if result.get("step") == checkpoint.metadata.step}
    for split, result in results.items():
        found.append((f"{split} ({result['rows']} rows)", dict(result["metrics"]), result.get("intervals") or {}))
    recorded = {record["split"]: record for record in run.evaluations() if record["step"] == checkpoint.metadata.step}
    for split, record in recorded.items():
        if split not in results:
            found.append((f"{split} ({record['rows']} rows)", dict(record["scores"]), record.get("intervals") or {}))
    return found


def _scores(run: Run | None, checkpoint: Checkpoint) -> str:
    rows = []
    for split, scores, intervals in _scored(run, checkpoint):
        for name, value in scores.items():
            interval = intervals.get(name)
            text = " to ".join(format_score(name, bound) for bound in interval) if interval else "not computed"
            rows.append((split, name, format_score(name, value), text))
    if not rows:
        return "None: this checkpoint was not evaluated in its run."
    return _table(("split", "score", "value", "95% confidence interval"), rows)


def _data(manifest: Mapping[str, Any]) -> str:
    data = manifest.get("data") or {}
    if not data.get("rows"):
        return "Not recorded."
    rows = [
        (split, f"{count:,}", *_lengths(data.get("lengths", {}).get(split, {})))
        for split, count in data["rows"].items()
    ]
    text = _table(("split", "rows", "source tokens", "target tokens", "truncated sources"), rows)
    if data.get("fingerprint"):
        text += f"\n\nFingerprint of the tokenized data: `{data['fingerprint'][:16]}`."
    return text


def _lengths(sides: Mapping[str, Any]) -> tuple[str, str, str]:
    def describe(side: Mapping[str, Any]) -> str:
        return f"median {side['median']:g}, longest {side['maximum']:,}" if side.get("maximum") else "-"

    source, target = sides.get("source") or {}, sides.get("target") or {}
    truncated = format_share(source["truncated_share"]) if "truncated_share" in source else "-"
    return describe(source), describe(target), truncated


def _training(run: Run | None, checkpoint: Checkpoint, manifest: Mapping[str, Any]) -> str:
    if run is None:
        return "Not recorded: the checkpoint was exported without its run."
    recipe, hardware = run.recipe, manifest.get("hardware") or {}
    train = recipe.train
    batch = f"{train.batch_examples} examples" if train.batch_examples else f"{train.batch_tokens} tokens"
    rows = [
        ("base model", _code(recipe.model.title)),
        ("parameters", format_count(manifest["parameters"]) if manifest.get("parameters") else "not recorded"),
        ("steps", f"{manifest.get('steps', 'not recorded')}, this checkpoint is of step {checkpoint.metadata.step}"),
        ("global batch", batch),
        ("learning rate", f"{train.learning_rate:g}, {train.schedule.name}"),
        ("optimizer", train.optimizer.name),
        ("precision", str(manifest.get("precision", "not recorded"))),
    ]
    if recipe.model.lora is not None:
        rows.append(("LoRA", f"rank {recipe.model.lora.rank}, merged into the weights"))
    if recipe.model.trim_vocabulary is not None:
        rows.append(("vocabulary", f"trimmed ({recipe.model.trim_vocabulary})"))
    if hardware:
        processes = manifest.get("processes") or 1
        rows.append(("hardware", f"{processes} x {hardware.get('name', hardware.get('device', 'unknown'))}"))
    if manifest.get("started") and manifest.get("ended"):
        rows.append(("time", format_seconds(manifest["ended"] - manifest["started"])))
    rows.append(("energy of the GPUs", _energy(run, hardware)))
    versions = manifest.get("versions") or {}
    rows.append(
        (
            "software",
            ", ".join(f"{name} {versions[name]}" for name in ("seqfit", "torch", "transformers") if name in versions),
        )
    )
    return _table(("", ""), rows)


def _energy(run: Run, hardware: Mapping[str, Any]) -> str:
    sensors = run.sensors() or {}
    listed = sensors.get("gpus") or []
    trained = find_trained(listed, hardware)
    used = [gpu.energy_joules for gpu in summarise_gpus(run.telemetry()) if not listed or gpu.gpu in trained]
    known = [joules for joules in used if joules is not None]
    if not known:
        return "not measured" + (": no GPU was used" if hardware.get("device") == "cpu" else "")
    part = f", {len(known)} of {len(used)} GPUs" if len(known) < len(used) else ""
    return f"{sum(known) / 3600:.1f} Wh (GPUs alone, by their own counters{part})"


def _check(report: Mapping[str, Any]) -> str:
    check = report["check"]
    rows = [
        ("result", "passed" if report["passed"] else "**failed**"),
        ("rows", f"{check['rows']} of {report['split']}"),
        ("same answer as the checkpoint", str(check["identical"])),
        ("ties (equal logits up to rounding)", str(check["ties"])),
        ("changed answers", str(check["changed"])),
    ]
    if check["long_rows"]:
        rows.append(
            (
                f"answers of {check['long_tokens']} tokens that differ",
                f"{check['long_changed']} of {check['long_rows']}",
            )
        )
    rows += [
        ("largest difference of a log-probability", f"{check['largest_difference']:.1e}"),
        (
            "size",
            f"{format_bytes(report['exported_bytes'])} "
            f"(checkpoint's weights: {format_bytes(report['checkpoint_bytes'])})",
        ),
        ("rows/s on the CPU, export", f"{check['rows'] / max(check['exported_seconds'], 1e-9):.1f}"),
        (
            "rows/s on the CPU, checkpoint in transformers",
            f"{check['rows'] / max(check['checkpoint_seconds'], 1e-9):.1f}",
        ),
    ]
    text = _table(("", ""), rows)
    examples = [
        (_shorten(item["source"]), _shorten(item["checkpoint"]), _shorten(item["exported"]))
        for item in check["differences"]
    ]
    if examples:
        text += "\n\n" + _table(("source", "checkpoint", "export"), examples)
    return text


def _limits(checkpoint: Checkpoint, manifest: Mapping[str, Any], chosen: Format) -> str:
    task, limits = checkpoint.metadata.task, []
    sources = ((manifest.get("data") or {}).get("lengths") or {}).get("train", {}).get("source") or {}
    if sources.get("maximum"):
        limits.append(f"It was trained on sources of up to {sources['maximum']:,} tokens; longer ones are untested.")
    bound = min(filter(None, (task.max_source_tokens, checkpoint.position_limit)), default=None)
    if bound is not None:
        limits.append(f"Sources are truncated to {bound:,} tokens.")
    if checkpoint.metadata.kind != "classifier":
        limits.append(f"Answers end after {checkpoint.metadata.max_new_tokens} tokens.")
        limits.append("It writes texts that are likely after its training data, and may be wrong with confidence.")
    limits.append("Its scores hold for data like that above, and for no other language, domain or template.")
    limits.append("The license is that of the base model and the data; this card names none.")
    if chosen.name != "hf":
        limits.append("The check ran on the CPU; a GPU adds in another order, so single answers may differ there.")
    return "\n".join(f"- {limit}" for limit in limits)


def _public_recipe(recipe: Recipe) -> dict[str, Any]:
    def shorten(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: shorten(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [shorten(inner, key) for inner in value]
        if isinstance(value, str) and PurePath(value).is_absolute():
            return PurePath(value).name
        return value

    masked: dict[str, Any] = mask_data(shorten(recipe.model_dump(mode="json", exclude_defaults=True)))
    return masked


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else ", ".join(map(str, value))
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."
