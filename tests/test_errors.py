from __future__ import annotations

import pytest

import seqfit.errors
from seqfit.errors import PeerLost, SeqfitError, Stopped, TrainingFailed, complain, did_you_mean

KINDS = [kind for kind in vars(seqfit.errors).values() if isinstance(kind, type) and issubclass(kind, SeqfitError)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_user_gave_wrong_exits_with_2_and_failed_training_with_3(kind: type[SeqfitError]) -> None:
    assert kind.exit_code == {TrainingFailed: 3, Stopped: 75, PeerLost: 76}.get(kind, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_docstring_lists_every_error(kind: type[SeqfitError]) -> None:
    assert kind.__name__ in (seqfit.errors.__doc__ or "")


def test_the_three_parts_become_three_sentences() -> None:
    message = complain("train.steps is 5", "it must be even", "Set train.steps=4")
    assert message == "train.steps is 5. It must be even. Set train.steps=4."


@pytest.mark.parametrize("last", ["Set x=4.", "Did you mean 'y'?", "Run these:"])
def test_a_part_that_ends_by_itself_gets_no_second_full_stop(last: str) -> None:
    assert complain("A", "B", last) == f"A. B. {last}"


def test_a_close_word_is_suggested_and_a_far_one_is_not() -> None:
    assert did_you_mean("adamv", ["adafactor", "adamw"]) == " Did you mean 'adamw'?"
    assert did_you_mean("sgd", ["adafactor", "adamw"]) == ""
    assert did_you_mean("sgd", []) == ""
