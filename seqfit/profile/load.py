"""A trace from a file of any kind that we know, recognised by its first bytes and not by its name.

7b ...  {  or 5b  [        Kineto's Chrome trace          1f 8b     the same, gzip-compressed
"SQLite format 3\\0"        Nsight Systems, exported       otherwise refused, with what to do
"""

from __future__ import annotations

from pathlib import Path

from seqfit.errors import DataError, complain
from seqfit.profile.kineto import read_kineto
from seqfit.profile.nsight import read_nsight
from seqfit.profile.trace import Trace

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_KNOWN = "seqfit reads torch.profiler's JSON (plain or .gz) and Nsight Systems' SQLite export"


def read_trace(path: str | Path) -> Trace:
    """The trace in a file; what can't be read is refused with the command that makes a readable one."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise DataError(
            complain(f"{path} can't be opened ({error.strerror})", _KNOWN, "Give another file with --trace")
        ) from error
    if start.startswith(_SQLITE):
        return _with_work(read_nsight(path), path, "nsys profile --trace cuda,nvtx,osrt")
    packed = start.startswith(_GZIP)
    if (packed and path.suffix == ".gz") or start.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] in (b"{", b"["):
        return _with_work(read_kineto(path), path, "torch.profiler with activities=[CPU, CUDA]")
    change = "Rename it so that it ends in .gz" if packed else "Give another file with --trace"
    if path.suffix in (".nsys-rep", ".qdrep"):
        change = f"Export it: nsys export --type sqlite {path.name}, and give the .sqlite file"
    what = "is empty" if not start else "is compressed" if packed else "is neither JSON nor SQLite"
    raise DataError(complain(f"{path} {what}", _KNOWN, change))


def _with_work(trace: Trace, path: Path, how: str) -> Trace:
    """A trace in which nothing ran is no healthy one."""
    if trace.kernels or trace.ops or trace.copies or trace.calls:
        return trace
    raise DataError(
        complain(
            f"{path} has no kernel, no operator and no CUDA call in it",
            "a diagnosis needs to see what ran",
            f"Record some steps of training with {how}, and export it when the schedule's active steps have run "
            "(repeat=1 keeps them); docs/profiling.md has the lines for a Trainer",
        )
    )
