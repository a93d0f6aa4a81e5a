"""The application: paths, the functions that answer them, and how errors become responses."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from seqfit.serving.api import Api
from seqfit.serving.counters import ServerCounters
from seqfit.serving.errors import ApiError
from seqfit.serving.guard import RequestGuard, RequestLimits
from seqfit.serving.options import ServerOptions
from seqfit.serving.page import render_docs, render_form
from seqfit.serving.queue import RequestQueue


def build_app(
    queues: Mapping[str, RequestQueue],
    counters: ServerCounters,
    options: ServerOptions,
    announce: Callable[[], None] = lambda: None,
) -> Starlette:
    api = Api(queues, counters, options.timeout_seconds, has_token=options.token is not None)
    form = render_form()

    async def show_form(_request: Request) -> Response:
        return HTMLResponse(form)

    async def show_docs(request: Request) -> Response:
        return HTMLResponse(render_docs(api.openapi, str(request.base_url).rstrip("/")))

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        announce()
        yield

    routes = [
        Route("/", show_form),
        Route("/docs", show_docs),
        Route("/predict", api.predict, methods=["POST"]),
        Route("/v1/completions", api.complete, methods=["POST"]),
        Route("/v1/models", api.list_openai_models),
        Route("/models", api.list_models),
        Route("/examples", api.list_examples),
        Route("/feedback", api.rate, methods=["POST"]),
        Route("/healthz", api.show_health),
        Route("/metrics", api.show_metrics),
        Route("/openapi.json", api.show_openapi),
    ]
    limits = RequestLimits(options.body_bytes, options.body_seconds, options.token)
    paths = frozenset(route.path for route in routes)
    return Starlette(
        routes=routes,
        middleware=[Middleware(RequestGuard, limits=limits, counters=counters, paths=paths)],
        exception_handlers={ApiError: _answer_error, HTTPException: _answer_http_error},
        lifespan=lifespan,
    )


async def _answer_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.to_response()


async def _answer_http_error(_request: Request, error: Exception) -> Response:
    """No such path, or not by this method."""
    assert isinstance(error, HTTPException)
    response = ApiError(error.status_code, "http_error", error.detail).to_response()
    response.headers.update(error.headers or {})
    return response
