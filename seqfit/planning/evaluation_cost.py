"""What the evaluations during training cost: their memory and their time, from a few passes on fake tensors.

In: the model and strategy of a step, and the rows, beams and lengths of an evaluation. Out: an `EvaluationModel`: the
bytes that it needs above weights and optimizer state, which stay, and the seconds of an evaluation at given rates.

Without gradients a layer leaves nothing behind but its part of the caches, so memory and time grow by the same amount
with each layer: two depths are traced, and the line through them goes on.

    peak of a search of 128 rows     2 layers 90 MiB,  3 layers 120 MiB     12 layers: 120 + 9 x 30 = 390 MiB

What is traced are the largest piece and the largest search, for memory, and usual ones, for the time. Answers are taken
to be as long as the targets, none of them known from its target, and searches to go on to the length limit for memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from seqfit.generation import passes
from seqfit.model import family_of
from seqfit.planning.cluster import DATAPARALLEL, OFFLOAD, GpuLayout
from seqfit.planning.evaluation_work import EvaluationWork
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.tape import STATE, WEIGHTS, Tape
from seqfit.planning.timing import Rates, check_time_limit, kernel_seconds, kinds_of, part_seconds

_DEPTHS = 2, 3  # periods of layers that are traced
_FEW = 4  # a step of a search is timed with all of its rows, and with one in so many
_Measure = Callable[[list["_Part"]], float]


@dataclass(frozen=True)
class _Part:
    """One pass at one depth."""

    name: str
    peak_bytes: int  # above the weights
    costs: npt.NDArray[np.float64]  # [FLOPs, bytes, calls; kernel]
    kinds: npt.NDArray[np.int64]

    def seconds(self, rates: Rates) -> float:
        flops, moved_bytes, calls = self.costs
        seconds = kernel_seconds(flops, moved_bytes, calls, self.kinds, rates)
        return float(part_seconds(seconds, calls, rates.host_call_seconds))


class Evaluations:
    """Of a recipe, in any strategy; each precision and vocabulary is traced once."""

    def __init__(self, work: EvaluationWork) -> None:
        self.work = work
        self._models: dict[Hashable, EvaluationModel] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"work": self.work, "_models": {}}

    def model_of(self, key: Hashable, build_spec: Callable[[], StepSpec]) -> EvaluationModel:
        if key not in self._models:
            check_time_limit()
            self._models[key] = EvaluationModel(build_spec(), self.work)
        return self._models[key]


class EvaluationModel:
    """The evaluations of one strategy."""

    def __init__(self, spec: StepSpec, work: EvaluationWork) -> None:
        self._spec, self._work = spec, work
        on_device = spec.device.type
        sources, targets = work.source_lengths, work.target_lengths
        self._pieces = passes.list_pieces(sources, targets, work.batch_tokens, on_device)
        self._sizes = [passes.size_piece(rows, sources, targets) for rows in self._pieces]
        self._largest = max(self._sizes, key=lambda size: (size.positions * size.source_tokens, size.positions))
        self._usual = sorted(self._sizes, key=lambda size: size.positions)[len(self._sizes) // 2]
        family, config = family_of(spec.model_config.config), spec.model_config.config
        self._layers = family.count_layers(config)
        self._searches: list[passes.SearchSize] = []
        self._is_own = False  # our own search
        self._traced = {depth: self._trace(depth) for depth in self._choose_depths(family.layer_period(config))}
        self.working_bytes = self._find_peak()

    def seconds(self, rates: Rates) -> float:
        """Of one evaluation on one device."""
        read = sum(self._find_seconds(name, rates) for name in self._names("usual"))
        total = read * sum(size.positions for size in self._sizes) / self._usual.positions
        if self._searches:
            all_rows = max(search.rows for search in self._searches)
            few_rows = max(1, all_rows // _FEW)
            many, few = (self._find_seconds(name, rates) for name in ("many search", "few search"))
            slope = (many - few) / (all_rows - few_rows) if all_rows > few_rows else 0.0
            for search in self._searches:
                total += sum(max(0.0, many + slope * (rows - all_rows)) for rows in self._count_open(search))
        return total

    def describe(self, rates: Sequence[Rates]) -> dict[str, Any]:
        """What bytes and seconds are made of, for a page that computes them at other lengths: of the pass of a piece,
        and of a step of a search, of so many rows. Seconds are lists, one for each of the rates."""
        found: dict[str, Any] = {
            "rows": self._largest.rows,
            "read_bytes": max(self._find_bytes(name) for name in self._names("largest")),
            "positions": self._usual.positions,
            "read_seconds": [sum(self._find_seconds(name, one) for name in self._names("usual")) for one in rates],
        }
        if self._searches:
            longest = max(self._searches, key=lambda search: search.rows * search.source_tokens)
            rows = max(search.rows for search in self._searches)
            found |= {
                "longest_rows": longest.rows,
                "search_bytes": self._find_bytes("longest search"),
                "many_rows": rows,
                "few_rows": max(1, rows // _FEW),
                "many_seconds": [self._find_seconds("many search", one) for one in rates],
                "few_seconds": [self._find_seconds("few search", one) for one in rates],
                "cache_bytes": self._cache_bytes,
                "layers": self._layers[1],
                "is_own": self._is_own,
            }
        return found

    def _names(self, which: str) -> list[str]:
        parts = next(iter(self._traced.values()))
        return [part.name for part in parts if part.name.startswith(f"{which} ")]

    def _find_seconds(self, name: str, rates: Rates) -> float:
        return self._extend(lambda parts: _seconds(parts, name, rates))

    def _find_bytes(self, name: str) -> float:
        return self._extend(lambda parts: _peak(parts, name))

    def _count_open(self, search: passes.SearchSize) -> list[int]:
        """The rows of each step: with `generate` all of them to the end."""
        longest = min(max(search.answers), self._work.max_new_tokens)
        if not self._is_own:
            return [search.rows] * longest
        answers = np.array(search.answers)
        return [int((answers >= step).sum()) for step in range(1, longest + 1)]

    def _find_peak(self) -> int:
        reading = max(self._find_bytes(name) for name in self._names("largest"))
        peaks = [reading]
        if self._searches:
            peaks = [held + reading * share for held, share in self._list_held()]
            peaks += [self._find_bytes("longest search")]
            peaks += [self._join_bytes(search) for search in self._searches]
        return int(max(peaks))

    def _list_held(self) -> Iterator[tuple[float, float]]:
        """Before each piece: the bytes of those that wait for their search, and its share of the largest one's size."""
        held = 0.0
        last = {search.pieces[-1] for search in self._searches}
        for place, size in enumerate(self._sizes):
            yield held, min(1.0, size.positions / self._largest.positions)
            held = 0.0 if place in last else held + size.positions * self._cache_bytes

    def _join_bytes(self, search: passes.SearchSize) -> float:
        """All rows as one batch, and one layer of the pieces that are joined."""
        if len(search.pieces) == 1 or not self._layers[1]:
            return 0.0
        apart = sum(self._sizes[place].positions for place in search.pieces) / self._layers[1]
        return (search.rows * search.source_tokens + apart) * self._cache_bytes

    # ---- tracing ----

    def _choose_depths(self, period: int) -> list[tuple[int, int]]:
        """A shallow model, and it with more layers, of both stacks at once where they are equally deep."""
        low, high = (count * period for count in _DEPTHS)
        self._low, self._high = low, high
        first = [count if count <= high else low for count in self._layers]
        deep = [stack for stack, count in enumerate(self._layers) if count > high]
        self._together = len(deep) == 2 and self._layers[0] == self._layers[1]
        more = [deep] if self._together else [[stack] for stack in deep]
        depths = [first, *([high if stack in which else count for stack, count in enumerate(first)] for which in more)]
        return [(encoder, decoder) for encoder, decoder in depths]

    def _extend(self, measure: _Measure) -> float:
        """A figure of the whole model from those of the traced depths, on the line through them."""
        (base, first), *others = self._traced.items()
        value = at_base = measure(first)
        for depth, parts in others:
            stack = 0 if depth[0] != base[0] else 1
            value += (measure(parts) - at_base) / (self._high - self._low) * (self._layers[stack] - base[stack])
        return max(value, at_base)

    def _trace(self, depth: tuple[int, int]) -> list[_Part]:
        config = self._spec.model_config.config
        family = family_of(config)
        shallow = replace(self._spec.model_config, config=family.with_layers(config, *depth))
        fake = FakeStep(replace(self._spec, model_config=shallow))
        model = fake.built.step.parallel.model.model
        evaluation = passes.EvaluationPasses(model, self._work.beams, self._work.max_new_tokens, self._spec.device)
        marks: list[tuple[str, int, int]] = []
        with fake.recording() as recorder:
            tape = recorder.tape

            def report(name: str, of: str = "") -> None:
                marks.append((f"{of} {name}" if name else "", len(tape.events), len(tape.kernels)))

            report("")
            like = evaluation.read(self._largest, partial(report, of="largest"))
            if like is not None:
                self._note_searches(like, depth)
                longest = max(self._searches, key=lambda search: search.rows * search.source_tokens)
                evaluation.search(like, longest.rows, longest.source_tokens, None, partial(report, of="longest"))
                rows = max(search.rows for search in self._searches)
                tokens = round(fmean(search.source_tokens for search in self._searches))
                length = max(1, round(float(self._work.target_lengths.mean()) / 2))
                for name, some in (("many", rows), ("few", max(1, rows // _FEW))):
                    evaluation.search(like, some, tokens, length, partial(report, of=name))
            report("")
            evaluation.read(self._usual, partial(report, of="usual"))
            del like
        return _split(tape, marks)

    def _note_searches(self, like: object, depth: tuple[int, int]) -> None:
        """By the size of what waits for a search, which only a traced model shows."""
        own = getattr(like, "cache_bytes", 0)  # of one token of one row; with `generate` nothing waits
        self._is_own = own > 0
        self._cache_bytes = own / depth[1] * self._layers[1]
        work = self._work
        self._searches = passes.list_searches(
            self._pieces,
            work.source_lengths,
            work.target_lengths,
            cache_bytes=self._cache_bytes,
            beams=work.beams,
            is_own=self._is_own,
        )


def add_lasting(working_bytes: int, layout: GpuLayout, parts: dict[str, int], gradient_bytes: int) -> int:
    """Bytes of one rank's tensors at the peak of an evaluation. `parts`: those of a step on one GPU.

    Where ranks share the weights, each of them gathers all for an evaluation. DDP's gradients stay in its buckets.
    """
    weights, state = parts.get(WEIGHTS, 0), parts.get(STATE, 0)
    match layout.parallel:
        case "ddp":
            lasting = weights + state + gradient_bytes
        case "fsdp" | "pipeline":
            lasting = (weights + state) // layout.count + weights
        case _ if layout.parallel == OFFLOAD:
            lasting = weights
        case _:
            assert layout.parallel in ("", DATAPARALLEL)
            lasting = weights + state
    return lasting + working_bytes


def _seconds(parts: Sequence[_Part], name: str, rates: Rates) -> float:
    return next(part.seconds(rates) for part in parts if part.name == name)


def _peak(parts: Sequence[_Part], name: str) -> float:
    return next(part.peak_bytes for part in parts if part.name == name)


def _split(tape: Tape, marks: Sequence[tuple[str, int, int]]) -> list[_Part]:
    """What lies between two marks, by the name of the later one; without a name it is left out."""
    live, kinds = tape.live_bytes(), kinds_of(tape)
    costs = np.array([[one.flops, one.bytes, one.calls] for one in tape.kernels], dtype=np.float64).T
    weights = int(live[marks[0][1] - 1])
    parts = []
    for (_, first_event, first_kernel), (name, last_event, last_kernel) in pairwise(marks):
        if name:
            peak = int(live[first_event - 1 : last_event].max(initial=weights)) - weights
            own = slice(first_kernel, last_kernel)
            parts.append(_Part(name, peak, costs[:, own], kinds[own]))
    return parts
