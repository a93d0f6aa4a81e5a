"""A limit on the process's own memory, so that on a CPU, too, running out of it is an error that can be recovered from.

Without one, Linux hands out more memory than there is and later kills a process that uses it. The limit is the
system's own (RLIMIT_DATA): it tracks what the process maps for itself to write, heap and large blocks, without cost,
and refuses what goes beyond; torch's allocator then raises. In a container whose group may use so much and no more,
that is the limit where none is asked for. Processes of one run that share the group share what is left of it alike.

    --memory-limit 4GiB      group's limit 3 GiB, 1 GiB used; 0.5 GiB mapped by this process      ->      2.5 GiB
    the same, two processes                                                                       ->      1.5 GiB each
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from seqfit.errors import RecipeError, complain
from seqfit.hardware.cgroup import read_limits
from seqfit.system import data_limit, has_memory_limits
from seqfit.units import format_bytes

_STATUS = Path("/proc/self/status")


@contextlib.contextmanager
def limited_memory(asked_bytes: int | None, device: torch.device, sharers: int = 1) -> Iterator[int | None]:
    """Holds inside the block; yields the limit in bytes, None where there is none.

    `sharers`: processes of the run on this machine. What is asked for holds for each of them.
    """
    limit_bytes = _choose_limit(asked_bytes, device, sharers)
    if limit_bytes is None:
        yield None
        return
    with data_limit(limit_bytes):
        yield limit_bytes


def _choose_limit(asked_bytes: int | None, device: torch.device, sharers: int) -> int | None:
    if device.type != "cpu" or not has_memory_limits():
        if asked_bytes is not None:
            raise RecipeError(
                complain(
                    f"--memory-limit is given for training on {device.type}",
                    "it limits the memory of a process that trains on a CPU under Linux",
                    "Leave it out: a GPU's own memory is its limit",
                )
            )
        return None
    taken_bytes = _read_taken_bytes()
    left_bytes = read_limits().left_bytes(sharers)
    limits = [asked_bytes]
    if left_bytes is not None:  # a group counts what is resident; the limit counts what is mapped
        limits.append(taken_bytes + left_bytes)
    limit_bytes = min((limit for limit in limits if limit is not None), default=None)
    if asked_bytes is not None and limit_bytes is not None and limit_bytes <= taken_bytes:
        raise RecipeError(
            complain(
                f"--memory-limit leaves {format_bytes(limit_bytes)}",
                f"Python and its libraries alone take {format_bytes(taken_bytes)}",
                "Give more",
            )
        )
    return limit_bytes


def _read_taken_bytes() -> int:
    """What counts against the limit so far."""
    lines = _STATUS.read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
