"""What a browser needs to plan by itself: the polynomials of each strategy, without a server and without Python.

In: a recipe and targets. Out: plain values for a page, whose script (`reporting/assets/plan_model.js`) does what
`search` does on one GPU: bytes and seconds at any batch and lengths, micro-batches that fit, a replay of the allocator.

    block 7: 4 * (tokens of all examples)                       one row of the blocks: [1, 4]
    allocate row 7, allocate row 9, free the one before last    events 7, 9, -2

All texts have the same length there, as in a plan without data. A template holds for one path through the model, so
lengths are multiples of 8 that take the same path as the plan's own; others the page does not know, and says so.
Evaluations are traced at three or four lengths of each side, with a polynomial through them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from seqfit.generation import passes
from seqfit.kernels import CHUNK_BYTES, LEAST_CHUNK_ROWS, WHOLE_SEGMENT_TOKENS, count_block_rows
from seqfit.model import family_of
from seqfit.parallel import build_rule
from seqfit.planning.candidates import Variant, build_stated_variant, is_refinement
from seqfit.planning.device_rules import SORTED_ROWS
from seqfit.planning.evaluation_work import ASSUMED_ROWS, ASSUMED_SHARE
from seqfit.planning.exploration import EQUALLY_FAST, WORTH_MORE, Traces
from seqfit.planning.placement import (
    HOST_BYTES,
    LARGEST_BUDGET,
    MARGIN,
    SMALLEST_BUDGET,
    PlanRequest,
    find_evaluation,
    strip_variant,
)
from seqfit.planning.report import AssumedLengths
from seqfit.planning.request import (
    PLANNED_ROWS,
    build_request,
    choose_precision_name,
    find_bounds,
    format_override_value,
)
from seqfit.planning.search import MOST_VERIFIED, list_request_variants, trace_variant
from seqfit.planning.second_process import Tracers
from seqfit.planning.shape import (
    ALIGNMENT,
    KERNEL,
    Paths,
    Regime,
    Shape,
    choose_traced,
    count_loss_rows,
    find_regime,
    uniform,
)
from seqfit.planning.step_model import RegimeModel, StepModel, count_layers
from seqfit.planning.tape import GIVEN, GRADIENTS, KINDS, STATE, WEIGHTS
from seqfit.planning.target import Target
from seqfit.planning.timing import DENSE, Rates
from seqfit.progress import Progress
from seqfit.recipe import Recipe
from seqfit.strategy import load_strategy

_LONGEST = 4096  # tokens of a slider, where the model has positions for them
_LARGEST_BATCH = 512
_MANY_LAYERS = 12  # with fewer, traces take no time
_POINTS = 12  # pairs of lengths of which evaluations are traced, at most 16
_NEAR_END = 0.2  # of a range, where a length is too near to an end to be the third
_Matrix = npt.NDArray[np.float64]
_Range = tuple[int, int]  # both ends included


def build_page_model(
    recipe: Recipe, targets: Sequence[Target], assumed: AssumedLengths, traces: Traces, progress: Progress
) -> dict[str, Any]:
    """`traces`: of the search on these targets, if there was one."""
    exporter = _Exporter(recipe, targets, assumed, traces, progress)
    return exporter.export()


class _Exporter:
    def __init__(
        self, recipe: Recipe, targets: Sequence[Target], assumed: AssumedLengths, traces: Traces, progress: Progress
    ) -> None:
        self._recipe, self._targets, self._progress = recipe, targets, progress
        given = build_request(recipe, targets[0], assumed)
        workload = given.workload
        self._is_classifier = workload.is_classifier
        self._with_data = not assumed.without_data
        lengths = workload.source_lengths, workload.target_lengths
        is_aligned = assumed.without_data and all(int(each.max()) % ALIGNMENT == 0 for each in lengths)
        self._traces = traces if is_aligned else {}
        self._source = _align(int(workload.source_lengths.max()))
        self._target = _align(int(workload.target_lengths.max()))
        self._rows = assumed.rows or (PLANNED_ROWS if assumed.without_data else len(workload.source_lengths))
        self._steps_are_stated = assumed.rows is None and recipe.train.steps is not None
        self._batch = max(len(step) for step in workload.steps)
        limit = family_of(given.model_config.config).max_positions(given.model_config.config)
        self._limit = min(_LONGEST if limit is None else limit, _LONGEST) // ALIGNMENT * ALIGNMENT
        self._source, self._target = min(self._source, self._limit), min(self._target, self._limit)
        self._requests = [self._request(target, self._source, self._target) for target in targets]
        self._done = self._whole = 0  # traces

    def export(self) -> dict[str, Any]:
        groups = self._group()
        variants: dict[tuple[int, Variant], int] = {}  # of each group, numbered
        lists: list[list[int]] = []
        for request, group in zip(self._requests, groups, strict=True):
            keys = [(group, variant) for variant in _list_lossless(request, self._recipe)]
            lists.append([variants.setdefault(key, len(variants)) for key in keys])
        models = self._trace(list(variants), groups)
        ranges = self._find_ranges(list(models.values()))
        described = [self._describe_variant(variant, group, models[group, variant]) for group, variant in variants]
        evaluated: dict[tuple[int, Variant], dict[str, Any] | None] = {}
        for (group, variant), shown in zip(variants, described, strict=True):
            key = group, strip_variant(variant)
            if key not in evaluated:
                evaluated[key] = self._evaluate(group, groups, variant, ranges)
            shown["evaluation"] = list(evaluated).index(key)
        return {
            "start": {"batch": self._batch, "source": self._source, "target": self._target},
            "ranges": {"batch": (1, max(_LARGEST_BATCH, self._batch)), "source": ranges[0], "target": ranges[1]},
            "has_data": self._with_data,
            "is_complete": not any(
                _is_blockwise(one) for own in self._requests for one in list_request_variants(own)[0]
            ),
            "is_classifier": self._is_classifier,
            "training": self._describe_training(),
            "rules": _describe_rules(),
            "devices": [
                self._describe_device(number, target, group, listed)
                for number, (target, group, listed) in enumerate(zip(self._targets, groups, lists, strict=True))
            ],
            "variants": described,
            "evaluations": list(evaluated.values()),
        }

    def _request(self, target: Target, source: int, longest_target: int) -> PlanRequest:
        """Of texts of these lengths."""
        lengths = AssumedLengths(source, longest_target or None, without_data=True, rows=self._rows)
        return build_request(self._recipe, replace(target, count=1), lengths)

    def _group(self) -> list[int]:
        """Of each target, a number for those on which the same is traced: only the workspace differs."""
        rules = [replace(target.rules, workspace_bytes=0) for target in self._targets]
        return [rules.index(one) for one in rules]

    def _trace(
        self, wanted: Sequence[tuple[int, Variant]], groups: Sequence[int]
    ) -> dict[tuple[int, Variant], StepModel]:
        models = {}
        for group in dict.fromkeys(groups):
            of_group = {target.rules for target, own in zip(self._targets, groups, strict=True) if own == group}
            variants = [variant for own, variant in wanted if own == group]
            missing = []
            for variant in variants:
                known = next(
                    (self._traces[rules, variant] for rules in of_group if (rules, variant) in self._traces), None
                )
                if known is None:
                    missing.append(variant)
                else:
                    models[group, variant] = known
            self._whole += len(missing) + _POINTS * len(set(map(strip_variant, variants)))
            request = self._requests[group]
            is_large = count_layers(request.model_config.config) >= _MANY_LAYERS
            with Tracers(request, trace_variant, second_process=is_large, expected=len(missing)) as tracers:
                traced = tracers.trace(missing, self._advance)
            models |= {(group, variant): model for variant, model in traced.items()}
        return models

    def _advance(self, *_: object) -> None:
        self._done += 1
        self._progress("tracing for the page", self._done, max(self._done, self._whole))

    def _find_ranges(self, models: Sequence[StepModel]) -> tuple[_Range, _Range]:
        """Of the source and of the target, in which every strategy takes the path that it takes at their start.

        A path with a loop, over segments or over chunks of the loss, is known at these lengths only: what it does is
        fitted to two shapes, not exact.
        """
        kinds = {(model.find_model(self._shape(model))[1], model.batching == "packed") for model in models}

        def is_alike(source: int, target: int) -> bool:
            own = ((source, target), (self._source, self._target))
            found = [[_find_paths(*lengths, *kind) for kind in kinds] for lengths in own]
            return None not in found[0] and found[0] == found[1]

        def widen(start: int, holds: Callable[[int], bool]) -> _Range:
            least = most = start
            while least > ALIGNMENT and holds(least - ALIGNMENT):
                least -= ALIGNMENT
            while most + ALIGNMENT <= self._limit and holds(most + ALIGNMENT):
                most += ALIGNMENT
            return least, most

        sources = widen(self._source, lambda length: is_alike(length, self._target))
        if self._is_classifier:
            return sources, (0, 0)
        return sources, widen(self._target, lambda length: all(is_alike(end, length) for end in sources))

    def _shape(self, model: StepModel) -> Shape:
        """Of two examples: what holds for them also holds for one, but not the other way round."""
        target = None if self._is_classifier else self._target
        return uniform(2, self._source, target, packed=model.batching == "packed")

    def _describe_variant(self, variant: Variant, group: int, model: StepModel) -> dict[str, Any]:
        shape = self._shape(model)
        regime_model, paths = model.find_model(shape)
        strategy, request = variant.strategy, self._requests[group]
        rule = build_rule(strategy, model.batching, request.limits)
        fields = strategy.model_dump(exclude_defaults=True, exclude={"name", "micro_batch_tokens"})
        return {
            "label": variant.label,
            "strategy": variant.label.removeprefix(variant.precision).removeprefix(", ") or "plain",
            "precision": variant.precision,
            "fields": dict(variant.fields),
            "overrides": [f"strategy.{name}={format_override_value(value)}" for name, value in fields.items()],
            "refines": is_refinement(variant, request.fixed),
            "compiles": strategy.compile,
            "rule": {name: value for name, value in asdict(rule).items() if name != "tokens"},
            "blockwise_above": None if paths.blockwise_above == sys.maxsize else paths.blockwise_above,
            "chunked_vocabulary": paths.chunked_vocabulary,
            "gradient_bytes": model.gradient_bytes,
            "lasting_bytes": sum(model.lasting_bytes.values()),
            "regime": _name_regime(find_regime(shape, paths)),
            "template": _describe_template(regime_model),
        }

    def _describe_training(self) -> dict[str, Any]:
        train, evaluated = self._recipe.train, self._recipe.eval
        return {
            "rows": self._rows,
            "passes": train.passes,
            "steps": train.steps if self._steps_are_stated else None,
            "evaluated": {
                "share": ASSUMED_SHARE,
                "most": min(ASSUMED_ROWS, evaluated.limit or ASSUMED_ROWS),
                "every_steps": evaluated.every_steps,
                "at_start": evaluated.at_start,
                "beams": evaluated.beams,
                "max_new_tokens": evaluated.max_new_tokens,
                "limit": self._limit,
            },
        }

    def _describe_device(self, number: int, target: Target, group: int, listed: Sequence[int]) -> dict[str, Any]:
        own = self._requests[number]
        names = dict.fromkeys(variant.precision for variant in _list_lossless(own, self._recipe))
        bounds = find_bounds(target, 1)
        return {
            "name": target.name,
            "key": "cpu" if target.card is None else target.card.key,
            "kind": target.kind,
            "capacity_bytes": target.capacity_bytes,
            "context_bytes": target.context_bytes,
            "workspace_bytes": target.rules.workspace_bytes,
            "rates": {name: _describe_rates(target.rates(name)) for name in names},
            "compiled": {name: _describe_rates(target.rates(name).compiled) for name in names},
            "bytes_error": bounds[0].error,
            "seconds_error": bounds[1].error,
            "group": group,
            "variants": listed,
        }

    def _evaluate(
        self, group: int, groups: Sequence[int], variant: Variant, ranges: tuple[_Range, _Range]
    ) -> dict[str, Any] | None:
        """Traced where the lengths meet; seconds are lists, one for each device of the group."""
        devices = [number for number, own in enumerate(groups) if own == group]
        devices = [number for number in devices if _has_precision(self._targets[number], variant.precision)]
        rates = [self._targets[number].rates(variant.precision) for number in devices]
        sources = _spread(ranges[0], self._source)
        targets = _spread(ranges[1], self._target) if ranges[1][1] else [0]
        points = []
        for source, longest_target in product(sources, targets):
            request = self._request(self._targets[groups.index(group)], source, longest_target)
            found = find_evaluation(request, variant)
            if found is None:
                return None
            points.append({"source": source, **found.describe(rates)})
            self._advance()
        tokens, rows, cache_bytes = passes.list_queue_limits(
            self._recipe.eval.batch_tokens, self._targets[devices[0]].kind
        )
        limits = {"piece_tokens": tokens, "queued_rows": rows, "queued_bytes": cache_bytes}
        return {"devices": devices, "sources": sources, "targets": targets, "points": points, **limits}


def _list_lossless(request: PlanRequest, recipe: Recipe) -> list[Variant]:
    """The recipe's own strategy and what a search tries on one GPU, without what is lossy besides the precision.

    Without blockwise attention of short texts, too: a loop over segments, whose time at other lengths is up to 40% off.
    """
    variants = [variant for variant in list_request_variants(request)[0] if not _is_blockwise(variant)]
    if recipe.strategy is not None:
        stated = load_strategy(recipe)
        precision = choose_precision_name(stated, request.target, request.allow)
        variants = [build_stated_variant(stated, precision), *variants]
    return [variant for variant in dict.fromkeys(variants) if not variant.is_lossy and variant.traced == variant]


def _is_blockwise(variant: Variant) -> bool:
    return ("attention", "blockwise") in variant.fields


def _has_precision(target: Target, precision: str) -> bool:
    return precision != "bf16" or target.kind == "cpu" or target.has_bf16


def _find_paths(source: int, target: int, paths: Paths, is_packed: bool) -> list[Any] | None:
    """Of the shapes that are traced for such texts: regimes, and whether embeddings sort rows. None: with loops."""
    found: list[Any] = []
    for shape in choose_traced(uniform(2, source, target or None, packed=is_packed), paths):
        regime, targets = find_regime(shape, paths), sum(shape.targets or ())
        has_loop = {regime.encoder, regime.decoder, regime.cross} - {None, KERNEL}
        if has_loop or count_loss_rows(shape, paths) not in (0, targets):
            return None
        found.append([regime, *(rows > SORTED_ROWS for rows in (sum(shape.sources), targets))])
    return found


def _name_regime(regime: Regime) -> str:
    """As the page's script builds it."""
    return "|".join(
        [
            "packed" if regime.packed else "padded",
            *(path or "" for path in (regime.encoder, regime.decoder, regime.cross)),
        ]
    )


def _align(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def _spread(ends: _Range, start: int) -> list[int]:
    """Both ends, the length that the plan is for, and one between the ends, if that is not between them."""
    least, most = ends
    margin = _NEAR_END * (most - least)
    is_between = least + margin <= start <= most - margin
    return sorted({least, start, start if is_between else _align((least + most) // 2), most})


def _describe_rates(rates: Rates) -> dict[str, Any]:
    return {
        "flops_per_second": [rates.flops_per_second.get(kind) for kind in KINDS],
        **{name: getattr(rates, name) for name in _RATES},
    }


_RATES = (
    *("bytes_per_second", "update_bytes_per_second", "call_seconds", "step_seconds", "products_wait_for_memory"),
    *("last_wave", "host_call_seconds"),
)


def _describe_rules() -> dict[str, Any]:
    """Constants of the search."""
    return {
        "host_bytes": HOST_BYTES,
        "margin": MARGIN,
        "smallest_budget": SMALLEST_BUDGET,
        "largest_budget": LARGEST_BUDGET,
        "equally_fast": EQUALLY_FAST,
        "worth_more": WORTH_MORE,
        "most_verified": MOST_VERIFIED,
        "chunk_bytes": CHUNK_BYTES,
        "least_chunk_rows": LEAST_CHUNK_ROWS,
        "whole_segment_tokens": WHOLE_SEGMENT_TOKENS,
        "block_rows": count_block_rows(WHOLE_SEGMENT_TOKENS + 1),
        "kinds": KINDS,
        "dense": DENSE,
        "alignment": ALIGNMENT,
    }


def _describe_template(regime_model: RegimeModel) -> dict[str, Any]:
    template = regime_model.template
    tape = template.tape
    lasting = [WEIGHTS, GRADIENTS, STATE]
    facts = np.array(
        [
            (
                lasting.index(block.category) if block.kernel == GIVEN and block.category in lasting else -1,
                block.category == GRADIENTS,
            )
            for block in tape.blocks
        ],
        dtype=np.float64,
    )
    rows, of_block = np.unique(np.hstack([template.block_bytes, facts]), axis=0, return_inverse=True)
    events, allocated = [], 0
    for event in tape.events:  # a block is numbered by when it is allocated
        if event >= 0:
            events.append(int(of_block[event]))
            allocated += 1
        else:
            events.append(~event - allocated)
    kinds, parts = regime_model.list_kernels()
    counted = np.array([part.astype(np.float64) for part in parts])
    costs = np.hstack([template.kernel_flops, template.kernel_bytes, template.kernel_calls, kinds[:, None]])
    kernels, of_kernel = np.unique(costs, axis=0, return_inverse=True)
    width = template.kernel_flops.shape[1]
    return {
        "blocks": [{"bytes": _pack(row[:-2]), "lasts": int(row[-2]), "is_gradient": bool(row[-1])} for row in rows],
        "events": events,
        "parts": tape.parts,
        "update_from": tape.update_from,
        "kernels": [
            {
                "kind": int(row[-1]),
                "flops": _pack(row[:width]),
                "bytes": _pack(row[width : 2 * width]),
                "calls": _pack(row[2 * width : 3 * width]),
                "counts": [int(part[of_kernel == number].sum()) for part in counted],
            }
            for number, row in enumerate(kernels)
        ],
    }


def _pack(coefficients: _Matrix) -> list[Any]:
    """[term, coefficient, term, coefficient, ...] of those that are not zero."""
    return [value for term in np.flatnonzero(coefficients) for value in (int(term), float(coefficients[term]))]
