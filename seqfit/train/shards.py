"""Snapshots of a model that no process has as a whole: each writes its own part, and any number of them reads it.

In: tensors, some of them shards of larger ones. Out: a folder of the same kind as any snapshot, with a file of each
process instead of one. torch's distributed checkpoint writes and reads the parts, here as safetensors: no pickle is in
it. Where the processes are others than before, it hands each what it needs; but for DeepSpeed's ZeRO, whose parts are
those of so many processes.

    snapshots/step-00000120/shards/shard-00001-model-00001-of-00001.safetensors     rank 0's
                                   shard-00002-...                                  rank 1's
                            snapshot.json                                           facts, and the hash of every file
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from seqfit.errors import RunError, complain
from seqfit.parallel.world import World
from seqfit.step.optimizer_state import PARTS
from seqfit.train.snapshot import SHARDS, Shards, Snapshot, SnapshotDraft, told_failures


def write_shards(run: Path, snapshot: Snapshot, world: World, *, keep: int) -> None:
    """All processes write, the first one gives the folder its name."""
    draft = SnapshotDraft(run, snapshot.step)
    with told_failures(snapshot.step, draft.folder.parent):
        if world.is_first:
            draft.begin()
        world.wait()
        try:
            with _quiet_torch():
                storage = HuggingFaceStorageWriter(str(draft.folder / SHARDS), save_distributed=True)
                plain = {name: tensor.detach() for name, tensor in _held(snapshot.tensors).items()}
                save(plain, storage_writer=storage, process_group=world.hosts)
        except CheckpointException as error:  # on all of them, whoever has failed; it is no Exception
            if world.is_first:
                draft.drop()
            raise OSError(_first_reason(error)) from error
        own = [path.name for path in (draft.folder / SHARDS).glob(f"shard-{world.rank + 1:05d}-*")]
        names = [f"{SHARDS}/{name}" for part in world.gather(own) for name in part]
        if world.is_first:
            draft.finish(snapshot.facts, keep=keep, written=names)
        world.wait()


def copy_tensors(snapshot: Snapshot, live: Mapping[str, torch.Tensor]) -> None:
    """Into the tensors of a run that goes on; each is read when its turn comes."""
    _check_parts(snapshot, live)
    if isinstance(snapshot.tensors, Shards):
        try:
            with _quiet_torch():
                load(_held(live), storage_reader=HuggingFaceStorageReader(str(snapshot.tensors.folder)))
        except CheckpointException as error:
            raise RunError(
                complain(
                    f"the snapshot '{snapshot.tensors.folder.parent}' can't be read ({_first_reason(error)})",
                    "every process needs its part of it",
                    "Remove that folder: the run then goes on from the one before",
                )
            ) from error
        return
    with torch.no_grad():
        for name, tensor in live.items():
            value = snapshot.tensors[name]
            if isinstance(tensor, DTensor):  # of a run that was one process's: each takes its part
                value = distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements)
            tensor.copy_(value)


def _held(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """ZeRO-3 leaves a module's weights empty between two steps: they are among the parts of the optimizer's state."""
    return {name: tensor for name, tensor in tensors.items() if tensor.numel()}


def _check_parts(snapshot: Snapshot, live: Mapping[str, torch.Tensor]) -> None:
    found = (re.match(r"optimizer/part-\d+-of-(\d+)/", name) for name in live)
    now = next((int(match[1]) for match in found if match is not None), None)
    then = snapshot.facts.get("optimizer", {}).get(PARTS)
    if now != then:
        raise RunError(
            complain(
                f"the snapshot of step {snapshot.step} was written by {then or 1} of ZeRO's processes, and {now or 1} "
                "would read it",
                "DeepSpeed cuts weights and state by the number of processes, and its parts are not cut anew",
                f"Go on with {then or 1}, or start a new run from the checkpoint with strategy.sharding=fsdp2",
            )
        )


def _first_reason(error: CheckpointException) -> str:
    """torch gathers what went wrong by rank; the first that failed."""
    rank, failure = min(error.failures.items())
    reason = failure[0] if isinstance(failure, tuple) else failure
    return f"rank {rank}: {getattr(reason, 'strerror', None) or reason}"


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """torch warns of its own interfaces that it uses here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
