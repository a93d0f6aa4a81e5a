"""A user's own metric: a function with (prediction, references) for a row, or (predictions, references) for all.

    def fuzzy_match(prediction, references):            # prediction: a text, references: a list of texts
        return max(ratio(prediction, text) for text in references)

Its score has the function's name and the mean of its values, as they are; higher is better, so an error is returned as
its negative. Values of single rows give a confidence interval; a function of all rows that returns one number has none.
It is tried on three rows before training: its mistakes must not show after an hour. Where it fails later, the score is
absent with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from statistics import fmean
from typing import Any

from seqfit.errors import RecipeError
from seqfit.metrics.resampling import mean_rows
from seqfit.metrics.scores import Pairs, Scores
from seqfit.own_functions import OwnFunction, explain_failure, load_function

_FIELD = "eval.metrics"
_OF_A_ROW, _OF_ALL = ["prediction", "references"], ["predictions", "references"]
_RULE = (
    "A metric is f(prediction, references), which returns a number for one row, or f(predictions, references), which "
    "returns a number, or a number for every row"
)
TRIED = 3  # rows, before training


def load_own_metric(spec: str) -> OwnFunction:
    own = load_function(spec, _FIELD)
    if own.parameters[:2] not in (_OF_A_ROW, _OF_ALL):
        raise RecipeError(
            f"{_FIELD} names '{spec}', whose parameters are ({', '.join(own.parameters)})",
            _RULE,
            f"Write def {own.name}(prediction, references)",
        )
    return own


def build_own_metric(own: OwnFunction) -> Callable[[Pairs], Scores]:
    def compute(pairs: Pairs) -> Scores:
        file = own.spec.rpartition(":")[0].replace("\\", "/").rpartition("/")[2]
        signatures = {own.name: f"{own.name}|{file}|sha256:{own.sha256[:12]}"}
        try:
            found = _call(own, pairs)
        except RecipeError as error:  # after an hour of training it costs this score, and not the run
            return Scores(absent={own.name: str(error)})
        if isinstance(found, list):
            return Scores({own.name: fmean(found)}, signatures, resamplers=(mean_rows({own.name: found}, scale=1.0),))
        return Scores({own.name: found}, signatures)

    return compute


def try_own_metric(own: OwnFunction, references: Sequence[Sequence[str]]) -> None:
    """On rows of the data: with a right prediction, an empty one, and another row's."""
    rows = [list(row) for row in references if row][:TRIED]
    predictions = [rows[0][0], "", rows[0][0]][: len(rows)] if rows else []
    if rows:
        _call(own, Pairs(rows, predictions))


def _call(own: OwnFunction, pairs: Pairs) -> list[float] | float:
    references = [list(row) for row in pairs.references]
    if own.parameters[:2] == _OF_A_ROW:
        values = []
        for number, (row, said) in enumerate(zip(references, pairs.predictions, strict=True)):
            where = f" for prediction {said[:60]!r} and references {str(row)[:120]}"
            values.append(_to_number(own, _run(own, where, said, row), f"{where} (row {number})"))
        return values
    found = _run(own, f" for {len(references)} rows", list(pairs.predictions), references)
    if isinstance(found, Real):
        return _to_number(own, found, "")
    try:
        values = [_to_number(own, value, f" for row {number}") for number, value in enumerate(found)]
    except TypeError:
        return _to_number(own, found, "")  # reports it
    if len(values) != len(references):
        raise RecipeError(f"{own.name} returned {len(values)} values for {len(references)} rows", _RULE, "Correct it")
    return values


def _run(own: OwnFunction, where: str, *arguments: Any) -> Any:
    try:
        return own.call(*arguments)
    except Exception as error:  # whatever a user's code raises
        raise RecipeError(
            f"{explain_failure(own, error)}{where}", "A metric gives a value for every row", f"Correct {own.spec}"
        ) from error


def _to_number(own: OwnFunction, value: Any, where: str) -> float:
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # of numpy or torch
        value = value.item()
    if not isinstance(value, Real) or not math.isfinite(value):
        raise RecipeError(f"{own.name} returned {value!r}{where}", _RULE, f"Return a finite number in {own.spec}")
    return float(value)
