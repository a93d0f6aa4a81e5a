"""Which candidate to use, in three sentences: the fastest, the lowest memory and the best score.

In: a `Comparison`. Out: `Pick`s, which are fields, and the text made from them.

    Fastest: accumulation (lossless), 1.22 s per step against 1.32 s (92%, 95% confidence interval 90% to 95%), 533 MiB
    against 1.22 GiB (43%), accuracy 82.00, the same. Predicted for Tesla V100: all (lossy), 101 ms per step against
    215 ms (47%), 1.02 GiB against 3.10 GiB (33%).

Measured candidates are ranked by what was measured here; for every other GPU, all candidates are ranked by predictions.
What is not significant is never called better, and the sentence states how many repeats, seeds or rows would be needed.
A candidate of kind `different` has another recipe: only its score is ranked.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqfit.comparison.quantities import STEP_SECONDS, Quantity, choose_score, find_quantity, format_ratio
from seqfit.comparison.records import HERE, Amount, CandidateResult, Comparison, Goal, Pick, Prediction
from seqfit.hardware import find_card
from seqfit.units import format_count

_BEST: dict[Goal, str] = {"time": "fastest", "memory": "lowest memory", "score": "best score"}


def find_picks(comparison: Comparison) -> tuple[Pick, ...]:
    """Time, memory, score; of the first two one for this machine and one for every predicted GPU."""
    baseline = comparison.results[0]
    score = choose_score([name for one in comparison.results for name in one.figures])
    names: dict[Goal, str | None] = {"time": STEP_SECONDS, "memory": comparison.memory, "score": score}
    picks = []
    for goal in names:
        name = names[goal]
        others = [other for what, other in names.items() if what != goal and other is not None]
        others_have = any(name in one.figures for one in comparison.results[1:])
        if name is not None and name in baseline.figures and others_have:
            picks.append(_pick_measured(comparison, goal, name, others))
        devices = _list_devices(comparison) if goal != "score" else []
        picks += [pick for device in devices if (pick := _pick_predicted(comparison, goal, device)) is not None]
    return tuple(picks)


def rank_results(comparison: Comparison) -> list[CandidateResult]:
    """By time relative to the baseline: measured here, or else predicted for the first GPU; the others last."""

    def key(result: CandidateResult) -> tuple[float, bool]:
        ratio = find_ratio(comparison, result)
        return (float("inf") if ratio is None else ratio, result.candidate.kind != "baseline")

    return sorted(comparison.results, key=key)


def find_ratio(comparison: Comparison, result: CandidateResult) -> float | None:
    """Of its time per step to the baseline's, on the same machine."""
    if result.candidate.kind == "baseline":
        return 1.0
    figure = result.figures.get(STEP_SECONDS)
    if figure is not None:
        return None if figure.change is None else 1 + figure.change
    amount = find_predicted(comparison, result, STEP_SECONDS)
    return None if amount is None else amount.ours / amount.theirs


def find_predicted(comparison: Comparison, result: CandidateResult, name: str) -> Amount | None:
    """Time per step or memory of a candidate, on the first GPU with predictions for it and the baseline."""
    for device in _list_devices(comparison):
        found = {one.candidate.name: find_prediction(one, device) for one in comparison.results}
        ours, theirs = found[result.candidate.name], found[comparison.results[0].candidate.name]
        if ours is not None and theirs is not None:
            amounts = [one for one in _list_predicted(ours, theirs) if one.quantity == name]
            return amounts[0] if amounts else None
    return None


def find_prediction(result: CandidateResult, device: str) -> Prediction | None:
    """On a device, or on several of it."""
    return next((one for one in result.predictions if one.device == device), None)


def describe_recommendation(comparison: Comparison) -> str:
    """The sentences, one per line; also for a comparison that has just begun."""
    baseline, *others = comparison.results
    sentences = [_describe_goal(comparison, goal) for goal in _BEST]
    if not any(one.figures for one in others) or not baseline.figures:
        known = [one.candidate.name for one in comparison.results if one.figures]
        who = f"only {_join(known)} {'has' if len(known) == 1 else 'have'} measurements" if known else "there are none"
        sentences.insert(0, f"No measurements can be compared: {who}.")
    missing, ended = list_missing(comparison), comparison.matrix.ended
    sentences += [f"Missing{f', because {ended}' if ended else ''}: {'; '.join(missing)}."] if missing else []
    return "\n".join(sentence for sentence in sentences if sentence)


def list_missing(comparison: Comparison) -> list[str]:
    matrix = comparison.matrix
    running = [one for one in comparison.results if not one.candidate.unavailable]
    wanted = len(matrix.seeds) * matrix.repeats
    missing = [
        f"{_join(names)} ({what})"
        for what, state in (("out of memory", "out_of_memory"), ("failed", "failed"), ("not run", "missing"))
        if (names := [one.candidate.name for one in running if one.state == state])
    ]
    missing += [f"{one.candidate.name} ({one.reason})" for one in running if one.state == "unfinished"]
    counts = {one.candidate.name: one.trials for one in running if one.state in ("finished", "waiting")}
    fewer = {name: count for name, count in counts.items() if count < wanted}
    if len(fewer) == len(counts) and len(set(counts.values())) == 1 and fewer:
        missing.append(f"repeats (all have {next(iter(fewer.values()))} of {wanted})")
    elif fewer:
        missing.append(f"repeats ({', '.join(f'{name} has {count} of {wanted}' for name, count in fewer.items())})")
    for card in (find_card(key).name for key in matrix.targets):
        names = [one.candidate.name for one in comparison.results if find_prediction(one, card) is None]
        missing += [f"predictions for {card} ({_join(names)})"] if names else []
    return missing


def format_amount(amount: Amount, *, is_first: bool = False) -> str:
    """'1.22 s per step against 1.32 s (92%, 90% to 95%)'."""
    quantity = find_quantity(amount.quantity)
    ours, theirs = quantity.format(amount.ours), quantity.format(amount.theirs)
    head = {STEP_SECONDS: f"{ours} per step"}.get(amount.quantity, ours)
    head = f"{quantity.label} {ours}" if quantity.pairing == "seeds" else head
    if amount.ours == amount.theirs and amount.is_significant is not True:
        return f"{head}, the same"
    change = _format_change(quantity, amount, "95% confidence interval " if is_first else "")
    return f"{head} against {theirs} ({', '.join(filter(None, (change, _format_significance(amount))))})"


def _format_change(quantity: Quantity, amount: Amount, interval: str) -> str:
    """The ratio of two sizes or the difference of two scores, with its confidence interval."""

    def write(change: float) -> str:
        return f"{change * abs(amount.theirs):+.2f}" if quantity.pairing == "seeds" else format_ratio(1 + change)

    change = write((amount.ours - amount.theirs) / abs(amount.theirs))
    if amount.low is None or amount.high is None or amount.low == amount.high:
        return change
    return f"{change}, {interval}{write(amount.low)} to {write(amount.high)}"


def _format_significance(amount: Amount) -> str:
    if amount.is_predicted or amount.is_significant is True:
        return ""
    if amount.is_significant is None:
        return "too few seeds to tell" if amount.needed_of == "seeds" else "too few repeats to tell"
    needs = f", would need about {format_count(amount.needed)} {amount.needed_of}" if amount.needed else ""
    return f"not significant{needs}"


def _describe_goal(comparison: Comparison, goal: Goal) -> str:
    sentences: list[str] = []
    for pick in (one for one in comparison.picks if one.goal == goal):
        amounts = ", ".join(format_amount(one, is_first=not number) for number, one in enumerate(pick.amounts))
        who = f"{pick.candidate} ({pick.kind})" if pick.kind != pick.candidate else pick.candidate
        if pick.target != HERE:
            lead = "" if sentences else f"{_BEST[goal].capitalize()}, "
            text = f"{lead}predicted for {pick.target}: {who}, {amounts}"
        elif pick.is_significant:
            is_sure = pick.amounts[0].is_significant is not None
            text = f"{_BEST[goal] if is_sure else f'possibly {_BEST[goal]}'}: {who}, {amounts}"
        elif pick.kind == "baseline":
            value = format_amount(pick.amounts[0]).removesuffix(", the same")
            text = f"{_BEST[goal]}: {who}, {value}; no candidate is significantly better"
        else:
            text = f"{_BEST[goal]}: {comparison.matrix.baseline.name}; no candidate is significantly better; closest: "
            text += f"{who}, {amounts}"
        sentences.append(f"{text[0].upper()}{text[1:]}.")
    return " ".join(sentences)


def _pick_measured(comparison: Comparison, goal: Goal, name: str, others: Sequence[str]) -> Pick:
    """The best that is significantly better, or may be; else the closest; else the baseline."""
    baseline = comparison.results[0]
    ranked = [one for one in comparison.results[1:] if goal == "score" or one.candidate.kind != "different"]
    known = [one for one in ranked if name in one.figures]
    sign = 1 if find_quantity(name).higher_is_better else -1
    changed = {one.candidate.name: sign * (one.figures[name].change or 0.0) for one in known}
    better = [one for one in known if changed[one.candidate.name] > 0]
    sure = [one for one in better if one.figures[name].is_significant is not False]
    best = max(sure or better, key=lambda one: changed[one.candidate.name], default=baseline)
    shown = [name, *(other for other in others if other in best.figures and other in baseline.figures)]
    amounts = []
    for one in shown:
        figure, theirs = best.figures[one], baseline.figures[one].mean
        given = (figure.change_low, figure.change_high, figure.is_significant, figure.needed, figure.needed_of)
        amounts.append(Amount(one, figure.mean, theirs, *given))
    return Pick(goal, best.candidate.name, best.candidate.kind, HERE, tuple(amounts), is_significant=best in sure)


def _pick_predicted(comparison: Comparison, goal: Goal, device: str) -> Pick | None:
    """The best of those that fit on a GPU; None without predictions for the baseline."""
    found = {one.candidate.name: find_prediction(one, device) for one in comparison.results}
    baseline = found[comparison.results[0].candidate.name]
    fitting = [
        (one, _list_predicted(ours, baseline))
        for one in comparison.results
        if (ours := found[one.candidate.name]) is not None and ours.fits is not False and baseline is not None
        if one.candidate.kind != "different"
    ]
    first = 0 if goal == "time" else 1
    complete = [(one, amounts) for one, amounts in fitting if len(amounts) > first]
    if not complete:
        return None
    best, amounts = min(complete, key=lambda item: item[1][first].ours)
    ordered = (amounts[first], *(amount for amount in amounts if amount is not amounts[first]))
    return Pick(goal, best.candidate.name, best.candidate.kind, device, ordered, is_significant=False)


def _list_predicted(ours: Prediction, theirs: Prediction) -> list[Amount]:
    """Time, then memory; none if either is missing."""
    times, bytes_held = (ours.step_seconds, theirs.step_seconds), (ours.peak_bytes, theirs.peak_bytes)
    pairs = [(STEP_SECONDS, *times), ("allocated_bytes", *bytes_held)]
    known = [(name, mine, other) for name, mine, other in pairs if mine is not None and other]
    return [Amount(name, mine, other, is_predicted=True) for name, mine, other in known] if len(known) == 2 else []


def _list_devices(comparison: Comparison) -> list[str]:
    """Predicted GPUs, in the order they were named."""
    found = [one.device for result in comparison.results for one in result.predictions]
    return [device for device in dict.fromkeys(found) if device != HERE]


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
