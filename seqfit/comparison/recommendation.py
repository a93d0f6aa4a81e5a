"""What to use, in three sentences: the fastest, the smallest and the best-scored candidate, each with what it costs.

In: a `Comparison`. Out: `Pick`s, which are fields, and from them the text; here and nowhere else.

    Fastest: accumulation (lossless): 1.22 s per step against 1.32 s (92%, 95% confidence interval 90% to 95%), 533 MiB
    against 1.22 GiB (43%), accuracy 82.00, the same; on Tesla V100 it is predicted to be all (lossy): 101 ms per step
    against 215 ms (47%), 1.02 GiB against 3.10 GiB (33%).

Measured candidates are ranked by what was measured here; for every GPU that was asked about, all candidates are ranked
by what is predicted for it. What is not significant is never called better, and is said with what it takes to tell.
A candidate of kind `different` is another recipe: only its score is ranked.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqfit.comparison.quantities import (
    STEP_SECONDS,
    Quantity,
    choose_memory,
    choose_score,
    find_quantity,
    format_ratio,
)
from seqfit.comparison.records import (
    HERE,
    Amount,
    CandidateResult,
    Comparison,
    Figure,
    Goal,
    Pick,
    Prediction,
    name_device,
    say_kind,
)
from seqfit.hardware.cards import find_card
from seqfit.units import format_count

_BEST: dict[Goal, str] = {"time": "fastest", "memory": "smallest", "score": "best by score"}


def find_picks(comparison: Comparison) -> tuple[Pick, ...]:
    """Time, memory, score; of the first two one for this machine and one for every GPU that is predicted."""
    reference = comparison.standings[0]
    memory = choose_memory(one.figures for one in comparison.standings)
    score = choose_score([name for one in comparison.standings for name in one.figures])
    names: dict[Goal, str | None] = {"time": STEP_SECONDS, "memory": memory, "score": score}
    picks = []
    for goal in names:
        name = names[goal]
        others = [other for what, other in names.items() if what != goal and other is not None]
        others_have = any(name in one.figures for one in comparison.standings[1:])
        if name is not None and name in reference.figures and others_have:
            picks.append(_pick_measured(comparison, goal, name, others))
        devices = _list_devices(comparison) if goal != "score" else []
        picks += [pick for device in devices if (pick := _pick_predicted(comparison, goal, device)) is not None]
    return tuple(picks)


def rank_results(comparison: Comparison) -> list[CandidateResult]:
    """By time, relative to the baseline: measured here, or else predicted for the first GPU; the others last."""

    def key(standing: CandidateResult) -> tuple[float, bool]:
        ratio = find_ratio(comparison, standing)
        return (float("inf") if ratio is None else ratio, standing.entrant.kind != "reference")

    return sorted(comparison.standings, key=key)


def find_ratio(comparison: Comparison, standing: CandidateResult) -> float | None:
    """Of its step time to the baseline's, on the same machine."""
    if standing.entrant.kind == "reference":
        return 1.0
    figure = standing.figures.get(STEP_SECONDS)
    if figure is not None:
        return None if figure.change is None else 1 + figure.change
    amount = find_predicted(comparison, standing, STEP_SECONDS)
    return None if amount is None else amount.ours / amount.theirs


def find_predicted(comparison: Comparison, standing: CandidateResult, name: str) -> Amount | None:
    """Step time or memory of a candidate that was not measured, on the first GPU that knows it and the baseline."""
    for device in _list_devices(comparison):
        found = {one.entrant.name: find_prediction(one, device) for one in comparison.standings}
        ours, theirs = found[standing.entrant.name], found[comparison.standings[0].entrant.name]
        if ours is not None and theirs is not None:
            amounts = [one for one in _list_predicted(ours, theirs) if one.quantity == name]
            return amounts[0] if amounts else None
    return None


def find_prediction(standing: CandidateResult, device: str) -> Prediction | None:
    """Of a candidate on a device; two of a kind are that kind."""
    return next((one for one in standing.predictions if name_device(one.target) == device), None)


def describe_recommendation(comparison: Comparison) -> str:
    """The sentences, one per line; also of a comparison that has only begun."""
    reference, *others = comparison.standings
    sentences = [_say_goal(comparison, goal) for goal in _BEST]
    if not any(one.figures for one in others) or not reference.figures:
        known = [one.entrant.name for one in comparison.standings if one.figures]
        who = f"only {_join(known)} {'has' if len(known) == 1 else 'have'} figures" if known else "there are no figures"
        sentences.insert(0, f"Nothing measured can be compared: {who}.")
    missing, ended = list_missing(comparison), comparison.matrix.ended
    sentences += [f"Missing{f', because {ended}' if ended else ''}: {'; '.join(missing)}."] if missing else []
    return "\n".join(sentence for sentence in sentences if sentence)


def list_missing(comparison: Comparison) -> list[str]:
    """What a complete comparison would have and this one has not."""
    matrix = comparison.matrix
    running = [one for one in comparison.standings if not one.entrant.impossible]
    asked = len(matrix.seeds) * matrix.repeats
    said = [
        f"{_join(names)} ({what})"
        for what, state in (("out of memory", "out_of_memory"), ("failed", "failed"), ("not run", "missing"))
        if (names := [one.entrant.name for one in running if one.state == state])
    ]
    said += [f"{one.entrant.name} ({one.reason})" for one in running if one.state == "unfinished"]
    counts = {one.entrant.name: one.trials for one in running if one.state in ("finished", "waiting")}
    fewer = {name: count for name, count in counts.items() if count < asked}
    if len(fewer) == len(counts) and len(set(counts.values())) == 1 and fewer:
        said.append(f"repeats (all have {next(iter(fewer.values()))} of {asked})")
    elif fewer:
        said.append(f"repeats ({', '.join(f'{name} has {count} of {asked}' for name, count in fewer.items())})")
    for card in (find_card(key).name for key in matrix.targets):
        names = [one.entrant.name for one in comparison.standings if find_prediction(one, card) is None]
        said += [f"predictions for {card} ({_join(names)})"] if names else []
    return said


def say_amount(amount: Amount, *, is_first: bool = False) -> str:
    """'1.22 s per step against 1.32 s (92%, 90% to 95%)'."""
    quantity = find_quantity(amount.quantity)
    ours, theirs = quantity.format(amount.ours), quantity.format(amount.theirs)
    head = {STEP_SECONDS: f"{ours} per step"}.get(amount.quantity, ours)
    head = f"{quantity.label} {ours}" if quantity.pairing == "seeds" else head
    if amount.ours == amount.theirs and amount.within_noise is not False:
        return f"{head}, the same"
    details = [_say_change(quantity, amount, "95% confidence interval " if is_first else ""), _say_noise(amount)]
    return f"{head} against {theirs} ({', '.join(filter(None, details))})"


def _say_change(quantity: Quantity, amount: Amount, interval: str) -> str:
    """The ratio of two sizes, the difference of two scores; with the limits of its interval, where it has one."""

    def write(change: float) -> str:
        return f"{change * abs(amount.theirs):+.2f}" if quantity.pairing == "seeds" else format_ratio(1 + change)

    said = write((amount.ours - amount.theirs) / abs(amount.theirs))
    if amount.low is None or amount.high is None or amount.low == amount.high:
        return said
    return f"{said}, {interval}{write(amount.low)} to {write(amount.high)}"


def _say_noise(amount: Amount) -> str:
    if amount.is_predicted or amount.within_noise is False:
        return ""
    if amount.within_noise is None:
        return "too few seeds to tell" if amount.needed_of == "seeds" else "too few repeats to tell"
    takes = f", about {format_count(amount.needed)} {amount.needed_of} would tell" if amount.needed else ""
    return f"not significant{takes}"


def _say_goal(comparison: Comparison, goal: Goal) -> str:
    """Of one goal: measured, then predicted."""
    said: list[str] = []
    for pick in (one for one in comparison.picks if one.goal == goal):
        amounts = ", ".join(say_amount(one, is_first=not number) for number, one in enumerate(pick.amounts))
        kind = "the baseline" if pick.kind == "reference" else say_kind(pick.kind)
        who = f"{pick.candidate} ({kind})"
        if pick.target != HERE:
            lead = "it is" if said else f"the {_BEST[goal]} is"
            said.append(f"on {pick.target} {lead} predicted to be {who}: {amounts}")
        elif pick.is_significant:
            verb = "may be" if pick.amounts[0].within_noise is None else "is"
            said.append(f"{_BEST[goal].capitalize()} {verb} {who}: {amounts}")
        else:
            closest = "" if pick.kind == "reference" else f"; closest is {who}: {amounts}"
            said.append(_say_no_better(comparison, goal, pick) + closest)
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}." if said else ""


def _say_no_better(comparison: Comparison, goal: Goal, pick: Pick) -> str:
    reference = comparison.matrix.reference.name
    value = say_amount(pick.amounts[0]).split(", the same")[0] if pick.kind == "reference" else ""
    shown = f" ({value})" if value else ""
    return f"{_BEST[goal].capitalize()} is {reference}, the baseline{shown}: nothing measured is significantly better"


def _pick_measured(comparison: Comparison, goal: Goal, name: str, others: Sequence[str]) -> Pick:
    """The best that is significantly better, or of which that is not known; else the closest; else the baseline."""
    reference = comparison.standings[0]
    ranked = [one for one in comparison.standings[1:] if goal == "score" or one.entrant.kind != "different"]
    known = [one for one in ranked if name in one.figures]
    changed = {one.entrant.name: _gain(one.figures[name], name) for one in known}
    better = [one for one in known if changed[one.entrant.name] > 0]
    sure = [one for one in better if one.figures[name].within_noise is not True]
    best = max(sure or better, key=lambda one: changed[one.entrant.name], default=reference)
    shown = [name, *(other for other in others if other in best.figures and other in reference.figures)]
    amounts = tuple(_measure(best, reference, other) for other in shown)
    return Pick(goal, best.entrant.name, best.entrant.kind, HERE, amounts, is_significant=best in sure)


def _pick_predicted(comparison: Comparison, goal: Goal, device: str) -> Pick | None:
    """The best of all that fit on a GPU, and are predicted with the baseline."""
    found = {one.entrant.name: find_prediction(one, device) for one in comparison.standings}
    baseline = found[comparison.standings[0].entrant.name]
    fitting = [
        (one, _list_predicted(ours, baseline))
        for one in comparison.standings
        if (ours := found[one.entrant.name]) is not None and ours.fits is not False and baseline is not None
        if one.entrant.kind != "different"
    ]
    first = 0 if goal == "time" else 1
    complete = [(one, amounts) for one, amounts in fitting if len(amounts) > first]
    if not complete:
        return None
    best, amounts = min(complete, key=lambda item: item[1][first].ours)
    ordered = (amounts[first], *(amount for amount in amounts if amount is not amounts[first]))
    return Pick(goal, best.entrant.name, best.entrant.kind, device, ordered, is_significant=False)


def _list_predicted(ours: Prediction, theirs: Prediction) -> list[Amount]:
    """Time, then memory; none without the time."""
    pairs = [
        (STEP_SECONDS, ours.step_seconds, theirs.step_seconds),
        ("allocated_bytes", ours.peak_bytes, theirs.peak_bytes),
    ]
    known = [(name, mine, other) for name, mine, other in pairs if mine is not None and other]
    return [Amount(name, mine, other, is_predicted=True) for name, mine, other in known] if len(known) == 2 else []


def _measure(standing: CandidateResult, reference: CandidateResult, name: str) -> Amount:
    figure, theirs = standing.figures[name], reference.figures[name].mean
    given = (figure.change_low, figure.change_high, figure.within_noise, figure.needed, figure.needed_of)
    return Amount(name, figure.mean, theirs, *given)


def _gain(figure: Figure, name: str) -> float:
    """How much better, as a share of the baseline's."""
    change = figure.change or 0.0
    return change if find_quantity(name).higher_is_better else -change


def _list_devices(comparison: Comparison) -> list[str]:
    """GPUs that something is predicted for, as they were asked for."""
    found = [name_device(one.target) for standing in comparison.standings for one in standing.predictions]
    return [device for device in dict.fromkeys(found) if device != HERE]


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
