"""What a request must be before it reaches a model: from this machine's own pages or programs, small, and complete.

    Host is not a name of this machine       403   a foreign page whose domain points here (DNS rebinding)
    Origin is another server                 403   a foreign page's script
    Authorization lacks the token            401   where one is set; pages, the OpenAPI file and /healthz are open
    body larger than the limit               413   read to its end first, so that the answer arrives
    body not complete in time                408

It is an ASGI middleware: whatever is behind it finds the whole body in memory.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqfit.serving.counters import ServerCounters
from seqfit.serving.errors import ApiError
from seqfit.units import format_bytes

_NAMES = ("127.0.0.1", "localhost", "::1")
OPEN_PATHS = ("/", "/docs", "/openapi.json", "/healthz")
_DISCARDED_BYTES = 64 * 2**20  # of a body that is too large; a client that sends more sees its connection closed
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class RequestLimits:
    body_bytes: int
    body_seconds: float
    token: str | None


class RequestGuard:
    def __init__(self, app: ASGIApp, limits: RequestLimits, counters: ServerCounters, paths: frozenset[str]) -> None:
        self._app = app
        self._limits = limits
        self._counters = counters
        self._paths = paths  # that exist: others are counted together

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def counted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._answer(scope, receive, counted_send)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._counters.requests.labels(path, str(status)).inc()
            self._counters.seconds.labels(path).observe(time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = Headers(scope=scope)
            self._check_sender(headers)
            self._check_token(scope["path"], headers)
            body = await self._read(headers, receive)
        except ApiError as error:
            await error.to_response()(scope, receive, send)
            return
        except _Gone:
            return
        await self._app(scope, _replay(body, receive), send)

    def _check_sender(self, headers: Headers) -> None:
        if _host(f"//{headers.get('host', '')}") not in _NAMES:
            raise ApiError(
                403, "forbidden", f"This server is called {' or '.join(_NAMES[:2])}, not as the Host header says"
            )
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != headers.get("host", "").lower():
            raise ApiError(403, "forbidden", "A page of another server may not use this one")

    def _check_token(self, path: str, headers: Headers) -> None:
        token = self._limits.token
        if token is None or path in OPEN_PATHS:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), token.encode()):
            raise ApiError(
                401, "unauthorized", "The server was started with --token: send 'Authorization: Bearer TOKEN'"
            )

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        """The whole body."""
        most, stated = self._limits.body_bytes, headers.get("content-length", "0")
        too_large = ApiError(
            413, "body_too_large", f"The body has more than {format_bytes(most)}; send fewer rows per request"
        )
        if headers.get("expect", "").lower() == "100-continue" and stated.isdigit() and int(stated) > most:
            raise too_large  # nothing is sent yet
        body, size = bytearray(), 0
        deadline = asyncio.timeout(self._limits.body_seconds)
        try:
            async with deadline:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    size += len(message.get("body", b""))
                    if size <= most:
                        body += message.get("body", b"")
                    if not message.get("more_body", False) or size > _DISCARDED_BYTES:
                        break
        except TimeoutError:
            raise ApiError(
                408, "timeout", f"The body was not complete after {self._limits.body_seconds:g} s", close=True
            ) from None
        if size > most:
            raise too_large
        return bytes(body)


class _Gone(Exception):
    """The client has closed the connection."""


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body again, then waits for the client to leave."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replayed


def _host(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # not even the form of an address
        return None


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
