"""The study of six strategies: how near predictions are, whether lossless candidates are, what 100 rows can show.

In: the evidence of the study. Out: its answer and sections. Everything is computed from the table and the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from seqfit.studies.figures import Basis
from seqfit.studies.hooks import Explanation, StudyEvidence
from seqfit.studies.intervals import share_interval
from seqfit.studies.results import StudyResult, StudySection, StudyTable

_TEST_ROWS = 100
_DIFFERS = 1.05  # published times closer than this have no order
_TOKENS = 5 * 1000 * 60  # of the published training: epochs, rows, tokens of a mean row
_FLOPS_PER_TOKEN = 6 * 85e6  # of BERT-base's layers


def explain_classic_strategies(evidence: StudyEvidence) -> Explanation:
    sections = [_show_predictions(evidence.result), _show_scores(evidence.result)]
    lossless = _show_lossless(evidence)
    return Explanation(_write_answer(evidence), tuple(one for one in (*sections, lossless) if one is not None))


def _write_answer(evidence: StudyEvidence) -> str:
    result = evidence.result
    parts = [_describe_saving(result, basis) for basis in ("published", "predicted", "measured")]
    inverted = evidence.audit is not None and any(one.is_inverted for one in evidence.audit.findings)
    hid = "the published accumulation was inverted, and " if inverted else ""
    noise = f"{hid}no difference in accuracy exceeds what {_TEST_ROWS} rows can show"
    return f"Gradient checkpointing saves memory and costs time: {'; '.join(filter(None, parts))}; {noise}."


def _describe_saving(result: StudyResult, basis: Basis) -> str:
    """'published 51% of the memory at 137% of the time'."""
    row = result.find_row("gradient checkpointing")
    memory, time = (result.find_ratio(row, basis, quantity) for quantity in ("memory", "time"))
    if memory is None or time is None:
        return ""
    return f"{basis} {memory:.0%} of the memory at {time:.0%} of the time"


def _show_predictions(result: StudyResult) -> StudySection | None:
    published, predicted = (result.list_values(basis, "memory") for basis in ("published", "predicted"))
    both = [name for name in published if name in predicted]
    if not both:
        return None
    errors = {name: predicted[name] / published[name] - 1 for name in both}
    rows = tuple(
        (
            name,
            *(result.find_row(name).on(basis)["memory"].format() for basis in ("published", "predicted")),
            f"{error:+.1%}",
        )
        for name, error in errors.items()
    )
    mean = sum(map(abs, errors.values())) / len(errors)
    worst = max(errors, key=lambda name: abs(errors[name]))
    text = [f"Memory: {mean:.1%} off on average, at most {abs(errors[worst]):.1%} ({worst})."]
    return StudySection(
        "How near the predictions are",
        text=(*text, *_describe_order(result), *_describe_speed(result)),
        table=StudyTable(("candidate", "published", "predicted", "error"), rows),
    )


def _describe_order(result: StudyResult) -> Iterator[str]:
    published, predicted = (result.list_values(basis, "time") for basis in ("published", "predicted"))
    right = wrong = 0
    swapped = []
    for one, other in combinations([name for name in published if name in predicted], 2):
        fast, slow = sorted((one, other), key=lambda name: published[name])
        if published[slow] / published[fast] <= _DIFFERS:
            continue
        if predicted[fast] < predicted[slow]:
            right += 1
        else:
            wrong += 1
            swapped.append(f"{fast} and {slow}")
    if right + wrong:
        rest = f"; not: {', '.join(swapped)}" if swapped else ""
        pairs = f"{right + wrong} pairs whose published times differ by more than 5%"
        yield f"Time: of {pairs}, {right} are predicted in this order{rest}."


def _describe_speed(result: StudyResult) -> Iterator[str]:
    """Why times are compared by their order only."""
    seconds = result.list_values("published", "time").get(result.baseline)
    if seconds:
        speed = _TOKENS * _FLOPS_PER_TOKEN / seconds / 1e12
        yield (
            f"The published {seconds:.0f} s of {result.baseline} are {speed:.1f} TFLOP/s, about a tenth of what a V100 "
            "reaches in fp32: the account's GPU was much slower or waited most of the time. So its seconds can't be "
            "predicted, only which row is faster."
        )


def _show_scores(result: StudyResult) -> StudySection | None:
    published = result.list_values("published", "accuracy")
    if not published:
        return None
    intervals = {name: share_interval(value / 100, _TEST_ROWS) for name, value in published.items()}
    rows = tuple(
        (name, f"{published[name]:.0f}%", f"{100 * low:.1f}% to {100 * high:.1f}%")
        for name, (low, high) in intervals.items()
    )
    common_low = max(low for low, _ in intervals.values())
    common_high = min(high for _, high in intervals.values())
    overlap = (
        f"all intervals have {100 * common_low:.0f}% to {100 * common_high:.0f}% in common, so no row is better than "
        "another"
        if common_low < common_high
        else "not all intervals overlap"
    )
    text = f"On {_TEST_ROWS} test rows a published accuracy is known to within about 8 points: {overlap}."
    columns = ("candidate", "published accuracy", "95% confidence interval")
    return StudySection("What 100 test rows can show", text=(text,), table=StudyTable(columns, rows))


def _show_lossless(evidence: StudyEvidence) -> StudySection | None:
    comparison = evidence.comparison
    if comparison is None:
        return None
    lines = [check.detail for check in comparison.checks if check.name == "losses of lossless candidates"]
    if not lines:
        return None
    text = (
        "Gradient accumulation and gradient checkpointing make the same update as plain training, up to rounding: "
        f"losses step by step, {lines[0]}.",
    )
    return StudySection("Lossless rows", "measured", text=text)
