"""Prints a plan: the answer first, then the ways compared, why others are not it, and the peak taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seqfit.step.host_memory import KEPT_AT_MOST
from seqfit.system import quote
from seqfit.units import format_bytes, format_count, format_flops, format_seconds, format_share

if TYPE_CHECKING:
    from seqfit.plan.answer import Answer, Explained, Way
    from seqfit.plan.duration import Rates

_BAR = 24


def print_plan(answer: Answer, *, explain: bool) -> None:
    """Everything a terminal needs."""
    console = Console()
    console.print(Text(_headline(answer), style="bold"))
    if answer.asked is not None:
        console.print(Text(_say_asked(answer)))
    if answer.chosen is not None:
        for line in _say_chosen(answer, answer.chosen):
            console.print(Text(line))
    else:
        console.print(Text(say_miss(answer)))
    way = answer.asked or answer.chosen
    if answer.target_kind == "cpu" and way is not None and answer.explained is not None:
        console.print(Text(_say_resident(way, answer.explained)))
    console.print(_ways_table(answer))
    for what, why in answer.refused:
        console.print(Text(f"not tried: {what}: {why}", style="dim"))
    for event in answer.events:
        console.print(Text(event, style="dim"))
    if explain and answer.explained is not None:
        print_explained(console, answer.explained, answer.capacity_bytes)


def say_miss(answer: Answer) -> str:
    """Nothing is chosen: what is closest, how far it misses, what would help."""
    closest = min(answer.ways, key=lambda way: way.predicted_bytes)
    sizes = f"{format_bytes(closest.predicted_bytes)} of {format_bytes(answer.capacity_bytes)}"
    way = f"{closest.label} ({closest.spread}) with micro-batches of {closest.micro_batch_tokens} tokens"
    if closest.fits:  # by formula or before its pieces are laid out, which is no reason to start a run with it
        return f"Nothing fits for certain. The closest, {way}, takes {sizes}; {_say_help(answer)}"
    short_bytes = closest.predicted_bytes - answer.capacity_bytes
    return (
        f"Nothing fits. The closest, {way}, needs {sizes} and misses by {format_bytes(short_bytes)} "
        f"({format_share(short_bytes / answer.capacity_bytes)}); {_say_help(answer)}"
    )


def _say_help(answer: Answer) -> str:
    lossy = [what for what, why in answer.refused if "allow=" in why]
    help_ = f"allow something lossy ({', '.join(lossy)}), " if lossy else ""
    device = "a card with more memory (--gpu), more cards (--gpus)"
    if answer.target_kind == "cpu":
        device = "a machine with more memory"
    return f"what would help: {help_}{device}, shorter texts (task.max_source_tokens), a smaller model"


def print_explained(console: Console, explained: Explained, capacity_bytes: int) -> None:
    """The peak as a tree with bars."""
    console.print(Text(f"\nThe peak of {explained.label}: {explained.cause}", style="bold"))
    table = Table("", "at the peak", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    whole = max(explained.allocated_bytes, 1)
    for depth, part in chain.from_iterable(part.walk() for part in explained.parts):
        if part.bytes >= 0.005 * whole:
            bar = "█" * max(1, round(_BAR * part.bytes / whole))
            table.add_row("  " * depth + part.name, format_bytes(part.bytes), Text(bar, style="dim" if depth else ""))
    extra = explained.reserved_bytes - explained.allocated_bytes
    if extra > 0:
        table.add_row("allocator: rounding, fragments", format_bytes(extra), "")
    if explained.context_bytes:
        table.add_row("CUDA context", format_bytes(explained.context_bytes), "")
    total = explained.reserved_bytes + explained.context_bytes
    table.add_row("all", format_bytes(total), f"of {format_bytes(capacity_bytes)}")
    console.print(table)


def print_difference(before: Answer, after: Answer, changes: Sequence[str]) -> None:
    """Two plans side by side."""
    table = Table("", "as it is", f"with {', '.join(changes)}", title="what if")
    for name, first, second in _compare(before, after):
        table.add_row(name, first, second)
    Console().print(table)


def print_rates(rates: Rates) -> None:
    """What a calibration measured."""
    console = Console()
    console.print(Text(rates.source))
    for kind, rate in rates.flops_per_second.items():
        console.print(Text(f"  {kind}: {format_flops(rate)}"))
    console.print(
        Text(f"  other kernels: {format_bytes(rates.bytes_per_second)}/s, {rates.call_seconds * 1e6:.1f} us a call")
    )


def _headline(answer: Answer) -> str:
    steps = f"{format_count(answer.total_steps)} steps of {format_count(answer.real_tokens_per_step)} tokens on average"
    return f"{answer.target}, {format_bytes(answer.capacity_bytes)} usable; {steps}"


def _say_resident(way: Way, explained: Explained) -> str:
    """What the system shows for the process, which on a CPU depends on what becomes of freed memory."""
    kept = int(way.predicted_bytes + (KEPT_AT_MOST - 1) * explained.allocated_bytes)
    return (
        f"resident memory of the process: {format_bytes(way.predicted_bytes)} with strategy.host_memory=return, "
        f"up to {format_bytes(kept)} with keep, which is faster"
    )


def _say_asked(answer: Answer) -> str:
    way = answer.asked
    assert way is not None
    verdict = "fits" if way.fits else f"does not fit: {way.why_not}"
    cause = "" if answer.explained is None else f". Most of it: {answer.explained.cause}"
    return (
        f"as the recipe says ({way.label}): {format_bytes(way.predicted_bytes)}, "
        f"{format_seconds(way.predicted_step_seconds)} a step; {verdict}{cause}"
    )


def _say_chosen(answer: Answer, way: Way) -> Iterator[str]:
    rate = answer.real_tokens_per_step / way.predicted_step_seconds
    total = way.predicted_step_seconds * answer.total_steps
    yield (
        f"best: {way.label}, micro-batches of {way.micro_batch_tokens} tokens: {format_bytes(way.predicted_bytes)}, "
        f"{format_seconds(way.predicted_step_seconds)} a step ({format_count(rate)} tokens/s), "
        f"{format_seconds(total)} in all"
    )
    yield f"rates: {answer.rates_source}"
    yield f"use it: seqfit train RECIPE {' '.join(map(quote, way.overrides))}"


def _ways_table(answer: Answer) -> Table:
    table = Table("way of training", "on", "tokens a micro-batch", "memory", "step", "", title="ways compared")
    for column in (2, 3, 4):
        table.columns[column].justify = "right"
    front = {(way.label, way.spread, way.micro_batch_tokens) for way in answer.front}
    ways = sorted(answer.ways, key=lambda way: (not way.fits, way.predicted_step_seconds))
    for way in ways:
        chosen = answer.chosen is not None and (way.label, way.spread) == (answer.chosen.label, answer.chosen.spread)
        note = "chosen" if chosen else way.why_not
        if (way.label, way.spread, way.micro_batch_tokens) in front:
            note = f"{note}; on the front".removeprefix("; ")
        style = "bold" if chosen else "" if way.fits else "dim"
        cells = (
            way.label,
            way.spread,
            f"{way.micro_batch_tokens:,}",
            format_bytes(way.predicted_bytes),
            format_seconds(way.predicted_step_seconds),
            note,
        )
        table.add_row(*cells, style=style)
    return table


def _compare(before: Answer, after: Answer) -> Iterator[tuple[str, str, str]]:
    for name, say in (
        ("best way", lambda way: way.label),
        ("micro-batches of", lambda way: f"{way.micro_batch_tokens} tokens"),
        ("memory", lambda way: format_bytes(way.predicted_bytes)),
        ("a step", lambda way: format_seconds(way.predicted_step_seconds)),
    ):
        cells = [("nothing fits" if answer.chosen is None else say(answer.chosen)) for answer in (before, after)]
        yield name, cells[0], cells[1]
    sizes = [min(way.predicted_bytes for way in answer.ways) for answer in (before, after)]
    yield "the leanest way", format_bytes(sizes[0]), format_bytes(sizes[1])
    yield "its change", "", f"{'+' if sizes[1] >= sizes[0] else '-'}{format_share(abs(sizes[1] / sizes[0] - 1))}"
