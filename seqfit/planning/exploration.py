"""Which strategies a search looks at, and in which order: few traces, and no better strategy left out.

In: a `PlanRequest`, and what traces its variants. Out: `PlanCandidate`s, and the reasons for what was left out.

    the recipe's own      searched in full
    half precision        with and without gradient checkpointing; refinements where memory is short
    fp32, padded batches  one trace, and a search only if they may be faster
    what is not allowed   one trace each, as a change of the best
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from transformers import PreTrainedModel

from seqfit.planning.candidates import (
    Variant,
    build_stated_variant,
    find_open_layouts,
    is_refinement,
    list_padded,
    list_what_ifs,
)
from seqfit.planning.cluster import DATAPARALLEL, ONE_GPU, GpuLayout
from seqfit.planning.device_rules import DeviceRules
from seqfit.planning.placement import (
    PlanCandidate,
    PlanRequest,
    build_candidate,
    find_best_of_each,
    find_share,
    list_budgets,
    predict_share,
    try_budgets,
)
from seqfit.planning.ranks import RankShare
from seqfit.planning.report import Refusal
from seqfit.planning.second_process import Tracers
from seqfit.planning.shape import Shape
from seqfit.planning.step_model import StepModel
from seqfit.planning.template import shrink_template
from seqfit.progress import Progress
from seqfit.units import format_share

Traces = dict[tuple[DeviceRules, Variant], StepModel]
EQUALLY_FAST = 0.02  # no prediction is better than that
WORTH_MORE = 0.05  # gain in time for which strategies are tried that only differ in how they save memory
_MOST_PADDED = 0.1  # share of padding up to which padded batches are looked at
_TRUNCATED, _COMPARED_TOKENS = 512, 4096
_KEPT_TOKENS = 32_000  # assumed of a trimmed vocabulary: of one or two languages


class Exploration:
    """What has been traced so far, and the candidates that come of it."""

    def __init__(
        self, request: PlanRequest, tracers: Tracers, traces: Traces, progress: Progress, model: PreTrainedModel | None
    ) -> None:
        self.request = request
        self.models: dict[Variant, StepModel] = {}
        self.candidates: list[PlanCandidate] = []
        self.refusals: list[Refusal] = []
        self.done = 0
        self.first: tuple[Variant, Callable[[PlanCandidate], None]] | None = None  # to report when it is traced
        self._tracers = tracers
        self._traces = traces
        self._progress = progress
        self._model = model  # on the meta device, where a pipeline is among the layouts
        self._precisions: list[str] = []  # searched so far
        self._slower: list[str] = []  # not searched, because another one fits
        self._has_blockwise = False
        self._waiting = 0

    def look_at_stated(self) -> None:
        if self.request.stated is None:
            return
        strategy, precision = self.request.stated
        self._look_at([build_stated_variant(strategy, precision)], strategy.micro_batch_tokens)

    def look_at_precision(self, variants: Sequence[Variant]) -> None:
        """Those between or next to others only where memory is short; a slower precision only once if one fits."""
        best = self.find_best()
        if self._precisions and best is not None and best.variant.precision != "fp32":
            self._slower.append(variants[0].precision)
            return
        self._precisions.append(variants[0].precision)
        self._has_blockwise = any(("attention", "blockwise") in variant.fields for variant in variants)
        refined = [variant for variant in variants if is_refinement(variant, self.request.fixed)]
        self._look_at([variant for variant in variants if variant not in refined])
        if self._is_memory_short():
            self._look_at(refined)
        elif refined:
            names = dict.fromkeys(map(_name_refinement, refined))
            self.refusals.append(Refusal(", ".join(names), "memory is not short, and they would only be slower"))

    def compare_alternatives(self) -> None:
        """What is rarely faster than the best: one trace each, and a search only where it may be.

        Full precision; blockwise attention of short texts; padded batches instead of packed ones, where little is
        padded: attention then has no loop over segments.
        """
        best = self.find_best()
        if best is None:
            return
        found = [(replace(best.variant, precision=precision), 0.0) for precision in self._slower]
        if self._has_blockwise and "attention" not in dict(best.variant.fields):
            fields = (*best.variant.fields, ("attention", "blockwise"))
            found.append((replace(best.variant, fields=fields), 0.0))
        if not self.request.lengths_are_assumed and self.models[best.variant].batching == "packed":
            padded = [
                (variant, self._share_padded(variant)) for variant in list_padded(best.variant, self.request.fixed)
            ]
            found += [(variant, padding) for variant, padding in padded if padding <= _MOST_PADDED]
        longest = int((self.request.workload.source_lengths + self.request.workload.target_lengths).max())
        size = min(self._count_tokens(best), max(_COMPARED_TOKENS, longest))  # not the device's: traced once for all
        new = [(replace(variant, budget=size), padding) for variant, padding in found if variant not in self.models]
        self._trace([*(variant for variant, _ in new), *([replace(best.variant, budget=size)] if new else [])])
        for variant, padding in new:
            seconds = self._change(best, variant, self._find_layout(variant, best.layout), padding).step_seconds
            if seconds < best.step_seconds * (1 + EQUALLY_FAST):
                self._look_at([replace(variant, budget=None)])
            else:
                slower = format_share(seconds / best.step_seconds - 1)
                self.refusals.append(Refusal(variant.label, f"{slower} slower in a trace of {size:,} tokens"))

    def try_what_ifs(self, chosen: PlanCandidate | None) -> list[PlanCandidate]:
        """Changes of the best."""
        request, best = self.request, self.find_best() or self._find_smallest()
        if chosen is not None and chosen.step_seconds < best.step_seconds * (1 + EQUALLY_FAST):
            best = chosen
        target, workload = request.target, request.workload
        variants = list_what_ifs(
            best.variant,
            self._count_tokens(best),
            request.model,
            request.train,
            request.allow,
            request.fixed,
            has_bf16=target.kind == "gpu" and target.has_bf16,
            kept_tokens=request.kept_tokens or _assume_kept(request.model_config.config.vocab_size),
        )
        quick = {variant.budget for variant in variants if variant.budget is not None}
        self._trace([*variants, *(replace(best.variant, budget=budget) for budget in quick)])
        found = [self._change(best, variant, self._find_layout(variant, best.layout)) for variant in variants]
        if workload.source_lengths.max() > _TRUNCATED:
            found += self._truncate(best)
        return found

    def find_best(self) -> PlanCandidate | None:
        """On any layout, not verified."""
        fitting = [one for one in self.candidates if one.fits and one.layout.parallel != DATAPARALLEL]
        return min(fitting, key=lambda one: one.step_seconds, default=None)

    def _find_smallest(self) -> PlanCandidate:
        return min(self.candidates, key=lambda one: one.total_bytes)

    def _is_memory_short(self) -> bool:
        """Whether something could be much faster with more memory: the fastest that does not fit bounds all others."""
        best = self.find_best()
        fastest = min(one.step_seconds for one in self.candidates if one.layout.parallel != DATAPARALLEL)
        return best is None or best.step_seconds > fastest * (1 + WORTH_MORE)

    def _trace(self, variants: Iterable[Variant]) -> None:
        """Fills `models`."""
        rules, wanted = self.request.target.rules, list(variants)
        traced = list(dict.fromkeys(variant.traced for variant in wanted))
        new = [variant for variant in traced if (rules, variant) not in self._traces]
        self._waiting += len(new)
        found = self._tracers.trace(new, self._advance)
        self._traces.update({(rules, variant): model for variant, model in found.items()})
        self.done = self._waiting
        for variant in wanted:
            self.models[variant] = apply_rules(variant, self._traces[rules, variant.traced])

    def _advance(self, variant: Variant, model: StepModel) -> None:
        if self.first is not None and variant == self.first[0]:
            step_only = replace(self.request, evaluations=None)  # whose traces would delay the first answer
            tried = try_budgets(step_only, variant, model, [ONE_GPU], list_budgets(self.request))
            self.first[1](find_best_of_each(list(tried))[0])
        self.done += 1
        self._progress("planning", self.done, max(self._waiting, self.done) + 1)

    def _look_at(self, variants: Sequence[Variant], budget: int | None = None) -> None:
        """`budget`: one more than those that are tried anyway."""
        variants = [variant for variant in variants if variant not in self.models]
        self._trace(variants)
        request = self.request
        open_layouts, closed = find_open_layouts(variants, request.layouts, request.train, self._model)
        self.refusals += [refusal for refusal in closed if refusal not in self.refusals]
        for variant in variants:
            budgets = sorted({*list_budgets(self.request), *([] if budget is None else [budget])})
            self.candidates += try_budgets(self.request, variant, self.models[variant], open_layouts[variant], budgets)

    def _find_layout(self, variant: Variant, layout: GpuLayout) -> GpuLayout:
        """This one if training accepts it, else one GPU."""
        opened, _ = find_open_layouts([variant], [layout, ONE_GPU], self.request.train, self._model)
        return opened[variant][0]

    def _count_tokens(self, best: PlanCandidate) -> int:
        """Of its largest micro-batch."""
        budget = best.strategy.micro_batch_tokens
        share, _ = find_share(self.request, best.variant, self.models[best.variant], best.layout, budget)
        return _count_tokens(share.shape)

    def _change(self, best: PlanCandidate, variant: Variant, layout: GpuLayout, padding: float = 0.0) -> PlanCandidate:
        """The best with another variant: what changes at one micro-batch, of which both are traced, changes in all.

        `padding`: share of tokens that only the other one has.
        """
        request, budget = self.request, best.strategy.micro_batch_tokens
        baseline = replace(best.variant, budget=variant.budget)
        self._trace([variant, *([baseline] if variant.budget is not None else [])])
        before, after = self.models[best.variant], self.models[variant]
        whole, _ = find_share(request, best.variant, before, layout, budget)
        shape, base, like = whole.shape, before, whole.shape
        if after.only_shape is not None:
            base = self.models[baseline]
            shape, like = after.only_shape, base.only_shape or whole.shape
        shape = replace(shape, packed=after.batching == "packed")
        count = 1 if whole.is_single else max(2, round(whole.micro_batches))
        rates = [request.target.rates(one.precision) for one in (best.variant, variant)]
        new = predict_share(request, RankShare(after, rates[1], [[shape] * count]), layout)
        old = predict_share(request, RankShare(base, rates[0], [[like] * count]), layout)
        known = predict_share(request, RankShare(before, rates[0], [[whole.shape] * count]), layout)
        peak_bytes, seconds = predict_share(request, whole, layout)
        seconds += (new[1] - old[1]) * seconds / known[1]
        strategy = variant.strategy.model_copy(update={"micro_batch_tokens": budget})
        return build_candidate(
            request,
            variant,
            after,
            strategy,
            layout,
            peak_bytes + new[0] - old[0],
            seconds * (1 + padding),
            whole.micro_batches,
        )

    def _share_padded(self, variant: Variant) -> float:
        sampled = self.request.workload.sample()
        steps = self.request.split(variant.strategy, "grouped", sampled)
        padded = sum(_count_tokens(shape) for step in steps for shape in step)
        return padded / self.request.workload.real_tokens(sampled) - 1

    def _truncate(self, best: PlanCandidate) -> list[PlanCandidate]:
        """The best's variant with shorter sources."""
        workload = self.request.workload.with_longest(_TRUNCATED, None)
        shorter = replace(self.request, workload=workload)
        variant = replace(best.variant, needs="truncation", truncated=_TRUNCATED)
        model = self.models[best.variant]
        return find_best_of_each([*try_budgets(shorter, variant, model, [best.layout], list_budgets(shorter))])


def _name_refinement(variant: Variant) -> str:
    fields = dict(variant.fields)
    if fields.get("recompute") == "alternate":
        return "gradient checkpointing of every other block"
    if fields.get("attention") == "blockwise":
        return "blockwise attention of short texts"
    return "optimizer in backward with gradient checkpointing"


def _count_tokens(shape: Shape) -> int:
    """Padding included."""
    longest = max(shape.sources) + max(shape.targets or (0,))
    return shape.real_tokens if shape.packed else shape.examples * longest


def _assume_kept(vocabulary: int) -> int | None:
    """Tokens that trimming keeps where there are no data to count them in; None where it would not matter."""
    return _KEPT_TOKENS if vocabulary >= 4 * _KEPT_TOKENS else None


def apply_rules(variant: Variant, traced: StepModel) -> StepModel:
    """What is not traced: 8-bit state."""
    return traced.changed(shrink_template) if ("optimizer", "8bit") in variant.fields else traced
