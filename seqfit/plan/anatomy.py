"""What a step's peak consists of, as a tree: category, part of the model, what it is.

In: a tape. Out: an `Anatomy` with nested shares, the largest cause in words, and a timeline of the step's memory.

    activations                 14.2 GiB
      encoder blocks (12)       13.0 GiB
        attention scores        11.8 GiB      <- the cause: 59% of the peak
        feed-forward             0.9 GiB
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from seqfit.plan.answer import Part
from seqfit.plan.tape import ACTIVATIONS, CATEGORIES, LOSS, TEMPORARIES, Block, Tape

_TIMELINE_POINTS = 400
_BLOCK = re.compile(r"(encoder|decoder)(?:\.layers?|\.block|\.layer)\.(\d+)")


@dataclass(frozen=True)
class Timeline:
    """Live bytes of each category along the step, thinned out."""

    phases: list[str]
    categories: dict[str, list[int]]


@dataclass(frozen=True)
class Anatomy:
    """The peak taken apart."""

    peak_bytes: int
    parts: list[Part]
    cause: str
    timeline: Timeline


def explain_tape(tape: Tape) -> Anatomy:
    """Of the peak of a traced step."""
    live = tape.live_at_peak()
    parts = [_category_part(category, live) for category in CATEGORIES]
    parts = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return Anatomy(tape.peak_bytes, parts, _name_cause(live), trace_timeline(tape))


def trace_timeline(tape: Tape) -> Timeline:
    """Live bytes by category at points spread evenly over the events."""
    first = tape.parts[0] if tape.parts else 0
    points = np.unique(np.linspace(first, len(tape.events) - 1, _TIMELINE_POINTS).astype(int))
    points = np.union1d(points, [int(tape.live_bytes().argmax())])
    sums = dict.fromkeys(CATEGORIES, 0)
    timeline: dict[str, list[int]] = {category: [] for category in CATEGORIES}
    wanted = set(points.tolist())
    for number, event in enumerate(tape.events):
        block = tape.blocks[event if event >= 0 else ~event]
        sums[block.category] += block.bytes if event >= 0 else -block.bytes
        if number in wanted:
            for category, total in sums.items():
                timeline[category].append(total)
    return Timeline(_phases_at(tape, points.tolist()), timeline)


def _phases_at(tape: Tape, points: list[int]) -> list[str]:
    phases, stretch = [], 0
    for point in points:
        while stretch + 1 < len(tape.stretches) and tape.stretches[stretch + 1].first_event <= point:
            stretch += 1
        phases.append(tape.stretches[stretch].phase)
    return phases


def _category_part(category: str, live: list[Block]) -> Part:
    blocks = [block for block in live if block.category == category]
    total = sum(block.bytes for block in blocks)
    if category not in (ACTIVATIONS, TEMPORARIES, LOSS):
        return Part(category, total)
    places = _group(blocks, lambda block: _place(block.place))
    children = []
    for place, inside in places.items():
        kinds = [Part(kind, _sum(part)) for kind, part in _group(inside, _kind).items()]
        children.append(Part(place, _sum(inside), sorted(kinds, key=lambda part: -part.bytes)))
    return Part(category, total, sorted(children, key=lambda part: -part.bytes))


def _group(blocks: Iterable[Block], name: Callable[[Block], str]) -> dict[str, list[Block]]:
    groups: dict[str, list[Block]] = {}
    for block in blocks:
        groups.setdefault(name(block), []).append(block)
    return groups


def _sum(blocks: Iterable[Block]) -> int:
    return sum(block.bytes for block in blocks)


def _place(place: str) -> str:
    found = _BLOCK.search(place)
    if found is not None:
        return f"{found.group(1)} blocks"
    if "encoder" in place or "decoder" in place:
        return "encoder, outside its blocks" if "encoder" in place else "decoder, outside its blocks"
    return "head and loss" if place == "" or "lm_head" in place or "classifier" in place else "backward"


def _kind(block: Block) -> str:
    """What a block is, from its shape and from where it was made."""
    if is_scores(block):
        return "attention scores and bias"
    place = block.place.lower()
    if "attention" in place or "attn" in place:
        return "attention's states"
    if any(word in place for word in ("dense", "wi", "wo", "intermediate", "fc1", "fc2", "feed")):
        return "feed-forward"
    return "norms, dropout, residuals"


def is_scores(block: Block) -> bool:
    """[..., queries, keys] for each head: the only blocks with a head's dimension and no head's width at the end."""
    is_square = len(block.shape) >= 3 and min(block.shape[-2:]) > 1 and block.shape[-3] <= 256
    wide = len(block.shape) >= 3 and block.shape[-1] > 256 and block.shape[-2] > 1 and block.shape[-3] > 1
    kernels = ("_softmax", "bmm", "baddbmm", "add", "mul", "bernoulli_", "empty_like", "_to_copy", "clone", "passing")
    in_attention = "attention" in block.place.lower() or "attn" in block.place.lower()
    return is_square and wide and (in_attention or block.kernel in kernels)


def _name_cause(live: list[Block]) -> str:
    """The largest single cause in words, with its share of the peak."""
    total = max(_sum(live), 1)
    causes = {
        "attention scores and bias, which grow with the square of the length": _sum(
            block for block in live if block.category in (ACTIVATIONS, TEMPORARIES) and is_scores(block)
        ),
        "logits and loss, which grow with the vocabulary": _sum(block for block in live if block.category == LOSS),
        "activations of linear layers, norms and dropout, which grow with the tokens of a micro-batch": _sum(
            block for block in live if block.category == ACTIVATIONS and not is_scores(block)
        ),
        "weights, gradients and optimizer state, which no batch size changes": _sum(
            block for block in live if block.category in CATEGORIES[:3]
        ),
    }
    name, size = max(causes.items(), key=lambda item: item[1])
    return f"{name} ({size / total:.0%} of the peak)"
