"""The names of the files in a run directory. Nobody else spells one.

runs/demo-20260102-030405/
  recipe.yaml  strategy.yaml  manifest.json
  steps.jsonl  evaluations.jsonl  events.jsonl     one record a line, appended while training
  telemetry.jsonl                                  readings of GPUs and host, one sample a line, by a process of its own
  sensors.json                                     what that process reads, and why it lacks what it lacks
  checkpoint/                                      the best model, Hugging Face layout
  snapshots/step-00000120/                         all that an exact resume needs, the last few and the best
  .lock                                            held by the process that writes
  evaluation-test.json                             scores and predictions, written by `seqfit evaluate`
  summary.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

RECIPE = "recipe.yaml"
STRATEGY = "strategy.yaml"
MANIFEST = "manifest.json"
STEPS = "steps.jsonl"
EVALUATIONS = "evaluations.jsonl"
EVENTS = "events.jsonl"
TELEMETRY = "telemetry.jsonl"
SENSORS = "sensors.json"
CHECKPOINT = "checkpoint"
SNAPSHOTS = "snapshots"
LOCK = ".lock"
SUMMARY = "summary.html"


def beside(folder: Path, state: Literal["new", "old"]) -> Path:
    """Where a folder is written before it takes its place, and where the one it replaces waits meanwhile."""
    return folder.with_name(f".{folder.name}.{state}")


def evaluation(split: str, *, before: bool = False) -> str:
    """Scores and predictions of one split, after fine-tuning or before it."""
    return f"evaluation-{split}{'-before' if before else ''}.json"
