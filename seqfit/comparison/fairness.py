"""Whether a comparison is fair, verified from the run directories after the fact.

In: the matrix, the outcomes and the runs of all finished trials. Out: a line for each thing that must be equal:

    same data order      yes   6 runs: examples, source and target tokens of 40 steps
    same global batch    NO    accumulation, seed 0: train.batch_examples is 16, not 32

A candidate may differ in the fields that it overrides, and one of kind `different` in its data, too. Every run is
compared with the baseline's run of the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from seqfit.comparison.collect import LOSS_TOLERANCE, TrialRun, find_gaps, has_no_dropout
from seqfit.comparison.records import Candidate, FairnessCheck, Matrix, Outcome
from seqfit.rundir import EventKind, files
from seqfit.units import format_number
from seqfit.yaml_text import flatten

# Events after which a run has done other work than its recipe states.
_CHANGES_WORK = (
    *(EventKind.OUT_OF_MEMORY, EventKind.NON_FINITE, EventKind.FALLBACK),
    *(EventKind.RESUME, EventKind.INTERRUPTED, EventKind.EARLY_STOPPING),
)
_NEEDED = (files.MANIFEST, files.RECIPE, files.STEPS, files.EVENTS)
_CLOCK_SECONDS = 1.0  # an outcome's time is read a moment after its end
_SHOWN = 3  # differences shown per line; the rest is counted


@dataclass(frozen=True)
class _Evidence:
    matrix: Matrix
    outcomes: Sequence[Outcome]
    runs: Sequence[TrialRun]

    def candidate(self, run: TrialRun) -> Candidate:
        return next(candidate for candidate in self.matrix.candidates if candidate.name == run.trial.candidate)

    def pairs(self, *, within_repeats: bool = False) -> Iterator[tuple[TrialRun, TrialRun]]:
        """Each run with the baseline's of the same seed (and repeat), or with the first run if there is none."""

        def key(run: TrialRun) -> tuple[int, int]:
            return run.trial.seed, run.trial.repeat if within_repeats else 0

        baseline = self.matrix.baseline.name
        by_name = sorted(  # stable: else in their order; one that differs on purpose comes last
            self.runs, key=lambda run: (run.trial.candidate != baseline, self.candidate(run).kind == "different")
        )
        first = {key(run): run for run in reversed(by_name)}
        return ((run, first[key(run)]) for run in self.runs if run is not first[key(run)])


def check_equality(matrix: Matrix, outcomes: Sequence[Outcome], runs: Sequence[TrialRun]) -> tuple[FairnessCheck, ...]:
    if not runs:
        return ()
    evidence = _Evidence(matrix, outcomes, runs)
    return tuple(check(evidence) for check in _CHECKS)


def _check_recipe(evidence: _Evidence) -> FairnessCheck:
    found = []
    for run, other in evidence.pairs():
        candidates = (evidence.candidate(run), evidence.candidate(other))
        allowed = [path for candidate in candidates for path in _own_paths(candidate)]
        if candidates[0].processes != candidates[1].processes:
            allowed.append("strategy.threads")  # processes share the cores
        ours, theirs = flatten(run.recipe), flatten(other.recipe)
        if not ours or not theirs:
            continue  # see _check_records
        for path in sorted({*ours, *theirs}):
            if ours.get(path) != theirs.get(path) and not _is_within(path, allowed):
                found.append(f"{run.trial}: {path} is {_format(ours.get(path))}, not {_format(theirs.get(path))}")
    return _conclude("same recipe", found, f"{_count(evidence)}: all fields but those that a candidate overrides")


def _check_fingerprint(evidence: _Evidence) -> FairnessCheck:
    found = _find_other(evidence, lambda run: (run.manifest.get("data") or {}).get("fingerprint"))
    return _conclude("same data", found, f"{_count(evidence)}: fingerprint of the tokenized rows{_exempt(evidence)}")


def _check_order(evidence: _Evidence) -> FairnessCheck:
    found = []
    for run, other in evidence.pairs():
        if evidence.candidate(run).kind == "different":
            continue
        common = sorted(run.batches.keys() & other.batches.keys())
        wrong = [step for step in common if run.batches[step] != other.batches[step]]
        if wrong:
            ours, theirs = run.batches[wrong[0]], other.batches[wrong[0]]
            found.append(
                f"{run.trial}: {len(wrong)} of {len(common)} steps; at step {wrong[0]} examples, source and target "
                f"tokens are {_format(ours)}, not {_format(theirs)}"
            )
    what = f"examples, source and target tokens of {evidence.matrix.steps} steps, seed by seed"
    return _conclude("same data order", found, f"{_count(evidence)}: {what}{_exempt(evidence)}")


def _check_batch(evidence: _Evidence) -> FairnessCheck:
    def read(run: TrialRun) -> str | None:
        train = run.recipe.get("train") or {}
        given = {name: train[name] for name in ("batch_examples", "batch_tokens") if train.get(name) is not None}
        return ", ".join(f"train.{name}={value}" for name, value in given.items()) or None

    batch = next((text for run in evidence.runs if (text := read(run))), "the default")
    found = _find_other(evidence, read)
    return _conclude("same global batch", found, f"{_count(evidence)}: {batch}{_exempt(evidence)}")


def _check_seeds(evidence: _Evidence) -> FairnessCheck:
    """Missing trials are fair, because figures are made of pairs. Trials that failed are not."""
    ran = {run.trial.candidate for run in evidence.runs}
    broken = [
        f"{outcome.trial}: {outcome.state} ({outcome.reason})"
        for outcome in evidence.outcomes
        if outcome.candidate in ran and outcome.state != "finished"
    ]
    matrix = evidence.matrix
    waiting = len(ran) * len(matrix.seeds) * matrix.repeats - len(evidence.runs) - len(broken)
    seeds = ", ".join(map(str, matrix.seeds))
    still = f"; {waiting} trials are missing" if waiting > 0 else ""
    return _conclude("same seeds", broken, f"seeds {seeds}, {format_number(matrix.repeats, 'repeat')} each{still}")


def _check_updates(evidence: _Evidence) -> FairnessCheck:
    steps = evidence.matrix.steps
    made = {str(run.trial): max(run.batches, default=0) for run in evidence.runs}
    found = [f"{name}: {count} steps are recorded, not {steps}" for name, count in made.items() if count != steps]
    return _conclude("same number of steps", found, f"{_count(evidence)}: {steps} each")


def _check_machine(evidence: _Evidence) -> FairnessCheck:
    """Repeats that are jobs may run on different nodes: then runs are compared within each repeat."""
    found, repeats_are_jobs = [], evidence.matrix.repeats_are_jobs
    for run, other in evidence.pairs(within_repeats=repeats_are_jobs):
        own = [path for candidate in map(evidence.candidate, (run, other)) for path in _own_paths(candidate)]
        ours, theirs = _describe_place(run, evidence.candidate(run)), _describe_place(other, evidence.candidate(other))
        if not run.manifest or not other.manifest or _is_within("strategy.device", own):
            continue
        for what in sorted({*ours, *theirs}):
            is_own = what == "total threads" and _is_within("strategy.threads", own)
            if ours.get(what) != theirs.get(what) and not is_own:
                found.append(f"{run.trial}: {what} is {_format(ours.get(what))}, not {_format(theirs.get(what))}")
    nodes: dict[tuple[int, int], dict[str, Outcome]] = {}  # another machine of the same kind may be slower
    for outcome in evidence.outcomes:
        where = (outcome.seed, outcome.repeat) if repeats_are_jobs else (0, 0)
        nodes.setdefault(where, {})[outcome.node] = outcome
    others = [item for ran in nodes.values() for item in list(ran.items())[1:]]  # all but the first
    found += [f"{outcome.trial} ran on {node or 'an unnamed machine'}" for node, outcome in others]
    within = ", within each repeat" if repeats_are_jobs else ""
    what = f"packages, device, cores, total threads{within}"
    return _conclude("same versions and machine", found, f"{_count(evidence)}: {what}")


def _check_turns(evidence: _Evidence) -> FairnessCheck:
    """No candidate is ever more than one trial ahead of another."""
    if evidence.matrix.repeats_are_jobs:
        return _check_order_within_repeats(evidence)
    ran = {run.trial.candidate for run in evidence.runs}
    counts = dict.fromkeys((candidate.name for candidate in evidence.matrix.candidates if candidate.name in ran), 0)
    ahead = []
    for outcome in sorted(evidence.outcomes, key=lambda outcome: outcome.time):
        if outcome.candidate in counts:
            counts[outcome.candidate] += 1
            if counts[outcome.candidate] - min(counts.values()) > 1:
                times = counts[outcome.candidate]
                ahead.append(f"{outcome.candidate} had run {times} times, another {min(counts.values())}")
    ran_times = format_number(max(counts.values(), default=0), "repeat")
    return _conclude("candidates took turns", ahead, f"{ran_times} of {format_number(len(counts), 'candidate')}")


def _check_order_within_repeats(evidence: _Evidence) -> FairnessCheck:
    """Repeats that are jobs run in parallel; the trials of each must have run one after another."""
    repeats: dict[tuple[int, int], list[Outcome]] = {}
    for outcome in sorted(evidence.outcomes, key=lambda outcome: outcome.time):
        repeats.setdefault((outcome.seed, outcome.repeat), []).append(outcome)
    found = [
        f"seed {seed}, repeat {repeat}: {later.candidate} began before {earlier.candidate} had ended"
        for (seed, repeat), outcomes in repeats.items()
        for earlier, later in pairwise(outcomes)
        if later.time - later.seconds < earlier.time - _CLOCK_SECONDS
    ]
    if any(run.hardware.get("device") == "cpu" for run in evidence.runs):  # whose cores no other repeat may use
        spans = sorted(
            (outcomes[0].node, outcomes[0].time - outcomes[0].seconds, outcomes[-1].time, seed, repeat)
            for (seed, repeat), outcomes in repeats.items()
        )
        found += [
            f"seed {seed}, repeat {repeat}: ran at the same time as another repeat on {node}"
            for (other, _, ended, *_), (node, began, _, seed, repeat) in pairwise(spans)
            if node and node == other and began < ended - _CLOCK_SECONDS
        ]
    count = format_number(len(repeats), "repeat")
    return _conclude("candidates took turns", found, f"{count}, the trials of each one after another")


def _check_warm_up(evidence: _Evidence) -> FairnessCheck:
    """collect.py excludes it from all times; here only whether there was one, and whether every step was recorded."""
    warm_up, found = evidence.matrix.warm_up, []
    if warm_up < 1:
        found.append("there is no warm-up, and the first steps are slower")
    for run in evidence.runs:
        if any(later - earlier != 1 for earlier, later in pairwise(sorted(run.batches))):
            found.append(f"{run.trial}: not every step has its own record (train.log_every)")
    return _conclude("warm-up excluded", found, f"the first {warm_up} of {evidence.matrix.steps} steps, in every run")


def _check_work(evidence: _Evidence) -> FairnessCheck:
    """A fallback of all runs is fair."""
    runs_of: dict[tuple[str, str], list[TrialRun]] = {}
    messages: dict[tuple[str, str], str] = {}
    for run in evidence.runs:
        events = [event for event in run.events if event["kind"] in _CHANGES_WORK]
        messages |= {_event_key(event): event["message"] for event in events}
        for key in dict.fromkeys(map(_event_key, events)):
            runs_of.setdefault(key, []).append(run)
    found = [
        f"{runs[0].trial}: {key[0]}: {messages[key]}"
        for key, runs in runs_of.items()
        if key[0] != EventKind.FALLBACK or len(runs) < len(evidence.runs)
    ]
    checked = f"{_count(evidence)}: no retry, skipped step or fallback in only some runs"
    return _conclude("no recovery", found, checked)


def _event_key(event: dict[str, Any]) -> tuple[str, str]:
    return event["kind"], json.dumps(event.get("data"), sort_keys=True)


def _check_records(evidence: _Evidence) -> FairnessCheck:
    """The files that this list is verified from must be there; missing telemetry and scores are only mentioned."""
    missing = [(run, name, sentence) for run in evidence.runs for name, sentence in run.missing.items()]
    found = [f"{run.trial}: {sentence}" for run, name, sentence in missing if name in _NEEDED]
    other = dict.fromkeys(f"{run.trial.candidate}: {sentence}" for run, _, sentence in missing)
    return _conclude("records are complete", found, "; ".join([f"{_count(evidence)}: {', '.join(_NEEDED)}", *other]))


def _check_lossless(evidence: _Evidence) -> FairnessCheck:
    """Must be equal where dropout is off; otherwise mentioned, because they can't be equal."""
    baseline = evidence.matrix.baseline.name
    gaps = find_gaps(evidence.runs, baseline)
    found, equal = [], []
    for candidate in evidence.matrix.candidates:
        gap = gaps.get(candidate.name)
        if candidate.kind != "lossless" or gap is None:
            continue
        runs = [run for run in evidence.runs if run.trial.candidate in (candidate.name, baseline)]
        sentence = f"{candidate.name} differs by {gap.difference:.1e} at most (step {gap.step}, seed {gap.seed})"
        if not gap.is_rounding and all(map(has_no_dropout, runs)):
            found.append(sentence)
        else:
            reason = "" if gap.is_rounding else ": not comparable, dropout may be on (model.dropout=0 turns it off)"
            equal.append(f"{sentence}{reason}")
    rule = f"must be within {LOSS_TOLERANCE:g} of the baseline at every step"
    return _conclude("losses of lossless candidates", found, "; ".join(equal) or "there are none to compare", rule)


def _check_lossy(evidence: _Evidence) -> FairnessCheck:
    gaps = find_gaps(evidence.runs, evidence.matrix.baseline.name)
    gaps_found = [
        f"{candidate.name} differs by {gaps[candidate.name].difference:.1e} at most (step {gaps[candidate.name].step})"
        for candidate in evidence.matrix.candidates
        if candidate.kind == "lossy" and candidate.name in gaps
    ]
    return FairnessCheck("losses of lossy candidates", True, "; ".join(gaps_found) or "there are none to compare")


_CHECKS: tuple[Callable[[_Evidence], FairnessCheck], ...] = (
    *(_check_recipe, _check_fingerprint, _check_order, _check_batch, _check_seeds, _check_updates),
    *(_check_machine, _check_turns, _check_warm_up, _check_work, _check_records, _check_lossless, _check_lossy),
)


def _find_other(evidence: _Evidence, read: Callable[[TrialRun], Any]) -> list[str]:
    """Runs whose value is not that of the baseline's run. Missing values: see _check_records."""
    found = []
    for run, other in evidence.pairs():
        ours, theirs = read(run), read(other)
        if None not in (ours, theirs) and ours != theirs and evidence.candidate(run).kind != "different":
            found.append(f"{run.trial}: {_format(ours)}, not {_format(theirs)}")
    return found


def _describe_place(run: TrialRun, candidate: Candidate) -> dict[str, Any]:
    hardware = {name: value for name, value in run.hardware.items() if name not in ("threads", "uuid", "uuids")}
    threads = run.hardware.get("threads")
    total = {} if threads is None else {"total threads": threads * candidate.processes}
    return {**(run.manifest.get("versions") or {}), **hardware, **total}


def _own_paths(candidate: Candidate) -> list[str]:
    return [*(override.removeprefix("~").partition("=")[0] for override in candidate.overrides), "allow"]


def _is_within(path: str, places: Sequence[str]) -> bool:
    """Whether it is below one of the places, or the other way round: strategy=fp16 sets all fields of the strategy."""
    return any(f"{path}.".startswith(f"{place}.") or f"{place}.".startswith(f"{path}.") for place in places)


def _conclude(name: str, found: Sequence[str], same: str, rule: str = "") -> FairnessCheck:
    if not found:
        return FairnessCheck(name, True, same)
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return FairnessCheck(name, False, "; ".join([*([rule] if rule else []), *found[:_SHOWN]]) + more)


def _exempt(evidence: _Evidence) -> str:
    names = [candidate.name for candidate in evidence.matrix.candidates if candidate.kind == "different"]
    return f"; not of {', '.join(names)}, which differ on purpose" if names else ""


def _count(evidence: _Evidence) -> str:
    return format_number(len(evidence.runs), "run")


def _format(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    text = str(value)
    return "not given" if value is None else text if len(text) <= 40 else f"{text[:37]}..."
