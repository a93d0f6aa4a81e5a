from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.serving.conftest import RuleModel, Serve

ROW = {"question": "Who?", "context": "Ada did, not Bob"}


def read_events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_a_row_is_answered_with_its_place_in_the_context(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        status, said = client.post("/predict", {**ROW, "id": 7})
    (answer,) = said["answers"]
    assert (status, said["model"], answer["prediction"], answer["confidence"]) == (200, "rule", "Ada", 0.5)
    assert answer["spans"] == {"context": [[0, 3]]}


def test_a_list_of_rows_is_answered_in_its_order_as_one_batch(model: RuleModel, serve: Serve) -> None:
    rows = [{**ROW, "context": f"w{number} it is"} for number in range(5)]
    with serve([model]) as (client, _):
        _, said = client.post("/predict?n=2", rows)
    assert [answer["prediction"] for answer in said["answers"]] == ["w0", "w1", "w2", "w3", "w4"]
    assert [len(answer["candidates"]) for answer in said["answers"]] == [2] * 5
    assert model.batches == [5]


def test_a_stream_ends_with_the_whole_answer(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        status, text = client.post("/predict?stream=true", ROW)
        events = read_events(text)
        assert status == 200
        assert [event["text"] for event in events[:-1]] == ["A", "d", "a"]
        assert events[-1]["answers"][0]["prediction"] == "Ada"
        (event,) = read_events(client.post("/predict?stream=true", [ROW, ROW])[1])
        assert [answer["text"] for answer in event["answers"]] == ["Ada", "Ada"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{not json", 400, "column 2"),
        (b"\xff\xfe", 400, "UTF-8"),
        (b'{"question": NaN}', 400, "NaN"),
        (b"[" * 100_000, 400, "JSON"),
        (b'{"question": "a", "context": "\\ud800"}', 422, "surrogate"),
        (b'"text"', 422, "object"),
        (b"[]", 422, "0 rows"),
        (b'{"question": "Who?"}', 422, "'context' is not there"),
        (b'{"question": "Who?", "context": " "}', 422, "'context' is empty"),
        (b'{"question": "Who?", "contxt": "x"}', 422, "You gave 'contxt'"),
        (b'{"question": "Who?", "context": {"a": 1}}', 422, "an object"),
        (b'{"question": 1e999, "context": "a"}', 422, "'question' is a number"),
    ],
)
def test_a_wrong_body_is_refused_with_a_reason(
    body: bytes, status: int, words: str, model: RuleModel, serve: Serve
) -> None:
    with serve([model]) as (client, _):
        found, said = client.post("/predict", body)
    assert (found, set(said["error"])) == (status, {"type", "message", "param"})
    assert words in said["error"]["message"]
    assert model.batches == []


@pytest.mark.parametrize(
    "query", ["n=0", "n=1.5", "n=x", "beams=true", "m=1", "n=1&n=2", "temperature=0", "top_p=2", "stream=1", "seed=-1"]
)
def test_a_wrong_option_is_refused_by_its_name(query: str, model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        status, said = client.post(f"/predict?{query}", ROW)
    assert (status, said["error"]["param"]) == (422, query.partition("=")[0])


def test_a_model_that_is_not_served_is_not_found(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        for status, said in (
            client.post("/predict?model=other", ROW),
            client.post("/v1/completions", {"model": "other", "prompt": json.dumps(ROW)}),
            client.get("/examples?model=other"),
        ):
            assert (status, said["error"]["type"]) == (404, "model_not_found")


def test_completions_are_openais(tmp_path: Path, serve: Serve) -> None:
    model = RuleModel(tmp_path, recipe={"name": "generate", "source": "say: {text}", "target": "{out}"})
    with serve([model]) as (client, _):
        status, said = client.post("/v1/completions", {"prompt": ["hello you", "bye"], "max_tokens": 5, "n": 1})
        assert status == 200
        assert [choice["text"] for choice in said["choices"]] == ["hello", "bye"]
        assert said["choices"][0] | {"text": ""} == {
            "index": 0,
            "text": "",
            "finish_reason": "stop",
            "logprobs": None,
        }
        assert said["usage"] == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        _, said = client.post("/v1/completions", {"prompt": "hello", "stop": ["ll"], "temperature": 0.0})
        assert said["choices"][0]["text"] == "he"
        _, text = client.post("/v1/completions", {"prompt": "hello", "stream": True, "stop": "lo"})
        *events, done = read_events(text)
        assert "".join(event["choices"][0]["text"] for event in events) == "hel"
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
        assert done == "[DONE]"
        assert client.get("/v1/models")[1]["data"][0]["id"] == "rule"


@pytest.mark.parametrize(
    "change", [{"logprobs": 3}, {"echo": True}, {"best_of": 2}, {"suffix": "x"}, {"frequency_penalty": 1}, {"other": 1}]
)
def test_what_completions_lack_is_refused_and_not_ignored(
    change: dict[str, Any], model: RuleModel, serve: Serve
) -> None:
    with serve([model]) as (client, _):
        status, said = client.post("/v1/completions", {"prompt": json.dumps(ROW), **change})
    assert (status, said["error"]["param"]) == (422, next(iter(change)))


def test_a_prompt_for_several_columns_is_the_templates_text_or_json(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        said = client.post("/v1/completions", {"prompt": "question: Who? context: Ada did"})[1]
        assert said["choices"][0]["text"] == "Ada"
        assert client.post("/v1/completions", {"prompt": json.dumps(ROW)})[1]["choices"][0]["text"] == "Ada"
        status, said = client.post("/v1/completions", {"prompt": "Who?"})
    assert (status, said["error"]["param"]) == (422, "prompt")


def test_every_path_is_in_the_openapi_file_and_answers_what_it_says(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        _, openapi = client.get("/openapi.json")
        for path, operations in openapi["paths"].items():
            if "get" in operations:
                status, _, headers = client.send("GET", path)
                (kind,) = operations["get"]["responses"]["200"]["content"]
                assert (status, headers["content-type"].split(";")[0]) == (200, kind)
            status, said, headers = client.send("DELETE", path)
            assert (status, said["error"]["type"]) == (405, "http_error")
            assert {name.lower() for name in headers} >= {"allow"}
        assert client.get("/no-such-path")[0] == 404
        _, docs = client.get("/docs")
    assert all(f"{path}</h2>" in docs for path in openapi["paths"])
    assert f"curl http://127.0.0.1:{client.port}/predict" in docs
    assert not re.search(r"(src|href)=\"(https?:)?//", docs)  # nothing is loaded from elsewhere


def test_what_happened_is_counted(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        client.post("/predict", [ROW, ROW])
        client.post("/predict", b"{")
        client.get("/made-up")
        _, text = client.get("/metrics")
    lines = text.splitlines()
    assert 'seqfit_requests_total{path="/predict",status="200"} 1.0' in lines
    assert 'seqfit_requests_total{path="/predict",status="400"} 1.0' in lines
    assert 'seqfit_requests_total{path="other",status="404"} 1.0' in lines
    assert 'seqfit_generated_rows_total{model="rule"} 2.0' in lines
    assert 'seqfit_waiting_rows{model="rule"} 0.0' in lines


def test_an_error_inside_the_model_is_that_requests_answer(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        status, said = client.post("/predict", {**ROW, "context": "boom"})
        assert (status, said["error"]["type"]) == (500, "internal_error")
        assert "boom is not a word" in said["error"]["message"]
        assert client.post("/predict", ROW)[0] == 200
