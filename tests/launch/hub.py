"""A Hub on this machine: the four requests that fetching a model makes, answered from a folder.

GET  /api/models/ada/tiny/revision/main     the commit
GET  /api/models/ada/tiny/tree/COMMIT       the files
HEAD /ada/tiny/resolve/COMMIT/config.json   size and hash of one
GET  /ada/tiny/resolve/COMMIT/config.json   its content
"""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve_model(name: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a Hub that has one model, and the names of the files that were asked for."""
    asked: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/":
                self._send(b"{}")
            elif path == f"/api/models/{name}/revision/main" or path == f"/api/models/{name}":
                self._send(json.dumps({"id": name, "sha": COMMIT, "siblings": [], "private": False}).encode())
            elif path == f"/api/models/{name}/tree/{COMMIT}":
                self._send(json.dumps([_entry(file) for file in sorted(folder.iterdir())]).encode())
            elif (file := folder / path.rpartition("/")[2]).is_file() and f"/{name}/resolve/" in path:
                asked.append(file.name)
                self._send(file.read_bytes())
            else:
                self.send_error(404)

        def _send(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", "application/json")
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def _entry(file: Path) -> dict[str, object]:
    content = file.read_bytes()
    return {"type": "file", "path": file.name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
