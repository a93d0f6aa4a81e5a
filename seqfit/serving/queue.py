"""The requests for one model: they wait in a queue, and a thread answers as many at once as it can.

Batching is dynamic: what has arrived while a batch was generated is the next batch. Only requests with the same options
go together, in the order of their arrival.

    waiting   a1 a2 b1 a3    (a, b: options)      batch a1 a2 a3, then b1

After a batch of several the thread waits a few milliseconds for those who were just answered and ask again; otherwise
they would come one batch late, and batches would be half as large. An idle model answers at once.

A request to stream is streamed if it is the only one that waits, else it goes with the batch and gets its text in one
piece: tokens one by one for a single reader would cost all the others their batch.

If a batch fails, its requests are generated one by one, so that only the one that fails has the error.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from seqfit.errors import SeqfitError
from seqfit.serving.backend import ModelAnswer, RequestOptions, ServedModel, ServedRow
from seqfit.serving.counters import ModelCounters

BATCH_ROWS = 64
_GATHER_SECONDS = 0.004  # without a new request, after a batch of several
_MOST_GATHER_SECONDS = 0.03

Answers = list[list[ModelAnswer]]


class QueueFull(SeqfitError):
    """As many rows wait as may."""


@dataclass(eq=False)
class QueuedRequest:
    rows: Sequence[ServedRow]
    options: RequestOptions
    on_text: Callable[[str], None] | None = None  # called by the queue's thread with pieces of the text, as they come
    answers: Future[Answers] = field(default_factory=Future)  # cancelled: nobody waits for it any more
    abandoned: bool = False  # the reader of a stream has gone


class RequestQueue:
    def __init__(
        self, model: ServedModel, most_rows: int, counters: ModelCounters, batch_rows: int = BATCH_ROWS
    ) -> None:
        self.model = model
        self._most_rows, self._batch_rows = most_rows, batch_rows
        self._counters = counters
        self._waiting: deque[QueuedRequest] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._last_size = 1  # requests in the last batch
        self._thread = threading.Thread(target=self._work, name=f"seqfit-serve-{model.name}", daemon=True)
        self._thread.start()

    def submit(self, request: QueuedRequest) -> None:
        with self._changed:
            waiting = sum(len(one.rows) for one in self._waiting)
            if self._closing or waiting + len(request.rows) > self._most_rows:
                raise QueueFull(
                    f"{waiting} rows wait for the model",
                    f"at most {self._most_rows} may wait",
                    "Try again in a second, or start the server with a larger --queue",
                )
            self._waiting.append(request)
            self._counters.waiting.set(waiting + len(request.rows))
            self._changed.notify()

    def close(self) -> None:
        """After all that was accepted is answered."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._take():
            self._last_size = len(batch)
            if len(batch) == 1 and batch[0].on_text is not None:
                self._stream(batch[0])
            else:
                self._generate(batch)

    def _take(self) -> list[QueuedRequest]:
        """The next batch; waits for one. Empty: the queue is closed, and nothing waits."""
        with self._changed:
            while True:
                self._drop_cancelled()
                if self._waiting:
                    break
                if self._closing:
                    return []
                self._changed.wait()
            if self._last_size > 1:
                self._gather()
                self._drop_cancelled()
            batch = self._pick()
            self._counters.waiting.set(sum(len(one.rows) for one in self._waiting))
        return [one for one in batch if one.answers.set_running_or_notify_cancel()] or self._take()

    def _gather(self) -> None:
        """Until nothing has come for a moment."""
        deadline = time.monotonic() + _MOST_GATHER_SECONDS
        while sum(len(one.rows) for one in self._waiting) < self._batch_rows and time.monotonic() < deadline:
            if not self._changed.wait(_GATHER_SECONDS):
                return

    def _drop_cancelled(self) -> None:
        self._waiting = deque(one for one in self._waiting if not one.answers.cancelled())

    def _pick(self) -> list[QueuedRequest]:
        """The first request, and others with its options."""
        picked: list[QueuedRequest] = []
        left: deque[QueuedRequest] = deque()
        rows = 0
        for one in self._waiting:
            fits = not picked or (one.options == picked[0].options and rows + len(one.rows) <= self._batch_rows)
            (picked if fits else left).append(one)
            rows += len(one.rows) if fits else 0
        self._waiting = left
        return picked

    def _stream(self, request: QueuedRequest) -> None:
        assert request.on_text is not None
        try:
            for piece in self.model.stream(request.rows[0], request.options):
                if request.abandoned:
                    break
                request.on_text(piece)
        except Exception as error:  # whatever a model raises, the thread goes on, and the request has the error
            request.answers.set_exception(error)
            return
        if request.abandoned:
            request.answers.set_result([])
        else:
            self._generate([request], streamed=True)

    def _generate(self, batch: list[QueuedRequest], *, streamed: bool = False) -> None:
        rows = [row for one in batch for row in one.rows]
        started = time.monotonic()
        try:
            answers = self.model.generate(rows, batch[0].options)
        except Exception as error:  # as above
            if len(batch) == 1:
                batch[0].answers.set_exception(error)
                return
            self._counters.failed_batches.inc()
            for one in batch:
                self._generate([one])
            return
        self._counters.batch_rows.observe(len(rows))
        self._counters.generated_rows.inc(len(rows))
        self._counters.batch_seconds.observe(time.monotonic() - started)
        first = 0
        for one in batch:
            own = answers[first : first + len(one.rows)]
            first += len(one.rows)
            if one.on_text is not None and not streamed:
                one.on_text(own[0][0].text)
            one.answers.set_result(own)
