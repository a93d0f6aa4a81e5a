"""Whether a comparison was one of equals, verified from the run directories after the fact.

In: the matrix, the outcomes and the runs of all trials that finished. Out: a line for each thing that must be equal:

    same data order      yes   6 runs: examples, source and target tokens of 40 steps
    same global batch    NO    accumulation, seed 0: train.batch_examples is 16, not 32

An entrant may differ where its own overrides say so, and one of kind `different` in its data, too: that is what it is
for. Every run is compared with the reference's run of the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from seqfit.comparison.collect import LOSS_TOLERANCE, TrialRun, find_gaps, has_no_dropout
from seqfit.comparison.records import Candidate, FairnessCheck, Matrix, Outcome
from seqfit.recipe.overrides import flatten, overridden_paths
from seqfit.rundir import files
from seqfit.rundir.records import EventKind

# Events after which a run has done other work than it was asked for.
_CHANGES_WORK = (
    *(EventKind.OUT_OF_MEMORY, EventKind.NON_FINITE, EventKind.FALLBACK),
    *(EventKind.RESUME, EventKind.INTERRUPTED, EventKind.EARLY_STOPPING),
)
_NEEDED = (files.MANIFEST, files.RECIPE, files.STEPS, files.EVENTS)
_CLOCK_SECONDS = 1.0  # an outcome's time is read a moment after its end
_SHOWN = 3  # differences of one line that are told; the rest is counted


@dataclass(frozen=True)
class _Evidence:
    """What the lines are checked on."""

    matrix: Matrix
    outcomes: Sequence[Outcome]
    runs: Sequence[TrialRun]

    def entrant(self, run: TrialRun) -> Candidate:
        return next(entrant for entrant in self.matrix.entrants if entrant.name == run.trial.entrant)

    def pairs(self, *, of_a_round: bool = False) -> Iterator[tuple[TrialRun, TrialRun]]:
        """Each run with the reference's of the same seed; where the reference has none, with the first run of it.

        `of_a_round`: of the same repeat, too.
        """

        def key(run: TrialRun) -> tuple[int, int]:
            return run.trial.seed, run.trial.repeat if of_a_round else 0

        reference = self.matrix.reference.name
        by_name = sorted(  # stable: else in their order; one that differs on purpose is the last to stand in
            self.runs, key=lambda run: (run.trial.entrant != reference, self.entrant(run).kind == "different")
        )
        first = {key(run): run for run in reversed(by_name)}
        return ((run, first[key(run)]) for run in self.runs if run is not first[key(run)])


def check_equality(matrix: Matrix, outcomes: Sequence[Outcome], runs: Sequence[TrialRun]) -> tuple[FairnessCheck, ...]:
    """All lines; of a comparison without a finished trial there is nothing to check."""
    if not runs:
        return ()
    evidence = _Evidence(matrix, outcomes, runs)
    return tuple(check(evidence) for check in _CHECKS)


def _check_recipe(evidence: _Evidence) -> FairnessCheck:
    found = []
    for run, other in evidence.pairs():
        entrants = (evidence.entrant(run), evidence.entrant(other))
        allowed = [path for entrant in entrants for path in _own_paths(entrant)]
        if entrants[0].processes != entrants[1].processes:
            allowed.append("strategy.threads")  # processes share the cores
        ours, theirs = flatten(run.recipe), flatten(other.recipe)
        if not ours or not theirs:
            continue  # told by the line on records
        for path in sorted({*ours, *theirs}):
            if ours.get(path) != theirs.get(path) and not _is_within(path, allowed):
                found.append(f"{_name(run)}: {path} is {_say(ours.get(path))}, not {_say(theirs.get(path))}")
    return _conclude("same recipe", found, f"{_count(evidence)}: all fields but those an entrant overrides")


def _check_fingerprint(evidence: _Evidence) -> FairnessCheck:
    found = _find_other(evidence, lambda run: (run.manifest.get("data") or {}).get("fingerprint"))
    return _conclude("same data", found, f"{_count(evidence)}: fingerprint of the tokenized rows{_exempt(evidence)}")


def _check_order(evidence: _Evidence) -> FairnessCheck:
    found = []
    for run, other in evidence.pairs():
        if evidence.entrant(run).kind == "different":
            continue
        common = sorted(run.batches.keys() & other.batches.keys())
        wrong = [step for step in common if run.batches[step] != other.batches[step]]
        if wrong:
            ours, theirs = run.batches[wrong[0]], other.batches[wrong[0]]
            found.append(
                f"{_name(run)}: {len(wrong)} of {len(common)} steps; at step {wrong[0]} examples, source and target "
                f"tokens are {_say(ours)}, not {_say(theirs)}"
            )
    what = f"examples, source and target tokens of {evidence.matrix.steps} steps, seed by seed"
    return _conclude("same data order", found, f"{_count(evidence)}: {what}{_exempt(evidence)}")


def _check_batch(evidence: _Evidence) -> FairnessCheck:
    def read(run: TrialRun) -> str | None:
        train = run.recipe.get("train") or {}
        given = {name: train[name] for name in ("batch_examples", "batch_tokens") if train.get(name) is not None}
        return ", ".join(f"train.{name}={value}" for name, value in given.items()) or None

    said = next((text for run in evidence.runs if (text := read(run))), "the default")
    found = _find_other(evidence, read)
    return _conclude("same global batch", found, f"{_count(evidence)}: {said}{_exempt(evidence)}")


def _check_seeds(evidence: _Evidence) -> FairnessCheck:
    """Trials that are still to come are no inequality: figures are made of pairs. One that broke off is."""
    ran = {run.trial.entrant for run in evidence.runs}
    broken = [
        f"{outcome.entrant}, seed {outcome.seed}, repeat {outcome.repeat}: {outcome.state} ({outcome.reason})"
        for outcome in evidence.outcomes
        if outcome.entrant in ran and outcome.state != "finished"
    ]
    matrix = evidence.matrix
    waiting = len(ran) * len(matrix.seeds) * matrix.repeats - len(evidence.runs) - len(broken)
    seeds = ", ".join(map(str, matrix.seeds))
    still = f"; {waiting} trials are still to come" if waiting > 0 else ""
    return _conclude("same seeds", broken, f"seeds {seeds}, {matrix.repeats} times each{still}")


def _check_updates(evidence: _Evidence) -> FairnessCheck:
    steps = evidence.matrix.steps
    made = {_name(run): max(run.batches, default=0) for run in evidence.runs}
    found = [f"{name}: {count} steps are recorded, not {steps}" for name, count in made.items() if count != steps]
    return _conclude("same number of updates", found, f"{_count(evidence)}: {steps} each")


def _check_machine(evidence: _Evidence) -> FairnessCheck:
    """Rounds that are jobs may have different nodes: then the trials of each are held to each other."""
    found, is_apart = [], evidence.matrix.is_apart
    for run, other in evidence.pairs(of_a_round=is_apart):
        own = [path for entrant in map(evidence.entrant, (run, other)) for path in _own_paths(entrant)]
        ours, theirs = _describe_place(run, evidence.entrant(run)), _describe_place(other, evidence.entrant(other))
        if not run.manifest or not other.manifest or _is_within("strategy.device", own):
            continue
        for what in sorted({*ours, *theirs}):
            is_asked = what == "threads in all" and _is_within("strategy.threads", own)
            if ours.get(what) != theirs.get(what) and not is_asked:
                found.append(f"{_name(run)}: {what} is {_say(ours.get(what))}, not {_say(theirs.get(what))}")
    found += _find_other_nodes(evidence)
    within = ", within each round" if is_apart else ""
    what = f"packages, device, cores, threads in all{within}"
    return _conclude("same versions and machine", found, f"{_count(evidence)}: {what}")


def _find_other_nodes(evidence: _Evidence) -> list[str]:
    """What is compared must have run on one machine: a twin of it may be slower."""
    nodes: dict[tuple[int, int], dict[str, Outcome]] = {}
    for outcome in evidence.outcomes:
        where = (outcome.seed, outcome.repeat) if evidence.matrix.is_apart else (0, 0)
        nodes.setdefault(where, {})[outcome.node] = outcome
    return [
        f"{outcome.entrant}, seed {outcome.seed}, repeat {outcome.repeat} ran on {node or 'an unnamed machine'}"
        for found in nodes.values()
        for node, outcome in list(found.items())[1:]  # the first is the one that others are held to
    ]


def _check_turns(evidence: _Evidence) -> FairnessCheck:
    """Where entrants take turns, none is ever more than one trial ahead of another."""
    if evidence.matrix.is_apart:
        return _check_rounds(evidence)
    ran = {run.trial.entrant for run in evidence.runs}
    counts = dict.fromkeys((entrant.name for entrant in evidence.matrix.entrants if entrant.name in ran), 0)
    ahead = []
    for outcome in sorted(evidence.outcomes, key=lambda outcome: outcome.time):
        if outcome.entrant in counts:
            counts[outcome.entrant] += 1
            if counts[outcome.entrant] - min(counts.values()) > 1:
                ahead.append(
                    f"{outcome.entrant} had run {counts[outcome.entrant]} times, another {min(counts.values())}"
                )
    rounds = max(counts.values(), default=0)
    return _conclude(
        "entrants took turns", ahead, f"{rounds} round{'' if rounds == 1 else 's'} of {len(counts)} entrants"
    )


def _check_rounds(evidence: _Evidence) -> FairnessCheck:
    """Rounds that are jobs go on side by side; the trials of each must have run one after another."""
    rounds: dict[tuple[int, int], list[Outcome]] = {}
    for outcome in sorted(evidence.outcomes, key=lambda outcome: outcome.time):
        rounds.setdefault((outcome.seed, outcome.repeat), []).append(outcome)
    found = [
        f"seed {seed}, repeat {repeat}: {later.entrant} began before {earlier.entrant} had ended"
        for (seed, repeat), outcomes in rounds.items()
        for earlier, later in pairwise(outcomes)
        if later.time - later.seconds < earlier.time - _CLOCK_SECONDS
    ]
    found += _find_crowded(rounds) if any(run.hardware.get("device") == "cpu" for run in evidence.runs) else []
    count = len(rounds)
    return _conclude(
        "entrants took turns", found, f"{count} round{'' if count == 1 else 's'}, the trials of each one after another"
    )


def _find_crowded(rounds: Mapping[tuple[int, int], Sequence[Outcome]]) -> list[str]:
    """Rounds that ran side by side on the cores of one machine."""
    spans = sorted(
        (outcomes[0].node, outcomes[0].time - outcomes[0].seconds, outcomes[-1].time, seed, repeat)
        for (seed, repeat), outcomes in rounds.items()
    )
    return [
        f"seed {seed}, repeat {repeat}: ran beside another round on {node}"
        for (other, _, ended, *_), (node, began, _, seed, repeat) in pairwise(spans)
        if node and node == other and began < ended - _CLOCK_SECONDS
    ]


def _check_warm_up(evidence: _Evidence) -> FairnessCheck:
    """Left out of all times by collect.py; here only whether there was one, and whether steps have their own times."""
    warm_up, found = evidence.matrix.warm_up, []
    if warm_up < 1:
        found.append("no step is left out, and the first ones are slower")
    for run in evidence.runs:
        if any(later - earlier != 1 for earlier, later in pairwise(sorted(run.batches))):
            found.append(f"{_name(run)}: not every step has a record of its own (train.log_every)")
    return _conclude("warm-up left out", found, f"the first {warm_up} of {evidence.matrix.steps} steps, in every run")


def _check_work(evidence: _Evidence) -> FairnessCheck:
    """A fallback that all runs share leaves them equal."""
    runs_of: dict[tuple[str, str], list[TrialRun]] = {}
    messages: dict[tuple[str, str], str] = {}
    for run in evidence.runs:
        events = [event for event in run.events if event["kind"] in _CHANGES_WORK]
        messages |= {_event_key(event): event["message"] for event in events}
        for key in dict.fromkeys(map(_event_key, events)):
            runs_of.setdefault(key, []).append(run)
    found = [
        f"{_name(runs[0])}: {key[0]}: {messages[key]}"
        for key, runs in runs_of.items()
        if key[0] != EventKind.FALLBACK or len(runs) < len(evidence.runs)
    ]
    return _conclude(
        "nothing recovered", found, f"{_count(evidence)}: no retry, skipped step or fallback of one run only"
    )


def _event_key(event: dict[str, Any]) -> tuple[str, str]:
    """The same for the same event in two runs."""
    return event["kind"], json.dumps(event.get("data"), sort_keys=True)


def _check_records(evidence: _Evidence) -> FairnessCheck:
    """What equality is verified from must be there; telemetry and scores that are missing are only told."""
    told = [(run, name, sentence) for run in evidence.runs for name, sentence in run.missing.items()]
    found = [f"{_name(run)}: {sentence}" for run, name, sentence in told if name in _NEEDED]
    other = dict.fromkeys(f"{run.trial.entrant}: {sentence}" for run, _, sentence in told)
    return _conclude("records are whole", found, "; ".join([f"{_count(evidence)}: {', '.join(_NEEDED)}", *other]))


def _check_lossless(evidence: _Evidence) -> FairnessCheck:
    """Held to the reference's losses where dropout is off; otherwise told, for then they can't be equal."""
    reference = evidence.matrix.reference.name
    gaps = find_gaps(evidence.runs, reference)
    found, said = [], []
    for entrant in evidence.matrix.entrants:
        gap = gaps.get(entrant.name)
        if entrant.kind != "lossless" or gap is None:
            continue
        runs = [run for run in evidence.runs if run.trial.entrant in (entrant.name, reference)]
        sentence = f"{entrant.name} differs by {gap.difference:.1e} at most (step {gap.step}, seed {gap.seed})"
        if not gap.is_rounding and all(map(has_no_dropout, runs)):
            found.append(sentence)
        else:
            reason = "" if gap.is_rounding else ": not comparable, dropout may be on (model.dropout=0 turns it off)"
            said.append(f"{sentence}{reason}")
    rule = f"must be within {LOSS_TOLERANCE:g} of the reference at every step"
    return _conclude("losses of lossless entrants", found, "; ".join(said) or "there are none to compare", rule)


def _check_lossy(evidence: _Evidence) -> FairnessCheck:
    """Nothing is required of them: how far they are is told."""
    gaps = find_gaps(evidence.runs, evidence.matrix.reference.name)
    said = [
        f"{entrant.name} differs by {gaps[entrant.name].difference:.1e} at most (step {gaps[entrant.name].step})"
        for entrant in evidence.matrix.entrants
        if entrant.kind == "lossy" and entrant.name in gaps
    ]
    return FairnessCheck("losses of lossy entrants", True, "; ".join(said) or "there are none to compare")


_CHECKS: tuple[Callable[[_Evidence], FairnessCheck], ...] = (
    *(_check_recipe, _check_fingerprint, _check_order, _check_batch, _check_seeds, _check_updates),
    *(_check_machine, _check_turns, _check_warm_up, _check_work, _check_records, _check_lossless, _check_lossy),
)


def _find_other(evidence: _Evidence, read: Callable[[TrialRun], Any]) -> list[str]:
    """Runs whose value is not that of the reference's run; one that is not there is told by the line on records."""
    found = []
    for run, other in evidence.pairs():
        ours, theirs = read(run), read(other)
        if None not in (ours, theirs) and ours != theirs and evidence.entrant(run).kind != "different":
            found.append(f"{_name(run)}: {_say(ours)}, not {_say(theirs)}")
    return found


def _describe_place(run: TrialRun, entrant: Candidate) -> dict[str, Any]:
    hardware = {name: value for name, value in run.hardware.items() if name not in ("threads", "uuid", "uuids")}
    threads = run.hardware.get("threads")
    in_all = {} if threads is None else {"threads in all": threads * entrant.processes}
    return {**(run.manifest.get("versions") or {}), **hardware, **in_all}


def _own_paths(entrant: Candidate) -> list[str]:
    """The fields that it overrides or removes; what it needs allowed comes with it."""
    removed = [override[1:] for override in entrant.overrides if override.startswith("~")]
    return [*overridden_paths(entrant.overrides), *removed, "allow"]


def _is_within(path: str, places: Sequence[str]) -> bool:
    """Below one of the places, or one of them below it: strategy=fp16 sets all fields of the strategy."""
    return any(f"{path}.".startswith(f"{place}.") or f"{place}.".startswith(f"{path}.") for place in places)


def _conclude(name: str, found: Sequence[str], same: str, rule: str = "") -> FairnessCheck:
    if not found:
        return FairnessCheck(name, True, same)
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return FairnessCheck(name, False, "; ".join([*([rule] if rule else []), *found[:_SHOWN]]) + more)


def _exempt(evidence: _Evidence) -> str:
    names = [entrant.name for entrant in evidence.matrix.entrants if entrant.kind == "different"]
    return f"; not of {', '.join(names)}, which differ on purpose" if names else ""


def _count(evidence: _Evidence) -> str:
    count = len(evidence.runs)
    return f"{count} run{'' if count == 1 else 's'}"


def _name(run: TrialRun) -> str:
    return f"{run.trial.entrant}, seed {run.trial.seed}, repeat {run.trial.repeat}"


def _say(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    text = str(value)
    return "not given" if value is None else text if len(text) <= 40 else f"{text[:37]}..."
