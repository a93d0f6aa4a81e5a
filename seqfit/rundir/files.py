"""The names of the files in a run directory. Nobody else spells one.

runs/demo-20260102-030405/
  recipe.yaml  strategy.yaml  manifest.json
  steps.jsonl  evaluations.jsonl  events.jsonl     one record a line, appended while training
  telemetry.jsonl                                  readings of GPUs and host, one sample a line, by a process of its own
  sensors.json                                     what that process reads, and why it lacks what it lacks
  checkpoint/                                      the best model, Hugging Face layout
  snapshots/step-00000120/                         all that an exact resume needs, the last few and the best
  ranks/                                           notes of processes that could not go on
  .lock                                            held by the process that writes
  evaluation-test.json                             scores and predictions, written by `seqfit evaluate`
  summary.html
  profile/summary.json                             of `seqfit profile RUN`, beside its traces
  job.sbatch  submissions.jsonl  slurm-17.out      of a run that `seqfit submit` gave to Slurm: its job file, which jobs
                                                   it was, and what they printed
"""

from __future__ import annotations

from datetime import datetime
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
RANKS = "ranks"
LOCK = ".lock"
SUMMARY = "summary.html"
JOB = "job.sbatch"
SUBMISSIONS = "submissions.jsonl"
PROFILE = "profile"
PROFILE_SUMMARY = "summary.json"


def beside(folder: Path, state: Literal["new", "old"]) -> Path:
    """Where a folder is written before it takes its place, and where the one it replaces waits meanwhile."""
    return folder.with_name(f".{folder.name}.{state}")


def evaluation(split: str, *, before: bool = False) -> str:
    """Scores and predictions of one split, after fine-tuning or before it."""
    return f"evaluation-{split}{'-before' if before else ''}.json"


def new_run(name: str) -> Path:
    """Where a run goes that is told no place."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def slurm_log(job: str) -> str:
    """What a job prints; `job` is its number, or sbatch's pattern for it."""
    return f"slurm-{job}.out"


def is_of_a_job(name: str) -> bool:
    """Whether it is written for Slurm or by it, which may be before training begins."""
    return name in (JOB, SUBMISSIONS) or (name.startswith("slurm-") and name.endswith(".out"))
