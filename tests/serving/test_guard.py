"""What a foreign page, a huge or a slow body, and a missing token meet."""

from __future__ import annotations

import http.client
import socket
import time

import pytest

from tests.serving.conftest import RuleModel, Serve

ROW = {"question": "Who?", "context": "Ada did"}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[", "10.0.0.1:80"])
def test_a_foreign_host_is_refused(host: str, model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        for path in ("/", "/predict", "/metrics"):
            assert client.get(path, Host=host)[0] == 403
        assert client.get("/healthz", Host="localhost:9999")[0] == 200  # a tunnel's port differs


def test_a_foreign_page_is_refused_and_the_own_one_is_not(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        own = f"127.0.0.1:{client.port}"
        for origin in (
            "http://evil.example",
            "null",
            f"http://localhost:{client.port}",
            "http://[",
            "http://127.0.0.1:1",
        ):
            assert client.post("/predict", ROW, Origin=origin, Host=own)[0] == 403
        assert client.post("/predict", ROW, Origin=f"http://{own}", Host=own)[0] == 200


def test_a_token_opens_what_has_data(model: RuleModel, serve: Serve) -> None:
    with serve([model], token="s3cret") as (client, _):
        for path in ("/models", "/metrics", "/examples", "/v1/models", "/no-such-path"):
            assert client.get(path)[0] == 401
            assert client.get(path, Authorization="Bearer wrong")[0] == 401
            assert client.get(path, Authorization="Bearer s3cret")[0] in (200, 404)
        for path in ("/", "/docs", "/healthz", "/openapi.json"):
            assert client.get(path)[0] == 200
        status, _, headers = client.send("POST", "/predict", ROW)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/openapi.json")[1]["paths"]["/predict"]["post"]["security"] == [{"token": []}]


def test_a_large_body_is_refused_after_it_was_sent(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        status, said = client.post("/predict", b'"' + b"x" * 10_000_000 + b'"')
        assert (status, said["error"]["type"]) == (413, "body_too_large")
        assert client.post("/predict", ROW)[0] == 200


def test_a_body_without_a_length_is_limited_as_well(model: RuleModel, serve: Serve) -> None:
    with serve([model], body_bytes=1000) as (client, _):
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        connection.request("POST", "/predict", iter([b"x" * 600] * 3), encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()


def test_a_body_that_does_not_come_is_given_up_while_others_are_answered(model: RuleModel, serve: Serve) -> None:
    with serve([model], body_seconds=0.5) as (client, _):
        slow = socket.create_connection(("127.0.0.1", client.port), timeout=60)
        slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        assert client.post("/predict", ROW)[0] == 200
        said = b""
        while part := slow.recv(4096):  # until the server closes the connection
            said += part
        slow.close()
    assert said.startswith(b"HTTP/1.1 408 ")


def test_what_is_not_http_gets_its_400_and_no_traceback(
    model: RuleModel, serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    with serve([model]) as (client, _):
        for line in (
            b"\x16\x03\x01\x02\x00",
            b"GET /\r\n\r\n",
            b"POST /predict HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", client.port), timeout=60) as odd:
                odd.sendall(line + b"\r\n\r\n")
                assert odd.recv(100).startswith(b"HTTP/1.1 400")
        gone = socket.create_connection(("127.0.0.1", client.port), timeout=60)
        gone.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        gone.close()  # in the middle of its body
        time.sleep(0.1)
        assert client.post("/predict", ROW)[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_answers_carry_headers_that_keep_other_pages_out(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _):
        for path in ("/", "/healthz", "/nothing"):
            headers = client.send("GET", path)[2]
            assert headers["x-frame-options"] == "DENY"
            assert headers["cache-control"] == "no-store"
            assert headers["cross-origin-resource-policy"] == "same-origin"
