from __future__ import annotations

from pathlib import Path

import pytest

import seqfit
from seqfit.errors import RecipeError
from seqfit.rundir.reader import Run
from tests.tracking.records import Recorder


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("given", [str, Path, Run])
def test_runs_are_sent_whatever_names_them(
    given: type, follow: bool, run_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqfit.tracking.track.check_tool", lambda _tool: None)
    monkeypatch.setattr("seqfit.tracking.track.open_tracker", lambda _tool, identity: recorder(identity))
    (sent,) = seqfit.track(given(run_path), to="wandb", project="mine", follow=follow)
    assert (sent.folder, sent.status) == (run_path, "finished")
    assert sent.records > 0
    assert recorder.only.identity.project == "mine"


def test_an_unknown_tool_is_an_error(run_path: Path) -> None:
    with pytest.raises(RecipeError, match="Did you mean 'wandb'"):
        seqfit.track(run_path, to="wandbb")  # type: ignore[arg-type]


def test_the_room_itself_can_be_called_and_so_can_its_function(run_path: Path) -> None:
    """Importing anything of the room binds it to the package under the function's name."""
    from seqfit.tracking.track import track

    with pytest.raises(RecipeError) as by_room:
        seqfit.track(run_path, to="none")  # type: ignore[arg-type]
    with pytest.raises(RecipeError) as by_function:
        track(run_path, to="none")  # type: ignore[arg-type]
    assert str(by_room.value) == str(by_function.value)
