from __future__ import annotations

import re

import pytest

import seqfit.errors
from seqfit.errors import (
    PeerLost,
    PlanError,
    SeqfitError,
    Stopped,
    TrainingFailed,
    complain,
    describe_error,
    describe_exit,
    did_you_mean,
)
from seqfit.planning.shape import Shape

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


def test_an_error_is_described_by_its_kind_its_text_and_our_innermost_line() -> None:
    with pytest.raises(PlanError) as caught:
        Shape((), None, packed=True)
    text = describe_error(caught.value)
    assert text.startswith("PlanError: a micro-batch of 0 examples")
    assert re.search(r"\(planning/shape\.py:\d+\)$", text)
    assert describe_error(MemoryError()) == "MemoryError: no message"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-11, "was killed by SIGSEGV (signal 11)"),
        (139, "was killed by SIGSEGV (signal 11)"),
        (137, "was killed by SIGKILL (signal 9)"),
        (1, "ended with exit code 1"),
        (255, "ended with exit code 255"),
    ],
)
def test_an_exit_code_is_described(code: int, text: str) -> None:
    assert describe_exit(code) == text


def test_a_command_at_the_end_has_no_full_stop_that_would_be_pasted_with_it() -> None:
    said = complain("SIGTERM came", "a run stops then", "To resume, go on with: seqfit train 'my run' --resume")
    assert said == "SIGTERM came. A run stops then. To resume, go on with: seqfit train 'my run' --resume"
