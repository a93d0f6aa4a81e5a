"""Options of a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerOptions:
    port: int | None = None  # None: any free one
    token: str | None = None
    queue_rows: int = 256  # that may wait for each model
    timeout_seconds: float = 60.0  # from a request to its answer
    body_bytes: int = 2**20
    body_seconds: float = 10.0  # for a body to arrive
