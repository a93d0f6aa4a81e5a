"""The answer of a study without a hook, in one sentence, from its table.

Least memory: published all (2.91 GB, 42% of plain), predicted all (2.63 GB, 38%), measured recompute (514 MiB,
41%); least time: published fp16 (69 s, 40%), ...
"""

from __future__ import annotations

from collections.abc import Iterator

from seqfit.studies.figures import BASES, Basis, is_bytes, is_seconds
from seqfit.studies.results import StudyResult


def answer_from_table(result: StudyResult) -> str:
    parts = []
    for quantity in result.quantities:
        found = list(_list_least(result, quantity))
        if found:
            parts.append(f"least {quantity}: {', '.join(found)}")
    text = "; ".join(parts) or "no candidate has figures to compare"
    return f"{text[0].upper()}{text[1:]}."


def _list_least(result: StudyResult, quantity: str) -> Iterator[str]:
    """Of bytes and seconds only: which direction of others is better is not stated."""
    for basis in BASES:
        units = {row.on(basis)[quantity].unit for row in result.rows if quantity in row.on(basis)} - {""}
        if units and all(is_bytes(unit) or is_seconds(unit) for unit in units):
            yield from _describe_least(result, quantity, basis)


def _describe_least(result: StudyResult, quantity: str, basis: Basis) -> Iterator[str]:
    values = result.list_values(basis, quantity)
    if len(values) < 2:
        return
    name = min(values, key=lambda one: values[one])
    row = result.find_row(name)
    ratio = result.find_ratio(row, basis, quantity)
    share = "" if ratio is None or name == result.baseline else f", {ratio:.0%} of {result.baseline}"
    figure = row.on(basis)[quantity]
    number = figure.format().split(" (")[0]
    yield f"{basis} {name} ({number}{share})"
