"""Snapshots of a model that no process has as a whole: each writes its own part, and any number of them reads it.

In: tensors, some of them shards of larger ones. Out: a folder of the same kind as any snapshot, with a file of each
process instead of one. torch's distributed checkpoint writes and reads the parts, here as safetensors: no pickle is in
it. Where the processes are others than before, it hands each what it needs.

    snapshots/step-00000120/shards/shard-00001-model-00001-of-00001.safetensors     rank 0's
                                   shard-00002-...                                  rank 1's
                            snapshot.json                                           facts, and the hash of every file
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from seqfit.parallel.world import World
from seqfit.train.snapshot import SHARDS, Shards, Snapshot, SnapshotDraft, told_failures


def write_shards(run: Path, snapshot: Snapshot, world: World, *, keep: int) -> None:
    """All processes write, the first one gives the folder its name."""
    draft = SnapshotDraft(run, snapshot.step)
    with told_failures(snapshot.step, draft.folder.parent):
        if world.is_first:
            draft.begin()
        world.wait()
        with _quiet_torch():
            storage = HuggingFaceStorageWriter(str(draft.folder / SHARDS), save_distributed=True)
            plain = {name: tensor.detach() for name, tensor in snapshot.tensors.items()}
            save(plain, storage_writer=storage, process_group=world.hosts)
        world.wait()
        if world.is_first:
            draft.finish(snapshot.facts, keep=keep)
        world.wait()


def copy_tensors(snapshot: Snapshot, live: Mapping[str, torch.Tensor]) -> None:
    """Into the tensors of a run that goes on; each is read when its turn comes."""
    if isinstance(snapshot.tensors, Shards):
        with _quiet_torch():
            load(dict(live), storage_reader=HuggingFaceStorageReader(str(snapshot.tensors.folder)))
        return
    with torch.no_grad():
        for name, tensor in live.items():
            tensor.copy_(snapshot.tensors[name])


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """torch warns of its own interfaces that it uses here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
