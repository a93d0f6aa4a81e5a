"""Time by module, such as encoder.block.3.SelfAttention, forward and backward.

In: a `Trace` with ranges around modules. Out: rows, the largest first. A kernel belongs to the module in whose range it
was launched; on a CPU an operator's own time takes the kernel's place. In the backward nothing is inside a range, but a
node has the sequence number of the operator that made it, and that operator is:

    forward   |module: encoder.block.0 ... aten::mm (sequence 7) ...|
    backward  MmBackward0 (sequence 7) launches two kernels   ->   encoder.block.0, backward

Traces of others have no such ranges: then torch's own names of modules (nn.Module: T5Attention_3, with_stack) or NVTX's
ranges are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from seqfit.profile.intervals import Nesting, self_times
from seqfit.profile.trace import BACKWARD_PREFIX, MODULE_PREFIX, Call, HostSpan, Op, Trace

ELSEWHERE = "(outside of modules)"
_TORCH_MODULE = "nn.Module: "
_LIST_STEPS = re.compile(r"\.layer\.\d+(?=\.)")  # T5's encoder.block.3.layer.0.SelfAttention: the list says nothing
_WRAPPER = re.compile(r"^(model|base_model\.model)\.(?=.)")


@dataclass(frozen=True)
class ModuleRow:
    """One module's own time, without the modules inside it."""

    name: str
    forward_ns: int
    backward_ns: int
    share: float

    @property
    def total_ns(self) -> int:
        return self.forward_ns + self.backward_ns


def rank_modules(trace: Trace) -> list[ModuleRow]:
    """Modules by time on the device, or on a CPU by the operators' own time."""
    finder = _Finder(trace)
    totals: dict[str, list[int]] = {}
    for span, time_ns in _work(trace):
        name, is_backward = finder.find(span)
        totals.setdefault(name, [0, 0])[is_backward] += time_ns
    everything = sum(map(sum, totals.values())) or 1
    rows = [ModuleRow(name, fwd, bwd, (fwd + bwd) / everything) for name, (fwd, bwd) in totals.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def _work(trace: Trace) -> Iterator[tuple[HostSpan, int]]:
    """What the host did, with the time that it cost: a launch its kernel's, an operator its own."""
    if not trace.kernels:
        yield from self_times(trace.ops)
        return
    calls: dict[int | None, Call] = {call.correlation: call for call in trace.calls}
    for kernel in trace.kernels:
        call = calls.get(kernel.correlation) if kernel.correlation is not None else None
        yield call or HostSpan(kernel.name, kernel.start_ns, 0, ""), kernel.duration_ns


class _Finder:
    """Which module the host was in."""

    def __init__(self, trace: Trace) -> None:
        self._ranges = Nesting(choose_ranges(trace))
        self._nodes = Nesting(op for op in trace.ops if op.name.startswith(BACKWARD_PREFIX))
        self._made_by: dict[int, Op] = {}
        for op in sorted(trace.ops, key=lambda op: op.start_ns):
            if op.sequence is not None and not op.is_backward:
                self._made_by[op.sequence] = op  # the last one: those before it did not make the node

    def find(self, span: HostSpan) -> tuple[str, bool]:
        """The module's name, and whether it is its backward."""
        module = self._ranges.at(span.thread, span.start_ns)
        if module is not None:  # also a forward that recompute runs again
            return tidy_name(module.name), False
        node = self._nodes.at(span.thread, span.start_ns)
        if not isinstance(node, Op) or node.sequence is None:
            return ELSEWHERE, node is not None
        maker = self._made_by.get(node.sequence)
        module = None if maker is None else self._ranges.at(maker.thread, maker.start_ns)
        return (ELSEWHERE if module is None else tidy_name(module.name)), True


def choose_ranges(trace: Trace) -> list[HostSpan]:
    """The spans that stand for modules: ours, else torch's, else NVTX's."""
    ours = [span for span in trace.ranges if span.name.startswith(MODULE_PREFIX)]
    torchs = [span for span in trace.frames if span.name.startswith(_TORCH_MODULE)]
    return ours or torchs or (list(trace.ranges) if trace.kind == "nsight" else [])


def tidy_name(name: str) -> str:
    """'module: model.encoder.block.3.layer.0.SelfAttention' -> 'encoder.block.3.SelfAttention'."""
    name = name.removeprefix(MODULE_PREFIX).removeprefix(_TORCH_MODULE)
    return _LIST_STEPS.sub("", _WRAPPER.sub("", name))
