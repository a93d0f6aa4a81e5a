"""Dynamic batches, the limit of the queue, time limits, and the end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.processes import wait_until
from tests.serving.conftest import Client, RuleModel, Serve


def ask(client: Client, number: int, query: str = "") -> tuple[int, Any]:
    status, said = client.post(f"/predict{query}", {"question": "Who?", "context": f"w{number} did"})
    return status, said["answers"][0]["prediction"] if status == 200 else said["error"]["type"]


def test_what_arrives_during_a_batch_is_the_next_batch(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _), ThreadPoolExecutor(32) as pool:
        model.may_go.clear()
        first = pool.submit(ask, client, 0)
        wait_until(lambda: model.batches == [1], "the first batch")
        others = [pool.submit(ask, client, number) for number in range(1, 31)]
        wait_until(lambda: waiting_rows(client) == 30, "30 rows in the queue")
        model.may_go.set()
        assert [one.result() for one in (first, *others)] == [(200, f"w{number}") for number in range(31)]
    assert model.batches == [1, 30]


def waiting_rows(client: Client) -> float:
    lines = client.get("/metrics")[1].splitlines()
    return float(next(line for line in lines if line.startswith("seqfit_waiting_rows{")).split()[1])


def test_only_requests_with_the_same_options_go_together(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _), ThreadPoolExecutor(8) as pool:
        model.may_go.clear()
        asked = [pool.submit(ask, client, 0)]
        wait_until(lambda: model.batches == [1], "the first batch")
        for number, query in enumerate(("?n=2", "?n=3", "?n=2", "?n=2"), 1):
            asked.append(pool.submit(ask, client, number, query))
            wait_until(lambda number=number: waiting_rows(client) == number, "its place in the queue")
        model.may_go.set()
        assert [one.result() for one in asked] == [(200, f"w{number}") for number in range(5)]
    assert model.batches == [1, 3, 1]


def test_a_full_queue_refuses_and_says_when_to_come_back(model: RuleModel, serve: Serve) -> None:
    with serve([model], queue_rows=2) as (client, _), ThreadPoolExecutor(4) as pool:
        model.may_go.clear()
        asked = [pool.submit(ask, client, 0)]
        wait_until(lambda: model.batches == [1], "the first batch")
        asked += [pool.submit(ask, client, number) for number in (1, 2)]
        wait_until(lambda: waiting_rows(client) == 2, "a full queue")
        for query in ("", "?stream=true"):
            row = {"question": "Who?", "context": "late"}
            status, said, headers = client.send("POST", f"/predict{query}", row)
            assert (status, said["error"]["type"], headers["retry-after"]) == (429, "queue_full", "1")
        model.may_go.set()
        assert [one.result()[0] for one in asked] == [200] * 3  # what was accepted


def test_who_waits_too_long_is_refused_and_costs_no_batch(model: RuleModel, serve: Serve) -> None:
    with serve([model], timeout_seconds=0.3) as (client, _), ThreadPoolExecutor(4) as pool:
        model.may_go.clear()
        first, second = (pool.submit(ask, client, number) for number in (0, 1))
        assert first.result() == second.result() == (504, "timeout")
        model.may_go.set()
        assert ask(client, 2) == (200, "w2")
    assert sum(model.batches) <= 3


def test_one_row_that_fails_does_not_take_the_others_of_its_batch_with_it(model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, _), ThreadPoolExecutor(8) as pool:
        model.may_go.clear()
        asked = [pool.submit(ask, client, 0)]
        wait_until(lambda: model.batches == [1], "the first batch")
        bad = pool.submit(client.post, "/predict", {"question": "Who?", "context": "boom"})
        asked += [pool.submit(ask, client, number) for number in (1, 2, 3)]
        wait_until(lambda: waiting_rows(client) == 4, "the batch")
        model.may_go.set()
        assert [one.result() for one in asked] == [(200, f"w{number}") for number in range(4)]
        assert bad.result()[0] == 500


@pytest.mark.parametrize("query", ["", "?stream=true"])
def test_the_end_waits_for_what_was_accepted(query: str, model: RuleModel, serve: Serve) -> None:
    with serve([model]) as (client, server), ThreadPoolExecutor(16) as pool:
        model.may_go.clear()
        row = {"question": "Who?", "context": "Ada did"}
        asked = [pool.submit(client.post, f"/predict{query}", row) for _ in range(12)]
        wait_until(lambda: model.batches and waiting_rows(client) + sum(model.batches) == 12, "all twelve")
        server.should_exit = True
        threading.Timer(0.3, model.may_go.set).start()
        answers = [one.result() for one in asked]
    assert [status for status, _ in answers] == [200] * 12
    assert all("Ada" in str(said) for _, said in answers)
    with pytest.raises(ConnectionError):
        client.get("/healthz")
