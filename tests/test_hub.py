from __future__ import annotations

import http.server
import os
import socket
import threading
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import pytest

import seqfit.cli.train as cli_train
from seqfit import hub
from seqfit.cli.main import main
from seqfit.recipe.load import load_recipe
from seqfit.validation import check_model_available


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_state", set())
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")


def test_a_hub_that_does_not_answer_sets_the_clients_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: nobody listens
    hub.use_hub()
    assert hub.went_offline()
    assert huggingface_hub.constants.HF_HUB_OFFLINE is True
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_hub_that_answers_leaves_them_online(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        hub.use_hub()
    assert not hub.went_offline()
    assert huggingface_hub.constants.HF_HUB_OFFLINE is False


def test_switched_off_by_the_user_is_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub, "reach_hub", lambda: pytest.fail("went to the network"))
    hub.use_hub()
    assert not hub.went_offline()


def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timeout of a connection counts while its name is looked up."""
    answered = threading.Event()

    def look_up(*_arguments: Any, **_options: Any) -> Any:
        answered.wait(60)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        assert hub.reach_hub(0.05) == "no answer within 0.05 s"
    finally:
        answered.set()


@pytest.mark.parametrize(
    ("location", "is_path"),
    [("t5-small", False), ("google/mt5-small", False), ("./t5", True), ("/models/t5", True), ("a/b/c", True)],
)
def test_a_name_on_the_hub_is_no_path(location: str, is_path: bool) -> None:
    assert hub.is_path(location) == is_path


def test_an_unavailable_model_is_reported_before_torch_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(cli_train, "quiet_torch", lambda: pytest.fail("went on to import torch"))
    assert main(["train", "t5-gsm8k"]) == 2
    message = capsys.readouterr().err
    assert "model.name is 'google-t5/t5-base', which was not downloaded before, and the Hub does not answer" in message
    assert "Set model.path (or --model) to a folder" in message


@pytest.mark.parametrize("field", ["model.path", "model.tokenizer"])
def test_a_missing_folder_is_reported_before_torch_is_imported(
    field: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli_train, "quiet_torch", lambda: pytest.fail("went on to import torch"))
    assert main(["train", "demo", f"{field}=./nowhere"]) == 2
    assert f"error: {field} is './nowhere', and there is no such folder. A local model" in capsys.readouterr().err


def test_a_plan_of_an_unavailable_model_says_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["plan", "nobody/no-such-model", "--gpu", "t4"]) == 2
    message = capsys.readouterr().err
    assert "'nobody/no-such-model', which was not downloaded before, and the Hub does not answer. A model is" in message


def test_a_model_that_was_fetched_before_needs_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_names: "/cache/config.json")
    monkeypatch.setattr(hub, "reach_hub", lambda: pytest.fail("went to the network"))
    check_model_available(load_recipe("t5-gsm8k"))
    assert not hub.went_offline()
