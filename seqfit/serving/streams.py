"""Server-sent events: pieces of text that a thread writes, sent as they come; one line `data: {...}` each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from seqfit.serving.errors import ApiError
from seqfit.serving.queue import Answers, QueuedRequest

EVENT_STREAM = "text/event-stream"


def encode_event(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {text}\n\n".encode("utf-8", "replace")


class TextStream:
    """Joins a queue's thread, which calls `put`, with a request's coroutine, which reads the pieces."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[str] = asyncio.Queue()

    def put(self, piece: str) -> None:
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    async def read(self, request: QueuedRequest, seconds: float) -> AsyncIterator[str | Answers]:
        """The pieces, then the answers. A failure is an ApiError."""
        answers: asyncio.Future[Answers] = asyncio.wrap_future(request.answers)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    piece = asyncio.create_task(self._pieces.get())
                    waiting: list[asyncio.Future[Any]] = [piece, answers]
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    if not piece.done():
                        piece.cancel()
                        break
                    yield piece.result()
                while not self._pieces.empty():
                    yield self._pieces.get_nowait()
                yield await answers
        except TimeoutError:
            raise timed_out(seconds) from None
        except Exception as error:
            raise ApiError.of(error) from error
        finally:
            request.abandoned = True
            answers.cancel()


def timed_out(seconds: float) -> ApiError:
    return ApiError(504, "timeout", f"There was no answer within {seconds:g} s; the server's --timeout sets this limit")
