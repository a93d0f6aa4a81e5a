from __future__ import annotations

from dataclasses import replace

from seqfit.comparison.recommendation import describe_recommendation, find_picks, rank_results
from seqfit.comparison.records import (
    Candidate,
    CandidateResult,
    Comparison,
    Figure,
    Prediction,
    State,
    StrategyKind,
)
from tests.comparison.made_runs import MATRIX

VALUES = {"step_seconds": 1.0, "resident_bytes": 2.0**30, "accuracy": 90.0}
V100 = "Tesla V100"


def figure(name: str, change: float | None, is_known: bool = True) -> Figure:
    """A change of None is not significant."""
    found = 0.01 if change is None else change
    mean = VALUES[name] * (1 + found)
    if not is_known:
        return Figure((mean,), mean, None, found)
    needed = 12 if change is None else None
    limits = (found - 0.02, found + 0.02)
    return Figure((mean,), mean, None, found, *limits, change is not None, needed, "repeats" if needed else "")


def candidate(
    name: str,
    time: float | None = None,
    memory: float | None = None,
    accuracy: float | None = None,
    *,
    kind: StrategyKind = "lossless",
    state: State = "finished",
    is_known: bool = True,
) -> CandidateResult:
    given = {"step_seconds": time, "resident_bytes": memory, "accuracy": accuracy}
    figures = {quantity: figure(quantity, change, is_known) for quantity, change in given.items()}
    return CandidateResult(Candidate(name, (), kind), state, "", 3, figures if state == "finished" else {})


def on_v100(result: CandidateResult, seconds: float, gib: float) -> CandidateResult:
    prediction = Prediction(result.candidate.name, V100, int(gib * 2**30), seconds, 1 / seconds, True)
    return replace(result, predictions=(prediction,))


BASELINE = CandidateResult(
    Candidate("baseline", (), "baseline"),
    "finished",
    "",
    3,
    {name: Figure((value,), value, None) for name, value in VALUES.items()},
)


def compare(*results: CandidateResult, baseline: CandidateResult = BASELINE) -> Comparison:
    matrix = replace(MATRIX, candidates=tuple(one.candidate for one in (baseline, *results)))
    comparison = Comparison("demo", ".", "", {}, matrix, (), (baseline, *results), "")
    comparison = replace(comparison, picks=find_picks(comparison))
    return replace(comparison, verdict=describe_recommendation(comparison))


def test_fastest_lowest_memory_and_best_score_are_a_sentence_each_with_what_they_cost() -> None:
    text = compare(candidate("packed", -0.2, 0.1), candidate("recompute", 0.3, -0.4, 0.05)).verdict
    assert text.splitlines() == [
        "Fastest: packed (lossless), 800 ms per step against 1 s (80%, 95% confidence interval 78% to 82%), "
        "1.1 GiB against 1 GiB (110%, 108% to 112%), "
        "accuracy 90.90 against 90.00 (+0.90, -0.90 to +2.70, not significant, would need about 12 repeats).",
        "Lowest memory: recompute (lossless), 614 MiB against 1 GiB (60%, 95% confidence interval 58% to 62%), "
        "1.3 s per step against 1 s (130%, 128% to 132%), accuracy 94.50 against 90.00 (+4.50, +2.70 to +6.30).",
        "Best score: recompute (lossless), accuracy 94.50 against 90.00 (+4.50, 95% confidence interval +2.70 to "
        "+6.30), 1.3 s per step against 1 s (130%, 128% to 132%), 614 MiB against 1 GiB (60%, 58% to 62%).",
    ]


def test_the_fastest_predicted_candidate_of_another_gpu_is_named() -> None:
    """fp16 is not available here, and the fastest there."""
    fp16 = CandidateResult(Candidate("fp16", (), "lossy", unavailable="needs a GPU"), "not_available", "needs a GPU", 0)
    comparison = compare(
        on_v100(candidate("recompute", 0.3, -0.4), 0.26, 1.0),
        on_v100(fp16, 0.1, 1.5),
        baseline=on_v100(BASELINE, 0.2, 3.0),
    )
    time, memory, score = comparison.verdict.splitlines()
    predicted = "Predicted for Tesla V100:"
    assert f". {predicted} fp16 (lossy), 100 ms per step against 200 ms (50%), 1.5 GiB against 3 GiB (50%)." in time
    assert f". {predicted} recompute (lossless), 1 GiB against 3 GiB (33%), 260 ms per step against 200 ms" in memory
    assert predicted not in score
    assert [one.candidate.name for one in rank_results(comparison)] == ["fp16", "baseline", "recompute"]


def test_the_lowest_memory_is_stated_with_its_time() -> None:
    text = compare(candidate("adafactor", 0.03, -0.3, kind="lossy")).verdict
    assert "Lowest memory: adafactor (lossy), 717 MiB against 1 GiB (70%" in text
    assert "1.03 s per step against 1 s (103%, 101% to 105%)" in text


def test_nothing_significant_leaves_the_baseline_with_the_closest_and_what_it_would_take() -> None:
    slower = candidate("recompute", 0.3)
    faster = candidate("packed")
    gained = replace(faster.figures["step_seconds"], change=-0.04, mean=0.96, change_low=-0.1, change_high=0.02)
    faster = replace(faster, figures=faster.figures | {"step_seconds": gained})
    first = compare(slower, faster).verdict.splitlines()[0]
    assert first.startswith(
        "Fastest: baseline; no candidate is significantly better; closest: packed (lossless), "
        "960 ms per step against 1 s (96%, 95% confidence interval 90% to 102%, not significant, would need about 12 "
        "repeats)"
    )
    assert compare(slower).verdict.startswith("Fastest: baseline, 1 s per step; no candidate is significantly better.")


def test_one_repeat_is_too_few_to_tell() -> None:
    text = compare(candidate("packed", -0.2, -0.1, 0.0, is_known=False)).verdict
    assert "Possibly fastest: packed (lossless), 800 ms per step against 1 s (80%, too few repeats to tell)" in text


def test_another_recipe_is_ranked_by_its_score_only() -> None:
    text = compare(candidate("rate=1", -0.5, -0.5, 0.05, kind="different")).verdict.splitlines()
    assert text[0].startswith("Fastest: baseline")
    assert text[2].startswith("Best score: rate=1 (different)")


def test_what_is_missing_is_named() -> None:
    broken, not_run = candidate("fp16", state="out_of_memory"), candidate("all", state="missing")
    comparison = compare(candidate("packed", -0.2), broken, not_run)
    assert comparison.verdict.splitlines()[-1] == "Missing: fp16 (out of memory); all (not run)."
    asked = replace(comparison, matrix=replace(comparison.matrix, targets=("v100-16-sxm",)))
    assert "; predictions for Tesla V100-SXM2-16GB (baseline, packed, fp16 and all)." in describe_recommendation(asked)
    nothing = replace(BASELINE, state="out_of_memory", figures={})
    assert compare(candidate("packed", -0.2), baseline=nothing).verdict.splitlines() == [
        "No measurements can be compared: only packed has measurements.",
        "Missing: baseline (out of memory).",
    ]


def test_all_are_compared_by_the_same_kind_of_memory() -> None:
    both = {"allocated_bytes": Figure((0.6 * 2**30,), 0.6 * 2**30, None, -0.4, -0.4, -0.4, True)}
    baseline = replace(BASELINE, figures=BASELINE.figures | {"allocated_bytes": Figure((2**30,), 2.0**30, None)})
    recompute = candidate("recompute", 0.21, -0.1)
    recompute = replace(recompute, figures=recompute.figures | both)
    assert "614 MiB against 1 GiB (60%)" in compare(recompute, baseline=baseline).verdict
    several = candidate("ddp2", -0.3, 0.9)  # without the memory of its tensors
    assert "922 MiB against 1 GiB (90%" in compare(recompute, several, baseline=baseline).verdict


def test_two_gpus_are_of_the_kind_of_one() -> None:
    for target, device in (("2 x Tesla V100", "Tesla V100"), ("this machine", "this machine")):
        assert Prediction("ddp2", target, None, None, None, None).device == device
