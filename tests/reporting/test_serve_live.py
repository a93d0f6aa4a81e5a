from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from seqfit.errors import RecipeError
from seqfit.reporting import live as live_page
from seqfit.reporting import live as serve_live
from seqfit.reporting.html import element
from seqfit.rundir import files
from tests.processes import started, wait_until


@pytest.fixture
def port(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server of a run, whose page is a number of lines."""
    monkeypatch.setattr(serve_live, "_LOOK_SECONDS", 0.05)
    lines = lambda: len((run_path / files.STEPS).read_text("utf-8").splitlines())  # noqa: E731
    monkeypatch.setattr(live_page, "build_parts", lambda paths: ("<run>", [element("p", f"{lines()} steps")]))
    with serve_live.serve_live([run_path]) as url:
        yield urlsplit(url).port or 0


def ask(port: int, path: str, *, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


class Listener:
    """A browser that listens for events."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
        self._connection.request("GET", "/events")
        self._answer = self._connection.getresponse()

    def next_version(self) -> str:
        while True:
            line = self._answer.readline().decode()
            assert line, "the stream ended"
            if line.startswith("data: "):
                return line.removeprefix("data: ").strip()

    def is_at_its_end(self) -> bool:
        return self._answer.read().strip() == b""

    def leave(self) -> None:
        self._answer.close()
        self._connection.close()


def append_step(run: Path) -> None:
    with open(run / files.STEPS, "a", encoding="utf-8") as stream:
        stream.write("{}\n")


def test_the_page_and_its_parts_are_the_same(port: int) -> None:
    status, headers, page = ask(port, "/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert b"<title>&lt;run&gt;</title>" in page
    assert b"<p>200 steps</p>" in page
    assert b"new EventSource" in page
    parts = json.loads(ask(port, "/parts")[2])
    assert (parts["title"], parts["html"]) == ("<run>", "<p>200 steps</p>")


def test_every_listener_hears_of_a_new_record(port: int, run_path: Path) -> None:
    listeners = [Listener(port), Listener(port)]
    first = {listener.next_version() for listener in listeners}
    assert first == {json.loads(ask(port, "/parts")[2])["version"]}
    append_step(run_path)
    second = {listener.next_version() for listener in listeners}
    assert len(second) == 1
    assert second != first
    parts = json.loads(ask(port, "/parts")[2])
    assert parts["html"] == "<p>201 steps</p>"
    assert {parts["version"]} == second
    for listener in listeners:
        listener.leave()


def test_a_browser_that_leaves_is_no_error(
    port: int, run_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve_live, "_ALIVE_SECONDS", 0.02)
    alone = threading.active_count()
    gone, stays = Listener(port), Listener(port)
    gone.next_version()
    gone.leave()
    stays.next_version()
    for _ in range(3):
        append_step(run_path)
        stays.next_version()
    stays.leave()
    wait_until(lambda: threading.active_count() <= alone, "the end of a listener's thread")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[", "192.168.0.7"])
def test_another_host_is_refused(port: int, host: str) -> None:
    for path in ("/", "/parts", "/events"):
        status, _, content = ask(port, path, host=host)
        assert status == 403
        assert b"steps" not in content


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1", "LOCALHOST:1", "[::1]:80"])
def test_this_machine_is_answered_by_each_of_its_names_and_through_a_tunnel(port: int, host: str) -> None:
    assert ask(port, "/parts", host=host)[0] == 200


@pytest.mark.parametrize("path", ["/manifest.json", "/../manifest.json", "/%2e%2e/", "/parts/", "/runs"])
def test_there_is_nothing_else_to_ask_for(port: int, path: str) -> None:
    assert ask(port, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_nothing_can_be_sent(port: int, method: str) -> None:
    assert ask(port, "/", method=method)[0] == 501


def test_nobody_is_answered_from_another_machine(port: int) -> None:
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in others:
        with socket.socket() as connection:
            connection.settimeout(2)
            assert connection.connect_ex((address, port)) != 0


def test_a_port_that_is_taken_is_named(port: int, run_path: Path) -> None:
    with pytest.raises(RecipeError, match=f"--port {port} can't be used"), serve_live.serve_live([run_path], port=port):
        pass


def test_listeners_are_let_go_when_the_server_ends(run_path: Path) -> None:
    with serve_live.serve_live([run_path]) as url:
        listener = Listener(urlsplit(url).port or 0)
        listener.next_version()
    assert listener.is_at_its_end()
    listener.leave()


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_well(run_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "seqfit", "report", str(run_path.parent), "--watch", "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(command, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}, **pipes) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("live: http://127.0.0.1:")
        listener = Listener(urlsplit(line.split()[1]).port or 0)
        listener.next_version()
        process.send_signal(number)
        _, errors = process.communicate(timeout=240)
    listener.leave()
    assert (process.returncode, errors) == (0, "")
