from __future__ import annotations

import http.server
import os
import threading

import huggingface_hub.constants
import pytest

from seqfit import hub


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
