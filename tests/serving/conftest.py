"""A server on a port of its own, with models that answer by rule: no torch, and every wait is the test's own."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from seqfit.recipe import TaskRecipe
from seqfit.serving.backend import ModelAnswer, RequestOptions
from seqfit.serving.columns import check_row
from seqfit.serving.options import ServerOptions
from seqfit.serving.server import listen, prepared_server
from seqfit.tasks import build_task
from tests.processes import wait_until

QA = {"name": "qa", "source": "question: {question} context: {context}", "target": "{answer}"}


@dataclass
class RuleModel:
    """Answers with the first word of the last source column; 'boom' is a row that it fails at."""

    path: Path
    name: str = "rule"
    recipe: Mapping[str, Any] = field(default_factory=lambda: QA)
    max_new_tokens: int = 8
    batches: list[int] = field(default_factory=list)  # rows in each
    may_go: threading.Event = field(default_factory=threading.Event)  # a batch waits for it

    def __post_init__(self) -> None:
        self.task = build_task(TaskRecipe.model_validate(self.recipe))
        self.may_go.set()

    def check(self, row: object) -> Mapping[str, Any]:
        return check_row(self.task, row)

    def generate(self, rows: Sequence[Mapping[str, Any]], options: RequestOptions) -> list[list[ModelAnswer]]:
        self.batches.append(len(rows))
        assert self.may_go.wait(60)
        words = [str(row[self.task.source_columns()[-1]]).split() for row in rows]
        if any(word[0] == "boom" for word in words):
            raise ValueError("boom is not a word")
        return [
            [ModelAnswer(word[0], word[0], 0.5 / place, -0.1) for place in range(1, options.n_best + 1)]
            for word in words
        ]

    def stream(self, row: Mapping[str, Any], options: RequestOptions) -> Iterator[str]:
        yield from str(row[self.task.source_columns()[-1]]).split()[0]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


@dataclass
class Client:
    port: int

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, content (of JSON: the value), headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, content, dict(headers or {}))
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = response.getheader("content-type", "").startswith("application/json")
        return response.status, json.loads(text) if is_json else text, dict(response.getheaders())

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return self.send("GET", path, headers=headers)[:2]

    def post(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        return self.send("POST", path, body, headers)[:2]


Serve = Callable[..., Any]


@contextmanager
def served(models: Sequence[Any], options: ServerOptions) -> Iterator[tuple[Client, Any]]:
    """A client, and uvicorn's server, which ends with the block."""
    started = threading.Event()
    listener = listen(None)
    with prepared_server(models, options, started.set) as server:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: started.is_set() or not thread.is_alive(), "the server's start")
            assert started.is_set()
            yield Client(listener.getsockname()[1]), server
        finally:
            server.should_exit = True
            for model in models:
                if isinstance(model, RuleModel):
                    model.may_go.set()
            thread.join(60)
            assert not thread.is_alive()
    listener.close()


@pytest.fixture
def serve() -> Serve:
    """`with serve([model], token="t") as (client, server)`."""

    def start(models: Sequence[Any], **options: Any) -> Any:
        return served(models, ServerOptions(**options))

    return start


@pytest.fixture
def model(tmp_path: Path) -> RuleModel:
    return RuleModel(tmp_path)
