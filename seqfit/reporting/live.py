"""A page that is served while its runs go on, and keeps itself up to date.

Checking for changes is cheap, building is not. A check reads names, sizes and times of the record files, no content;
their hash is the version. Sections are built on request, once per version, for all browsers.

    page = LivePage([Path("runs")])    runs, comparisons, or a folder that gets runs later
    page.look()                        '5f0c82d1'; the same until a record is written
    page.build()                       Shown(version='5f0c82d1', title='demo · seqfit', parts=[...])

Runs appear, vanish and are half-written meanwhile. Where a page can't be built, the last one stays, under a note that
says why.

    GET /         the page, with a script that listens
    GET /events   a stream of versions: one at once, another whenever a record has changed
    GET /parts    {"version": "5f0c...", "title": "demo · seqfit", "html": "<header>..."}

It listens on the loopback address, and only answers requests whose Host is one of its names: a foreign page whose
domain points here (DNS rebinding) is refused. Nothing is written, and no other file can be requested.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seqfit.errors import RecipeError, SeqfitError
from seqfit.reporting.html import Html, render_page, render_parts, section
from seqfit.reporting.page import build_parts
from seqfit.rundir import RunWriter, files

_RECORDS = (".json", ".jsonl", ".yaml")
_LEFT_OUT = {files.CHECKPOINT, files.SNAPSHOTS, files.RANKS}  # large, and not part of the page
_DEEPEST = 3  # folders below the one given: a comparison in it, its runs/, a run


@dataclass(frozen=True)
class Shown:
    version: str
    title: str
    parts: Sequence[Html]


class LivePage:
    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._building = threading.Lock()
        self._shown: Shown | None = None
        self.build_seconds = 0.0  # of the last build

    def look(self) -> str:
        """The version: a hash of names, sizes and times of the record files."""
        seen = [entry for path in self._paths for entry in _list_records(path, _DEEPEST)]
        return hashlib.sha256(repr(sorted(seen)).encode()).hexdigest()[:16]

    def build(self) -> Shown:
        """The current page; concurrent requests wait for one build."""
        with self._building:
            version = self.look()  # before the build: what is written meanwhile makes a newer version
            if self._shown is None or self._shown.version != version:
                started = time.perf_counter()
                self._shown = self._build(version)
                self.build_seconds = time.perf_counter() - started
            return self._shown

    def _build(self, version: str) -> Shown:
        try:
            return Shown(version, *build_parts(self._paths))
        except (SeqfitError, OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            why = f"{type(error).__name__}: {error}"  # any shape of JSON may be half a file
        note = section("Not up to date", note=f"The page can't be built from what is on the disk now ({why}).")
        last = self._shown or Shown(version, "seqfit", [])
        parts = [part for part in last.parts if "<h2>Not up to date</h2>" not in part]
        return Shown(version, last.title, [note, *parts])


def _list_records(path: Path, deepest: int) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of each record file below a folder, and whether the locks there are held."""
    try:
        entries = list(os.scandir(path))
    except OSError:  # vanished, which the version shows
        return
    for entry in entries:
        if entry.name == files.LOCK:  # a process that is killed writes nothing more, but releases it
            yield entry.path, int(RunWriter.is_writing(path)), 0
        elif entry.name.startswith(".") or entry.name in _LEFT_OUT:
            continue
        elif entry.name.endswith(_RECORDS):
            try:
                status = entry.stat()
            except OSError:  # gone between the listing and here
                continue
            yield entry.path, status.st_size, status.st_mtime_ns
        elif deepest and entry.is_dir():
            yield from _list_records(Path(entry.path), deepest - 1)


ADDRESS = "127.0.0.1"
_NAMES = {ADDRESS, "localhost", "::1"}
_LOOK_SECONDS = 1.0
_ALIVE_SECONDS = 5.0  # between two keep-alive messages, which detect that a browser has left


def watch(paths: Sequence[Path], *, port: int | None = None, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; `announce` is called with the address."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt), serve_live(paths, port=port) as url:
            announce(url)
            threading.Event().wait()
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def serve_live(paths: Sequence[Path], *, port: int | None = None) -> Iterator[str]:
    """A server for the duration of the block; yields its address. Without a port, any free one."""
    try:
        server = LiveServer(LivePage(paths), port or 0)
    except OSError as error:
        raise RecipeError(
            f"--port {port or 0} can't be used ({error.strerror or error})",
            "a port serves one program at a time, and those below 1024 are the system's",
            "Choose another, or omit --port to use any free one",
        ) from error
    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True),
        threading.Thread(target=server.look_for_changes, daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield f"http://{ADDRESS}:{server.server_port}/"
    finally:
        server.end()
        for thread in threads:
            thread.join()


class LiveServer(ThreadingHTTPServer):
    """A thread per request, one more that looks for changes, and one page for all."""

    def __init__(self, page: LivePage, port: int) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.page = page
        self._ending = threading.Event()
        self._changed = threading.Condition()
        self._version = page.look()

    def look_for_changes(self) -> None:
        """Once per second, less often where a page takes long to build: training may need the core."""
        while not self._ending.wait(max(_LOOK_SECONDS, 3 * self.page.build_seconds)):
            version = self.page.look()
            if version != self._version:
                with self._changed:
                    self._version = version
                    self._changed.notify_all()

    def versions(self) -> Iterator[str | None]:
        """The current version, then each new one; None as a keep-alive."""
        sent: str | None = None
        while not self._ending.is_set():
            with self._changed:
                if sent == self._version:
                    self._changed.wait(_ALIVE_SECONDS)
                new = self._version if self._version != sent else None
            sent = new or sent
            if not self._ending.is_set():
                yield new

    def end(self) -> None:
        self._ending.set()
        with self._changed:
            self._changed.notify_all()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves in the middle of an answer is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = 30.0  # seconds of a read or a write: a connection that says nothing does not keep its thread

    def do_GET(self) -> None:
        path, host = urlsplit(self.path).path, None
        with contextlib.suppress(ValueError):  # not even the form of an address
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in _NAMES:  # by name only: through a tunnel the port differs
            self.send_error(HTTPStatus.FORBIDDEN, "Use 127.0.0.1 or localhost")
        elif path == "/":
            shown = self.server.page.build()
            self._send("text/html", render_page(shown.title, shown.parts, use="watch"))
        elif path == "/parts":
            shown = self.server.page.build()
            parts = {"version": shown.version, "title": shown.title, "html": render_parts(shown.parts)}
            self._send("application/json", json.dumps(parts))
        elif path == "/events":
            self._send_head("text/event-stream")
            for version in self.server.versions():
                self.wfile.write(b": alive\n\n" if version is None else f"data: {version}\n\n".encode())
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not printed: a page makes one every second."""

    def _send(self, kind: str, text: str) -> None:
        content = text.encode("utf-8", "backslashreplace")  # half a surrogate from a model's answer
        self._send_head(kind, len(content))
        self.wfile.write(content)

    def _send_head(self, kind: str, length: int | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
