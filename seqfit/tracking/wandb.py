"""Weights & Biases: one run with a fixed id, offline unless WANDB_MODE says online.

In: a run's scalars and notes. Out: WANDB_DIR/wandb/offline-run-...-ID, for `wandb sync`, or the run on the server.
Its own step only counts rows and can't go back; so a row carries `step` and `seconds` as values, and charts use them as
x axes: `step` for all, `seconds` for host and GPUs, which have several samples per step.

    scalars({"train/loss": 0.3}, step=10, time=100.5)  ->  {"train/loss": 0.3, "step": 10, "_timestamp": 100.5, ...}

Offline, an export replaces the folder of an earlier one. Online, history can't be replaced: the run is resumed, and
what is older than its newest row is not sent again. wandb adds its own usage record (versions of Python and wandb,
platform, functions called); code, console, packages, host name and system metrics are switched off.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import wandb

from seqfit.errors import SeqfitError
from seqfit.tracking.tracker import Identity, TrackedValue


class WandbTracker:
    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        mode = os.environ.get("WANDB_MODE") or "offline"
        folder = Path(os.environ.get("WANDB_DIR") or ".")
        if mode == "offline":
            for earlier in folder.glob(f"wandb/offline-run-*-{identity.id}*"):
                shutil.rmtree(earlier)
        with _explained():
            self._run = wandb.init(
                project=identity.project,
                id=identity.id,
                name=identity.label,
                dir=folder,
                resume=None if mode == "offline" else "allow",  # offline nobody knows what the server has
                reinit="create_new",
                settings=wandb.Settings(
                    mode=mode,
                    silent=True,
                    host="-",  # None would be the machine's name
                    console="off",
                    disable_git=True,
                    disable_code=True,
                    save_code=False,
                    disable_job_creation=True,
                    x_disable_stats=True,
                    x_disable_meta=True,
                    x_disable_machine_info=True,
                    x_save_requirements=False,
                ),
            )
        self.place = str(Path(self._run.dir).parent if mode == "offline" else self._run.url)
        newest = self._run.summary.get("_timestamp") if self._run.resumed else None  # row on the server
        self.sent_until = None if newest is None else float(newest)
        self._run.define_metric("*", step_metric="step")
        for names in ("host/*", "gpu/*"):
            self._run.define_metric(names, step_metric="seconds")

    def config(self, values: Mapping[str, TrackedValue]) -> None:
        self._run.config.update(dict(values), allow_val_change=True)

    def scalars(self, values: Mapping[str, float], step: int, time: float) -> None:
        seconds = time - self._identity.started
        self._run.log({**values, "step": step, "seconds": seconds, "_timestamp": time, "_runtime": seconds})

    def note(self, kind: str, message: str, step: int, time: float) -> None:
        """A row of text: the newest of each kind is in the summary as well."""
        self._run.log({f"events/{kind}": message, "step": step, "_timestamp": time})

    def flush(self) -> None:
        """Rows are sent as they come."""

    def finish(self, status: str, ended: float | None, scores: Mapping[str, float]) -> None:
        self._run.summary.update({**scores, "status": status})
        with _explained():
            self._run.finish(exit_code=0 if status in ("finished", "running") else 1)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except wandb.Error as error:
        raise SeqfitError(
            f"wandb refused the run ({str(error).splitlines()[0]})",
            "online it needs an account and a network",
            "Run wandb login, or unset WANDB_MODE to write it here and send it later with wandb sync",
        ) from error
