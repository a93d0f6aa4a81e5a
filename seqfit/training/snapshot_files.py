"""Snapshots on disk, whole or one part per process: written aside, synced, hashed, renamed.

In: tensors by name and facts as JSON. Out: a folder in the run directory.

    snapshots/step-00000120/state.safetensors     all tensors
                            snapshot.json         the facts, the hash of that file, and their own hash
    snapshots/.step-00000140.new/                 a run was killed here: never read, removed by the next one

A folder gets its final name only after both files and their folder are on disk, so whatever has that name is whole
unless the disk damaged it, which the hash detects. No pickle is written or read.

Where no process holds the whole model (FSDP, pipeline, ZeRO), each writes its own part by torch's distributed
checkpoint, also as safetensors, and any number of processes can read it. The exception is DeepSpeed's ZeRO, whose parts
need the same number of processes.

    snapshots/step-00000120/shards/shard-00001-model-00001-of-00001.safetensors     rank 0's
                                   shard-00002-...                                  rank 1's
                            snapshot.json                                           facts, and the hash of every file
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from seqfit.errors import RunError, TrainingFailed
from seqfit.parallel import PARTS, World
from seqfit.rundir import FolderDraft, files, records

_STATE, _FACTS = "state.safetensors", "snapshot.json"
SHARDS = "shards"
_FACTS_HASH = "facts_sha256"  # of all the other facts


class Damaged(Exception):
    """A corrupted or truncated snapshot; the message says what is wrong with it."""


@dataclass(frozen=True)
class Snapshot:
    step: int
    tensors: Mapping[str, torch.Tensor]  # of a loaded one: each is read from disk on access
    facts: Mapping[str, Any]


class SnapshotWriter:
    """Writes the snapshots of one run, and keeps the last few and the best.

    Tensors of a GPU are copied to the host, and a thread writes them during training. Those of a CPU are written before
    the next step changes them: a copy would take as much memory again as weights and state.
    """

    def __init__(self, run: Path, *, keep: int, in_background: bool) -> None:
        self._run = run
        self._keep = keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seqfit-snapshot") if in_background else None
        self._writing: Future[None] | None = None
        self._written: deque[records.SnapshotEvent] = deque()  # filled by the thread, emptied by `take_written`

    def write(self, snapshot: Snapshot, *, began: float) -> None:
        """Start writing; raises an earlier one's error. `began`: when training stopped for it, Unix time."""
        self.wait()
        if self._thread is None:
            self._write(snapshot, began)
            return
        copied = {name: tensor.to("cpu", copy=True) for name, tensor in snapshot.tensors.items()}
        taken = Snapshot(snapshot.step, copied, snapshot.facts)
        self._writing = self._thread.submit(self._write, taken, began, waited_seconds=time.time() - began)

    def take_written(self) -> list[records.SnapshotEvent]:
        """Those completed since the last call: the thread can't write a run's records itself."""
        return [self._written.popleft() for _ in range(len(self._written))]

    def wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()

    def _write(self, snapshot: Snapshot, began: float, waited_seconds: float | None = None) -> None:
        draft = SnapshotDraft(self._run, snapshot.step)
        with _explained_failures(snapshot.step, draft.folder.parent):
            draft.begin()
            try:
                save_file(_without_sharing(snapshot.tensors), draft.folder / _STATE)
                draft.finish(snapshot.facts, keep=self._keep, written=[_STATE])
            except BaseException:
                draft.drop()
                raise
        ended = time.time()
        waited = ended - began if waited_seconds is None else waited_seconds
        self._written.append(records.SnapshotEvent(snapshot.step, began, ended, waited))


@contextlib.contextmanager
def _explained_failures(step: int, folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TrainingFailed(
            f"the snapshot of step {step} can't be written to '{folder}' ({reason})",
            "training does not continue without its snapshots",
            f"Make room (train.snapshot.keep=1 takes less), then {files.describe_resume(folder.parent)}",
        ) from error


class SnapshotDraft:
    def __init__(self, run: Path, step: int) -> None:
        self._step = step
        self._draft = FolderDraft(snapshot_folder(run, step))
        self._place, self.folder = self._draft.folder, self._draft.path

    def begin(self) -> None:
        """An empty folder; leftovers of killed runs are removed."""
        snapshots = self._place.parent
        snapshots.mkdir(exist_ok=True)
        for leftover in (*snapshots.glob(".*.new"), *snapshots.glob(".*.old")):
            shutil.rmtree(leftover)
        self.folder.mkdir()

    def drop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def finish(self, facts: Mapping[str, Any], *, keep: int, written: Sequence[str]) -> None:
        """Hash what was written, add the facts, rename the folder, and remove older ones beyond `keep`."""
        hashes = {name: _hash(self.folder / name) for name in written}
        whole = {**facts, "step": self._step, "sha256": hashes}
        text = json.dumps(whole | {_FACTS_HASH: _hash_facts(whole)}, indent=1, allow_nan=False)
        (self.folder / _FACTS).write_text(text, "utf-8")
        self._draft.finish()  # one that is there was taken twice, or is of steps that are repeated
        for folder in self._place.parent.glob("step-*"):
            if folder.name > self._place.name:  # damaged, or lost: this run continued from an earlier one
                shutil.rmtree(folder)
        best_is_kept = False  # the newest with the best model stays, and the last `keep`
        for number, snapshot in enumerate(sorted(self._place.parent.glob("step-*"), reverse=True)):
            is_best = False
            with contextlib.suppress(Damaged):
                is_best = bool(_read_facts(snapshot).get("is_best"))
            if number >= keep and (best_is_kept or not is_best):
                shutil.rmtree(snapshot)
            best_is_kept = best_is_kept or is_best


def snapshot_folder(run: Path, step: int) -> Path:
    return run / files.SNAPSHOTS / f"step-{step:08d}"


def find_snapshots(run: Path) -> list[Path]:
    """The newest first."""
    return sorted((run / files.SNAPSHOTS).glob("step-*"), reverse=True)


def load_snapshot(folder: Path, *, is_checked: bool = False) -> Snapshot:
    """Raises `Damaged` where a file is missing, truncated or corrupted; `is_checked`: by another process."""
    facts = _read_facts(folder)
    try:
        for name, written in {} if is_checked else facts["sha256"].items():
            if _hash(folder / name) != written:
                raise Damaged(f"{name} is not what was written")
        is_whole = (folder / _STATE).exists()
        tensors = _TensorsOnDisk(folder / _STATE) if is_whole else Shards(folder / SHARDS)
        return Snapshot(int(facts["step"]), tensors, facts)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / _FACTS).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Damaged(f"{_FACTS} can't be read ({type(error).__name__})") from error
    if not isinstance(facts, dict):
        raise Damaged(f"{_FACTS} holds no object")
    if facts.pop(_FACTS_HASH, None) != _hash_facts(facts):
        raise Damaged(f"{_FACTS} is not what was written")
    return facts


class Shards(dict[str, torch.Tensor]):
    """Tensors of which every process has written a part: empty here, `copy_tensors` reads them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


class _TensorsOnDisk(Mapping[str, torch.Tensor]):
    """Reads one tensor at a time: a process that goes back to a snapshot has weights and state in memory already."""

    def __init__(self, path: Path) -> None:
        self._stored = safe_open(path, "pt")
        self._names = dict.fromkeys(self._stored.keys())

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: torch.Tensor = self._stored.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _without_sharing(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """safetensors refuses tensors that share memory: the second of two is written as a copy."""
    seen: set[int] = set()
    apart: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        whole = tensor.is_contiguous() and storage not in seen
        apart[name] = tensor.detach() if whole else tensor.detach().clone(memory_format=torch.contiguous_format)
        seen.add(storage)
    return apart


def _hash_facts(facts: Mapping[str, Any]) -> str:
    as_read = json.loads(json.dumps(facts, allow_nan=False))  # with keys as JSON has them
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_shards(run: Path, snapshot: Snapshot, world: World, *, keep: int) -> None:
    """All ranks write, the first one renames the folder. A collective: all ranks call it."""
    draft = SnapshotDraft(run, snapshot.step)
    with _explained_failures(snapshot.step, draft.folder.parent):
        if world.is_first:
            draft.begin()
        world.barrier()
        try:
            with _quiet_torch():
                storage = HuggingFaceStorageWriter(str(draft.folder / SHARDS), save_distributed=True)
                plain = {name: tensor.detach() for name, tensor in _held(snapshot.tensors).items()}
                save(plain, storage_writer=storage, process_group=world.hosts)
        except CheckpointException as error:  # on all ranks, whichever failed; not a subclass of Exception
            if world.is_first:
                draft.drop()
            raise OSError(_first_reason(error)) from error
        own = [path.name for path in (draft.folder / SHARDS).glob(f"shard-{world.rank + 1:05d}-*")]
        names = [f"{SHARDS}/{name}" for part in world.all_gather(own) for name in part]
        if world.is_first:
            draft.finish(snapshot.facts, keep=keep, written=names)
        world.barrier()


def copy_tensors(snapshot: Snapshot, live: Mapping[str, torch.Tensor]) -> None:
    """Into the live tensors of a run, one by one."""
    found = (re.match(r"optimizer/part-\d+-of-(\d+)/", name) for name in live)
    now = next((int(match[1]) for match in found if match is not None), None)
    then = snapshot.facts.get("optimizer", {}).get(PARTS)
    if now != then:
        raise RunError(
            f"the snapshot of step {snapshot.step} was written by {then or 1} processes of ZeRO, "
            f"and {now or 1} would read it",
            "DeepSpeed splits weights and state by the number of processes, and its parts can't be split again",
            f"Resume with {then or 1}, or start a new run from the checkpoint with strategy.sharding=fsdp2",
        )
    if isinstance(snapshot.tensors, Shards):
        try:
            with _quiet_torch():
                load(_held(live), storage_reader=HuggingFaceStorageReader(str(snapshot.tensors.folder)))
        except CheckpointException as error:
            raise RunError(
                f"the snapshot '{snapshot.tensors.folder.parent}' can't be read ({_first_reason(error)})",
                "every process needs its part of it",
                "Remove that folder: the run then continues from the snapshot before",
            ) from error
        return
    with torch.no_grad():
        for name, tensor in live.items():
            value = snapshot.tensors[name]
            if isinstance(tensor, DTensor):  # the snapshot is of a single process: each rank takes its shard
                value = distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements)
            tensor.copy_(value)


def _held(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """ZeRO-3 leaves a module's weights empty between steps: they are in the parts of the optimizer state."""
    return {name: tensor for name, tensor in tensors.items() if tensor.numel()}


def _first_reason(error: CheckpointException) -> str:
    """Of the first rank that failed; torch collects errors by rank."""
    rank, failure = min(error.failures.items())
    reason = failure[0] if isinstance(failure, tuple) else failure
    return f"rank {rank}: {getattr(reason, 'strerror', None) or reason}"


@contextlib.contextmanager
def _quiet_torch() -> Iterator[None]:
    """torch warns about interfaces of its own that it uses here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
