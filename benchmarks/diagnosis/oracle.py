"""Is the idle time that we see, and the part of it that the host causes, what Holistic Trace Analysis sees?

In: nothing. Out: a table, into the README with --write. Both read the same generated Kineto files (programs.py). HTA is
no dependency; it goes into an environment of its own:

    pip install --no-deps HolisticTraceAnalysis && pip install networkx pandas plotly
    python benchmarks/diagnosis/oracle.py --write

HTA divides idle time of a stream into host wait (the next kernel was launched after the gap had begun), kernel wait
(short gaps between kernels that follow each other) and the rest. Ours to compare: all causes but "device".
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.diagnosis.programs import CAUSES, healthy
from benchmarks.diagnosis.simulate import simulate, write_kineto
from seqfit.profiling.readers import read_trace
from seqfit.profiling.tables import DEVICE, diagnose

BEGIN, END = "<!-- oracle: begin -->\n", "<!-- oracle: end -->"
ONE_STREAM = [cause for cause in CAUSES if cause not in ("communication", "straggler")]  # HTA's split is per stream


def measure(cause: str, folder: Path) -> tuple[float, float, float, float]:
    """Microseconds: idle by us and by HTA, of which for the host by us and by HTA."""
    from hta.trace_analysis import TraceAnalysis

    slow, _ = CAUSES[cause](healthy(5), 1)
    path = write_kineto(simulate(slow), folder / "trace.json", profiler_steps=False)
    trace = read_trace(path)
    packed = folder / "rank0.json.gz"
    packed.write_bytes(gzip.compress(_with_rank(path.read_text()).encode()))
    with contextlib.redirect_stdout(io.StringIO()):
        frame, _ = TraceAnalysis(trace_files={0: str(packed)}, trace_dir=str(folder)).get_idle_time_breakdown(
            ranks=[0], visualize=False
        )
    theirs = {row.idle_category: float(row.idle_time) for row in frame.itertuples()}
    # HTA's window is from the first kernel to the last; so is ours here.
    work = [*trace.kernels, *trace.copies]
    first, last = min(w.start_ns for w in work), max(w.end_ns for w in work)
    from dataclasses import replace

    from seqfit.profiling.trace import HostSpan

    whole = replace(trace, steps=(HostSpan("all", first, last - first, trace.calls[0].thread),), device_steps=())
    (gpu,) = diagnose(whole).gpus
    span = (last - first) / 1000
    host = (gpu.idle - gpu.causes[DEVICE]) * span
    return gpu.idle * span, sum(theirs.values()), host, theirs.get("host_wait", 0.0)


def _with_rank(text: str) -> str:
    return text.replace('"traceEvents"', '"distributedInfo": {"rank": 0}, "traceEvents"', 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    heads = ("cause in the trace", "idle, ours", "idle, HTA", "of it the host's, ours", "host wait, HTA")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for cause in ONE_STREAM:
            ours, theirs, host, host_wait = (f"{value / 1000:.1f} ms" for value in measure(cause, Path(folder)))
            lines.append(f"| {cause} | {ours} | {theirs} | {host} | {host_wait} |")
            print(lines[-1], flush=True)
    if arguments.write:
        readme = Path(__file__).with_name("README.md")
        before, _, rest = readme.read_text("utf-8").partition(BEGIN)
        table = "\n".join(lines)
        readme.write_text(f"{before}{BEGIN}{table}\n{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
