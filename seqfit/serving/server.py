"""The server: loads the models, listens on the loopback address, and ends when everything accepted is answered.

Starlette routes, uvicorn speaks HTTP; around them `guard.RequestGuard`, behind them a `queue.RequestQueue` per model.

SIGTERM or Ctrl-C: nothing new is accepted, what was accepted is answered, then the process ends with exit code 0. A
second Ctrl-C ends it at once.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvicorn

from seqfit.errors import RecipeError, RunError
from seqfit.serving.app import build_app
from seqfit.serving.backend import ServedModel
from seqfit.serving.counters import ModelCounters, ServerCounters
from seqfit.serving.folders import load_model_folder
from seqfit.serving.options import ServerOptions
from seqfit.serving.queue import RequestQueue

_ADDRESS = "127.0.0.1"
_GRACE_SECONDS = 5  # above the time limit of a request
_BACKLOG = 512


def run_server(
    paths: Sequence[Path],
    options: ServerOptions,
    *,
    announce: Callable[[str], None],
    loading: Callable[[str], None] = lambda name: None,
) -> int:
    """Serve until SIGTERM or Ctrl-C; how many requests were answered.

    `loading` is called before a model is loaded, `announce` with the address.
    """
    names = [str(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise RunError(f"'{name}' is given twice", "each model is served once", "Remove one of the two")
    listener = listen(options.port)  # before the models are loaded: a port that is taken is an error at once
    with contextlib.closing(listener):
        models = []
        for path, name in zip(paths, names, strict=True):
            loading(name)
            models.append(load_model_folder(path, name))
        port = listener.getsockname()[1]
        counters = ServerCounters()
        with prepared_server(models, options, lambda: announce(f"http://{_ADDRESS}:{port}/"), counters) as server:
            _run_until_stopped(server, listener)
        return counters.answered()


def _run_until_stopped(server: uvicorn.Server, listener: socket.socket) -> None:
    """uvicorn ends by itself after SIGTERM or SIGINT, and raises the signal again: as Ctrl-C, which ends nothing."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def prepared_server(
    models: Sequence[ServedModel],
    options: ServerOptions,
    announce: Callable[[], None] = lambda: None,
    counters: ServerCounters | None = None,
) -> Iterator[uvicorn.Server]:
    """A server of these models, to be run; at the end of the block its queues are closed."""
    counters = counters or ServerCounters()
    queues = {
        model.name: RequestQueue(model, options.queue_rows, ModelCounters(counters, model.name)) for model in models
    }
    config = uvicorn.Config(
        build_app(queues, counters, options, announce),
        http="h11",
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(options.timeout_seconds) + _GRACE_SECONDS,
    )
    # A broken request is the client's business: it gets its 400, and the terminal stays quiet.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        yield uvicorn.Server(config)
    finally:
        for queue in queues.values():
            queue.close()


def listen(port: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_ADDRESS, port or 0))
    except OSError as error:
        listener.close()
        raise RecipeError(
            f"--port {port or 0} can't be used ({error.strerror or error})",
            "a port serves one program at a time, and those below 1024 are the system's",
            "Choose another, or omit --port to use any free one",
        ) from error
    listener.listen(_BACKLOG)
    return listener
