"""The HTTP API: one function per path, for the models that are served.

POST /predict           a row, or a list of rows, as the recipe's columns   -> answers, or a stream of text
POST /v1/completions    OpenAI's form                                       -> the same
GET  /v1/models         names, in OpenAI's form
GET  /models            names, tasks, columns: what the page needs to build its form
GET  /examples          rows of the validation set
POST /feedback          a thumb up or down
GET  /healthz  /metrics  /openapi.json
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from seqfit.errors import SeqfitError
from seqfit.serving.backend import RequestOptions, ServedModel, ServedRow
from seqfit.serving.columns import list_prompt_templates, list_source_columns
from seqfit.serving.counters import CONTENT_TYPE, ServerCounters
from seqfit.serving.errors import ApiError
from seqfit.serving.examples import Examples, read_examples
from seqfit.serving.feedback import keep_rating, target_columns
from seqfit.serving.filled import read_filled
from seqfit.serving.openapi import build_openapi
from seqfit.serving.queue import Answers, QueuedRequest, RequestQueue
from seqfit.serving.requests import MOST_ROWS, CompletionRequest, Rating, parse_body, parse_json, parse_query
from seqfit.serving.spans import find_answer
from seqfit.serving.streams import EVENT_STREAM, TextStream, encode_event, timed_out


class Api:
    def __init__(
        self, queues: Mapping[str, RequestQueue], counters: ServerCounters, timeout_seconds: float, *, has_token: bool
    ) -> None:
        self.openapi = build_openapi([queue.model for queue in queues.values()], has_token=has_token)
        self._queues = queues
        self._counters = counters
        self._seconds = timeout_seconds
        self._started = int(time.time())
        self._examples: dict[str, asyncio.Task[Examples]] = {}

    async def predict(self, request: Request) -> Response:
        query = parse_query(request.query_params)
        queue = self._find(query.model)
        given = parse_json(await request.body())
        rows = [_check(queue.model, row, number) for number, row in enumerate(_listed(given))]
        options = query.to_options()
        started = time.monotonic()
        if not query.stream:
            answers = await self._generate(queue, rows, options)
            return JSONResponse(_describe(queue.model, rows, answers, started))
        parts = self._stream(queue, rows, options)  # before the response begins: a full queue is a status

        async def events() -> AsyncIterator[bytes]:
            try:
                async for part in parts:
                    value = {"text": part} if isinstance(part, str) else _describe(queue.model, rows, part, started)
                    yield encode_event(value)
            except ApiError as error:
                yield encode_event(error.to_json())

        return StreamingResponse(events(), media_type=EVENT_STREAM)

    async def complete(self, request: Request) -> Response:
        given = parse_body(CompletionRequest, await request.body())
        queue = self._find(given.model)
        rows = [_check(queue.model, _to_row(queue.model, text), number) for number, text in enumerate(given.prompts)]
        options = given.to_options()
        envelope = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": queue.model.name,
        }
        if given.stream:
            parts = self._stream(queue, rows, options)
            events = _complete_streamed(queue.model, parts, given, envelope)
            return StreamingResponse(events, media_type=EVENT_STREAM)
        answers = await self._generate(queue, rows, options)
        texts = [answer.text for candidates in answers for answer in candidates]
        choices = [_choice(queue.model, text, index, given) for index, text in enumerate(texts)]
        usage = {
            "prompt_tokens": sum(queue.model.count_tokens(queue.model.task.render_source(row)) for row in rows),
            "completion_tokens": sum(queue.model.count_tokens(text) for text in texts),
        }
        usage["total_tokens"] = sum(usage.values())
        return JSONResponse({**envelope, "choices": choices, "usage": usage})

    async def list_openai_models(self, _request: Request) -> Response:
        models = [
            {"id": name, "object": "model", "created": self._started, "owned_by": "seqfit"} for name in self._queues
        ]
        return JSONResponse({"object": "list", "data": models})

    async def list_models(self, _request: Request) -> Response:
        return JSONResponse({"models": [_describe_model(queue.model) for queue in self._queues.values()]})

    async def list_examples(self, request: Request) -> Response:
        _refuse_unknown(request, "model")
        queue = self._find(request.query_params.get("model"))
        name = queue.model.name
        if name not in self._examples:
            reading = run_in_threadpool(read_examples, queue.model.path, queue.model.task)
            self._examples[name] = asyncio.ensure_future(reading)
        return JSONResponse(asdict(await asyncio.shield(self._examples[name])))

    async def rate(self, request: Request) -> Response:
        rating = parse_body(Rating, await request.body())
        model = self._find(rating.model).model
        row = _check(model, rating.row, None)
        try:
            kept = await run_in_threadpool(keep_rating, model, rating, row)
        except SeqfitError as error:
            raise ApiError(507, "not_written", str(error)) from error
        self._counters.ratings.labels(model.name, rating.rating).inc()
        return JSONResponse({"path": str(kept.path), "trains": kept.trains, "why_not": kept.why_not})

    async def show_health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok", "models": list(self._queues)})

    async def show_metrics(self, _request: Request) -> Response:
        return Response(self._counters.write(), media_type=CONTENT_TYPE)

    async def show_openapi(self, _request: Request) -> Response:
        return JSONResponse(self.openapi)

    def _find(self, name: str | None) -> RequestQueue:
        if name is None:
            return next(iter(self._queues.values()))
        if name not in self._queues:
            known = ", ".join(self._queues)
            raise ApiError(404, "model_not_found", f"There is no model '{name}' here; served: {known}", "model")
        return self._queues[name]

    async def _generate(self, queue: RequestQueue, rows: Sequence[ServedRow], options: RequestOptions) -> Answers:
        if not rows:
            return []
        request = QueuedRequest(rows, options)
        try:
            queue.submit(request)
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(request.answers)
        except TimeoutError:
            raise timed_out(self._seconds) from None
        except Exception as error:  # whatever the model raised: the client has it, and no traceback
            raise ApiError.of(error) from error

    def _stream(
        self, queue: RequestQueue, rows: Sequence[ServedRow], options: RequestOptions
    ) -> AsyncIterator[str | Answers]:
        """Of several rows only the answers."""
        stream = TextStream()
        request = QueuedRequest(rows, options, stream.put if len(rows) == 1 else None)
        try:
            queue.submit(request)
        except SeqfitError as error:
            raise ApiError.of(error) from error
        return stream.read(request, self._seconds)


async def _complete_streamed(
    model: ServedModel, parts: AsyncIterator[str | Answers], given: CompletionRequest, envelope: Mapping[str, Any]
) -> AsyncIterator[bytes]:
    text, sent = "", 0
    held = max((len(stop) - 1 for stop in given.stops), default=0)  # the beginning of a stop, perhaps
    try:
        async for part in parts:
            if not isinstance(part, str):
                continue
            text += part
            until = min(len(_before_stop(text, given.stops)), len(text) - held)
            if until > sent:
                piece = {"index": 0, "text": text[sent:until], "finish_reason": None, "logprobs": None}
                yield encode_event({**envelope, "choices": [piece]})
                sent = until
        last = _choice(model, text, 0, given)
        yield encode_event({**envelope, "choices": [{**last, "text": last["text"][sent:]}]})
    except ApiError as error:
        yield encode_event(error.to_json())
    yield encode_event("[DONE]")


def _listed(given: Any) -> list[Any]:
    rows = given if isinstance(given, list) else [given]
    if not 1 <= len(rows) <= MOST_ROWS:
        raise ApiError(422, "invalid_request", f"The list has {len(rows)} rows; a request has 1 to {MOST_ROWS}")
    return rows


def _check(model: ServedModel, row: object, number: int | None) -> ServedRow:
    try:
        return model.check(row)
    except SeqfitError as error:
        raise ApiError(422, "invalid_request", str(error), "row" if number is None else f"row {number}") from error


def _to_row(model: ServedModel, prompt: str) -> object:
    """A prompt is the text of the only column, or what the source's template makes of several, or JSON with them."""
    columns = [column.path for column in list_source_columns(model.task)]
    if prompt.lstrip().startswith("{"):
        try:
            row = parse_json(prompt.encode("utf-8", "surrogatepass"))
        except ApiError:
            row = None
        if isinstance(row, dict) and (len(columns) > 1 or columns[0] in row):
            return row
    if len(columns) == 1:
        return {columns[0]: prompt}
    templates = list_prompt_templates(model.task)
    found = next((row for one in templates if (row := read_filled(one, prompt)) is not None), None)
    if found is not None:
        return found
    form = f"a text like {templates[0]!r}, or " if templates else ""
    raise ApiError(
        422,
        "invalid_request",
        f"prompt: The source has the columns {', '.join(columns)}; give {form}a JSON object with them, as text",
        "prompt",
    )


def _describe(model: ServedModel, rows: Sequence[ServedRow], answers: Answers, started: float) -> dict[str, Any]:
    return {
        "model": model.name,
        "seconds": round(time.monotonic() - started, 4),
        "answers": [
            {
                **asdict(candidates[0]),
                "candidates": [asdict(candidate) for candidate in candidates],
                "spans": find_answer(model.task, row, candidates[0].prediction),
            }
            for row, candidates in zip(rows, answers, strict=True)
        ],
    }


def _before_stop(text: str, stops: Sequence[str]) -> str:
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def _choice(model: ServedModel, text: str, index: int, given: CompletionRequest) -> dict[str, Any]:
    kept = _before_stop(text, given.stops)
    limit = given.max_tokens or model.max_new_tokens
    is_full = kept == text and model.count_tokens(text) > limit  # with its end, a whole text has at most the limit
    return {"index": index, "text": kept, "finish_reason": "length" if is_full else "stop", "logprobs": None}


def _describe_model(model: ServedModel) -> dict[str, Any]:
    recipe = model.task.recipe
    return {
        "name": model.name,
        "task": recipe.name,
        "columns": [asdict(column) for column in list_source_columns(model.task)],
        "target_columns": target_columns(model.task),
        "labels": list(recipe.label_values) if recipe.name in ("classify", "multilabel") else [],
    }


def _refuse_unknown(request: Request, *known: str) -> None:
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise ApiError(422, "invalid_request", f"{name} is not a parameter, or is there twice", name)
