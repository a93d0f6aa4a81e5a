"""The names of the files in a run directory. No other module spells one.

runs/demo-20260102-030405/
  recipe.yaml  strategy.yaml  manifest.json
  steps.jsonl  evaluations.jsonl  events.jsonl     one record per line, appended while training
  telemetry.jsonl                                  samples of GPUs and host, one per line, by a separate process
  sensors.json                                     what that process samples, and why it lacks what it lacks
  checkpoint/                                      the best model, Hugging Face layout, and seqfit.json: its task
  snapshots/step-00000120/                         all that an exact resume needs; the last few and the best
  ranks/                                           notes of processes that had to stop
  .lock                                            held by the process that writes
  evaluation-test.json                             scores and predictions, written by `seqfit evaluate`
  feedback.jsonl  feedback-rejected.jsonl          ratings of served answers: rows to train on, and those without a
                                                   right answer
  summary.html
  profile/summary.json                             written by `seqfit profile RUN`, next to its traces
  job.sbatch  submissions.jsonl  slurm-17.out      of a run submitted to Slurm: job file, job ids, logs
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from seqfit.system import quote

RECIPE = "recipe.yaml"
STRATEGY = "strategy.yaml"
MANIFEST = "manifest.json"
STEPS = "steps.jsonl"
EVALUATIONS = "evaluations.jsonl"
EVENTS = "events.jsonl"
TELEMETRY = "telemetry.jsonl"
SENSORS = "sensors.json"
CHECKPOINT = "checkpoint"
CHECKPOINT_METADATA = "seqfit.json"
SNAPSHOTS = "snapshots"
RANKS = "ranks"
LOCK = ".lock"
FEEDBACK = "feedback.jsonl"
FEEDBACK_REJECTED = "feedback-rejected.jsonl"
SUMMARY = "summary.html"
JOB = "job.sbatch"
SUBMISSIONS = "submissions.jsonl"
PROFILE = "profile"
PROFILE_SUMMARY = "summary.json"


def evaluation(split: str, *, before: bool = False) -> str:
    return f"evaluation-{split}{'-before' if before else ''}.json"


def new_run(name: str) -> Path:
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def describe_resume(run: Path) -> str:
    return f"run: seqfit train {quote(run)} --resume"


def slurm_log(job: str) -> str:
    """A job's output; `job` is its id, or sbatch's pattern for it."""
    return f"slurm-{job}.out"


def is_job_file(name: str) -> bool:
    """Whether it belongs to a Slurm job, and may be there before training begins."""
    return name in (JOB, SUBMISSIONS) or (name.startswith("slurm-") and name.endswith(".out"))
