"""The interface of a tracker, and the tools that have one.

In: the name of a tool. Out: a `Tracker` for one run. Each is one file that imports its library when it is opened, so a
missing package is an error before anything is sent.

    tracker = open_tracker("tensorboard", Identity("demo", "3f2a9c1b77d0", "seqfit", 1770000000.0))
    tracker.config({"recipe.train.steps": 250})
    tracker.scalars({"train/loss": 0.31}, step=10, time=1770000021.5)
    tracker.finish("finished", 1770000060.0, {"final/test/f1": 87.1})
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from seqfit.errors import RecipeError, did_you_mean
from seqfit.rundir import Run

TrackedValue = str | int | float | bool
ToolName = Literal["tensorboard", "trackio", "wandb", "mlflow"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a run, the same however often and from wherever it is sent."""

    name: str  # of the run directory
    id: str  # 12 hexadecimal digits
    project: str
    started: float  # Unix time

    @property
    def label(self) -> str:
        """Readable, and different for two runs of the same name."""
        return f"{self.name}-{self.id[:8]}"


def identify_run(run: Run, project: str) -> Identity:
    """From its start, its data and its command: renaming its directory does not make it another run."""
    manifest = run.manifest
    started = float(manifest.get("started") or 0.0)
    source = f"{started!r} {manifest.get('data', {}).get('fingerprint')} {manifest.get('command')}"
    name = run.path.resolve().name
    return Identity(name, hashlib.sha256(source.encode()).hexdigest()[:12], project, started)


class Tracker(Protocol):
    """One run in one tool. Values may be buffered until `flush`."""

    place: str  # where the user finds it
    sent_until: float | None  # the tool has the run up to this Unix time, and can't replace it

    def config(self, values: Mapping[str, TrackedValue]) -> None:
        """Recipe, strategy and environment, by dotted names."""

    def scalars(self, values: Mapping[str, float], step: int, time: float) -> None: ...
    def note(self, kind: str, message: str, step: int, time: float) -> None: ...
    def flush(self) -> None: ...
    def finish(self, status: str, ended: float | None, scores: Mapping[str, float]) -> None:
        """The status at its end ('running' if it goes on, 'died' if its process is gone), and its final scores."""


TrackerOpener = Callable[[Identity], Tracker]
# Tool -> package, our module, class. The tool's name is also that of seqfit's extra.
TOOLS: dict[str, tuple[str, str, str]] = {
    "tensorboard": ("tensorboard", "seqfit.tracking.tensorboard", "TensorBoardTracker"),
    "trackio": ("trackio", "seqfit.tracking.trackio", "TrackioTracker"),
    "wandb": ("wandb", "seqfit.tracking.wandb", "WandbTracker"),
    "mlflow": ("mlflow", "seqfit.tracking.mlflow", "MlflowTracker"),
}


def check_tool(tool: str) -> None:
    """RecipeError for a tool that is unknown or not installed, found without importing it."""
    if tool not in TOOLS:
        raise RecipeError(
            f"'{tool}' is not a known tracker",
            f"the trackers are {', '.join(TOOLS)}",
            did_you_mean(tool, TOOLS).strip() or "Name one of them",
        )
    package = TOOLS[tool][0]
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:  # a folder of that name, such as wandb/, has no origin
        raise RecipeError(
            f"the tracker is {tool}",
            f"it needs the package {package}, which is not installed",
            f"Run pip install 'seqfit[{tool}]'",
        )


def open_tracker(tool: str, identity: Identity) -> Tracker:
    check_tool(tool)
    _, module, name = TOOLS[tool]
    opener: TrackerOpener = getattr(importlib.import_module(module), name)
    return opener(identity)
