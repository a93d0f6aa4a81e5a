from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import seqfit.errors
from seqfit.cli.main import main
from seqfit.errors import (
    ERROR_FILE,
    OutOfMemory,
    PeerLost,
    PlanError,
    RecipeError,
    SeqfitError,
    Stopped,
    TrainingFailed,
    describe_error,
    describe_exit,
    did_you_mean,
    format_error,
    read_error,
)
from seqfit.planning.shape import Shape

KINDS = [kind for kind in vars(seqfit.errors).values() if isinstance(kind, type) and issubclass(kind, SeqfitError)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_user_gave_wrong_exits_with_2_failed_training_with_3_and_out_of_memory_with_4(
    kind: type[SeqfitError],
) -> None:
    assert kind.exit_code == {TrainingFailed: 3, OutOfMemory: 4, Stopped: 75, PeerLost: 76}.get(kind, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_docstring_lists_every_error(kind: type[SeqfitError]) -> None:
    assert kind.__name__ in (seqfit.errors.__doc__ or "")


def test_the_three_parts_become_three_sentences() -> None:
    message = format_error("train.steps is 5", "it must be even", "Set train.steps=4")
    assert message == "train.steps is 5. It must be even. Set train.steps=4."


@pytest.mark.parametrize("last", ["Set x=4.", "Did you mean 'y'?", "Run these:"])
def test_a_part_that_ends_by_itself_gets_no_second_full_stop(last: str) -> None:
    assert format_error("A", "B", last) == f"A. B. {last}"


def test_a_close_word_is_suggested_and_a_far_one_is_not() -> None:
    assert did_you_mean("adamv", ["adafactor", "adamw"]) == " Did you mean 'adamw'?"
    assert did_you_mean("sgd", ["adafactor", "adamw"]) == ""
    assert did_you_mean("sgd", []) == ""


def test_an_error_is_described_by_its_kind_its_text_and_our_innermost_line() -> None:
    with pytest.raises(PlanError) as caught:
        Shape((), None, packed=True)
    text = describe_error(caught.value)
    assert text.startswith("PlanError: a micro-batch has 0 examples")
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
    said = format_error("SIGTERM came", "a run stops then", "To resume, go on with: seqfit train 'my run' --resume")
    assert said == "SIGTERM came. A run stops then. To resume, go on with: seqfit train 'my run' --resume"


def test_an_error_keeps_its_three_parts_and_they_become_one_text() -> None:
    error = RecipeError("train.steps is 5", "it must be even", "Set train.steps=4", hint=" Did you mean 'x'?")
    assert (error.given, error.rule, error.change) == ("train.steps is 5", "it must be even", "Set train.steps=4")
    assert str(error) == "train.steps is 5. It must be even. Set train.steps=4. Did you mean 'x'?"
    assert str(pickle.loads(pickle.dumps(RecipeError("a", "b", "c")))) == "a. b. c."


def test_the_fields_of_an_error_reach_the_process_that_asked_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / "error.json"))
    assert main(["nonsense"]) == 2
    fields = read_error(tmp_path / "error.json")
    assert (fields["exit_code"], fields["given"]) == (2, "'nonsense' is not a command of seqfit")
    assert read_error(tmp_path / "none.json") == {}


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("[enforce fail] can't allocate memory: you tried")])
def test_a_command_that_runs_out_of_memory_has_a_code_of_its_own(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr("seqfit.cli.main._dispatch", fail)
    assert main(["train"]) == 4
    assert "out of memory (OOM)" in capsys.readouterr().err
