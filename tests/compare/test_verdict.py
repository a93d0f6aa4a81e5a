from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from seqfit.compare.records import Comparison, Entrant, Figure, Kind, Standing, State
from seqfit.compare.verdict import say_verdict
from tests.compare.made_runs import MATRIX


def figure(change: float | None, within_noise: bool | None) -> Figure:
    return Figure((1.0, 1.0), 1.0, 0.0, change, change, change, within_noise)


def entrant(
    name: str,
    time: float | None = None,
    memory: float | None = None,
    accuracy: float | None = None,
    *,
    kind: Kind = "lossless",
    state: State = "finished",
    is_known: bool = True,
) -> Standing:
    """A change of None is within noise."""
    given = {"step_seconds": time, "resident_bytes": memory, "accuracy": accuracy}
    figures = {
        quantity: figure(change or 0.001, (change is None) if is_known else None) for quantity, change in given.items()
    }
    return Standing(Entrant(name, (), kind), state, "", 3, figures if state == "finished" else {})


VANILLA = Standing(
    Entrant("vanilla", (), "reference"),
    "finished",
    "",
    3,
    {name: figure(None, None) for name in ("step_seconds", "resident_bytes", "accuracy")},
)


def verdict(*standings: Standing, reference: Standing = VANILLA) -> str:
    return say_verdict(Comparison("demo", ".", "", {}, MATRIX, (), (reference, *standings), ""))


@pytest.mark.parametrize(
    ("standings", "sentence"),
    [
        (
            [entrant("recompute", 0.21, -0.38), entrant("accumulate")],
            "recompute takes 38% less memory for 21% more time; nothing is better than vanilla in time beyond noise.",
        ),
        (
            [entrant("recompute", 0.21)],
            "Nothing is better than vanilla in time or memory beyond noise.",
        ),
        ([entrant("ragged", -0.5, -0.2)], "ragged takes 20% less memory and 50% less time."),
        (
            [entrant("recompute", 0.2, -0.4), entrant("ragged", -0.5), entrant("bf16", -0.1, kind="lossy")],
            "recompute takes 40% less memory for 20% more time; ragged takes 50% less time at the same memory; "
            "bf16 (lossy) takes less time, too.",
        ),
        (
            [entrant("fp16", -0.1, -0.2, -0.05, kind="lossy")],
            "fp16 (lossy) takes 20% less memory and 10% less time, with 5.0% lower accuracy.",
        ),
        (
            [entrant("accumulate", None, -0.3), entrant("fp16", state="out_of_memory")],
            "accumulate takes 30% less memory at the same time; nothing is better than vanilla in time beyond noise; "
            "fp16 runs out of memory.",
        ),
        ([entrant("ddp2", state="failed")], "ddp2 fails; only vanilla has been measured so far."),
        (
            [entrant("rate=1", -0.5, kind="different")],
            "rate=1 is another recipe, whose time and memory are not weighed against vanilla's.",
        ),
    ],
)
def test_the_verdict_is_one_sentence_of_what_is_beyond_noise(standings: Sequence[Standing], sentence: str) -> None:
    assert verdict(*standings) == sentence


def test_all_are_weighed_by_the_same_kind_of_memory() -> None:
    both = {"resident_bytes": figure(-0.1, False), "allocated_bytes": figure(-0.4, False)}
    reference = replace(VANILLA, figures=VANILLA.figures | {"allocated_bytes": figure(None, None)})
    recompute = entrant("recompute", 0.21)
    recompute = replace(recompute, figures=recompute.figures | both)
    assert "recompute takes 40% less memory" in verdict(recompute, reference=reference)
    several = entrant("ddp2", -0.3, 0.9)  # nobody has watched its tensors
    assert "recompute takes 10% less memory" in verdict(recompute, several, reference=reference)


def test_where_one_round_can_not_tell_noise_the_sentence_says_so_first() -> None:
    assert verdict(entrant("recompute", 0.21, -0.38, is_known=False)) == (
        "One round says nothing about noise; recompute takes 38% less memory for 21% more time; "
        "nothing is better than vanilla in time."
    )


def test_a_score_whose_noise_is_not_known_is_told_as_such() -> None:
    said = verdict(entrant("fp16", -0.1, -0.2, -0.05, kind="lossy", is_known=False))
    assert said.endswith("with 5.0% lower accuracy (too few seeds to tell it from noise).")


def test_a_reference_without_figures_leaves_nothing_to_compare() -> None:
    broken = Standing(Entrant("vanilla", (), "reference"), "out_of_memory", "", 0)
    said = verdict(entrant("recompute", 0.21, -0.38), reference=broken)
    assert said == "vanilla runs out of memory; vanilla has no figures yet, so nothing can be compared with it."
