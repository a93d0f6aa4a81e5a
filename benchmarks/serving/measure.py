"""Requests per second of `seqfit serve`: one client that asks one by one, and 64 at once; and what misuse does to it.

    python benchmarks/serving/measure.py --run runs/demo
    python benchmarks/serving/measure.py --run runs/demo --requests 200 --repeats 1 --results FOLDER
    python benchmarks/serving/measure.py --table               # README.md from existing results

In: a run of `seqfit train demo`, and the demo's test rows. Out: results/NAME.jsonl with every repeat, and the table of
README.md. Both ways of asking take turns on one server, in another process than the clients.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results
from seqfit.recipe.library import LIBRARY

HERE = Path(__file__).parent
CLIENTS = 64
MUST_REACH = 3.0
HEADER = ("clients", "requests", "errors", "p50", "p95", "requests/s", "ratio", "must reach", "")


@dataclass
class Served:
    port: int
    process: subprocess.Popen[str]
    log: Path


@dataclass
class Tally:
    """What clients saw."""

    seconds: list[float] = field(default_factory=list)  # of answers with status 200
    statuses: list[int] = field(default_factory=list)
    broken: int = 0  # connections that ended without an answer

    @property
    def errors(self) -> int:
        return self.broken + sum(status != 200 for status in self.statuses)


def main() -> None:
    arguments = parse_arguments()
    if not arguments.table:
        measure(arguments)
    shown = format_table(arguments.results)
    print(shown)
    if arguments.results == HERE / "results":
        update_readme(HERE / "README.md", shown)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Load on seqfit serve.")
    parser.add_argument("--run", type=Path, default=Path("runs/demo"), help="the run to serve")
    parser.add_argument("--requests", type=int, default=2000, help="of 64 clients; one client sends a tenth")
    parser.add_argument("--repeats", type=int, default=5, help="of both ways of asking")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the results")
    parser.add_argument("--table", action="store_true", help="only write the table")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> None:
    bodies = list_bodies()
    results: list[dict[str, Any]] = []
    with start_server(arguments.run) as served:
        ask(served.port, bodies, 32, 4)  # warm-up
        for repeat, clients in itertools.product(range(arguments.repeats), (1, CLIENTS)):
            requests = arguments.requests if clients > 1 else max(20, arguments.requests // 10)
            started = time.perf_counter()
            tally = ask(served.port, bodies, requests, clients)
            taken = time.perf_counter() - started
            results.append(describe_repeat(repeat, clients, requests, taken, tally))
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
        misuse = misuse_while_asked(served, bodies)
    end = end_while_asked(arguments.run, bodies)
    machine = describe_machine(1) | {"misuse": misuse, "end": end}
    write_results(arguments.results / "demo.jsonl", machine, results)


def describe_repeat(repeat: int, clients: int, requests: int, seconds: float, tally: Tally) -> dict[str, Any]:
    twentieths = statistics.quantiles(tally.seconds, n=20) if len(tally.seconds) > 1 else [0.0] * 19
    return {
        "repeat": repeat,
        "clients": clients,
        "requests": requests,
        "errors": tally.errors,
        "p50_ms": round(1000 * twentieths[9], 1),
        "p95_ms": round(1000 * twentieths[18], 1),
        "seconds": round(seconds, 3),
    }


def list_bodies() -> list[bytes]:
    """The demo's test rows, as requests."""
    lines = (LIBRARY / "demo" / "test.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [json.dumps({name: row[name] for name in ("question", "context")}).encode() for row in rows]


@contextmanager
def start_server(run: Path) -> Iterator[Served]:
    """`seqfit serve` in a process of its own, which is ended with the block."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "seqfit", "serve", str(run), "--no-open"]
        with log.open("w") as sink, subprocess.Popen(command, stdout=sink, stderr=sink, text=True) as process:
            try:
                yield Served(wait_for_port(process, log), process, log)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                process.wait(120)


def wait_for_port(process: subprocess.Popen[str], log: Path) -> int:
    while (found := re.search(r"API: http://127\.0\.0\.1:(\d+)/", log.read_text())) is None:
        if process.poll() is not None:
            raise SystemExit(f"The server ended with exit code {process.returncode}: {log.read_text()}")
        time.sleep(0.05)
    return int(found[1])


def ask(port: int, bodies: Sequence[bytes], requests: int, clients: int, tally: Tally | None = None) -> Tally:
    """So many requests by so many clients, each with a connection that it keeps."""
    seen = tally or Tally()
    numbers = iter(range(requests))
    lock = threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                connection.close()
                return
            started = time.perf_counter()
            try:
                connection.request("POST", "/predict", bodies[number % len(bodies)])
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException):
                seen.broken += 1
                connection.close()
                return
            seen.statuses.append(response.status)
            if response.status == 200:
                seen.seconds.append(time.perf_counter() - started)

    run_all([client] * clients)
    return seen


def run_all(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def misuse_while_asked(served: Served, bodies: Sequence[bytes]) -> dict[str, Any]:
    """Malformed JSON, bodies of 10 MB, slow clients and a foreign host, while others ask properly."""
    statuses: dict[str, list[int]] = {"malformed JSON": [], "10 MB body": [], "foreign Host": [], "slow client": []}
    tally = Tally()

    def send(name: str, body: bytes, host: str) -> None:
        for _ in range(10):
            connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
            connection.request("POST", "/predict", body, {"Host": host})
            statuses[name].append(connection.getresponse().status)
            connection.close()

    def dawdle() -> None:
        with socket.create_connection(("127.0.0.1", served.port), timeout=120) as slow:
            slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            statuses["slow client"].append(int(slow.recv(200).split()[1]))

    works: list[Callable[[], None]] = [dawdle] * 10
    works.append(lambda: send("malformed JSON", b'{"question": ', "localhost"))
    works.append(lambda: send("10 MB body", b"x" * 10_000_000, "localhost"))
    works.append(lambda: send("foreign Host", bodies[0], "evil.example"))
    works.append(lambda: ask(served.port, bodies, 500, 16, tally) and None)
    run_all(works)
    return {
        "statuses": {name: sorted(set(seen)) for name, seen in statuses.items()},
        "others": len(tally.statuses),
        "errors of others": tally.errors,
        "traceback": "Traceback" in served.log.read_text(),
    }


def end_while_asked(run: Path, bodies: Sequence[bytes]) -> dict[str, Any]:
    """SIGTERM while 64 clients ask: every request that the server counts as answered has reached its client."""
    tally = Tally()
    with start_server(run) as served:
        asking = threading.Thread(target=ask, args=(served.port, bodies, 100_000, CLIENTS, tally))
        asking.start()
        while len(tally.statuses) < 200:
            time.sleep(0.01)
        served.process.send_signal(signal.SIGTERM)
        asking.join()
        with suppress(subprocess.TimeoutExpired):
            served.process.wait(120)
        text = served.log.read_text()
        found = re.search(r"ended: ([\d,]+) requests answered", text)
        answered = None if found is None else int(found[1].replace(",", ""))
        return {
            "exit code": served.process.returncode,
            "answered by the server": answered,
            "answers that arrived": len(tally.statuses),
            "other than 200": sum(status != 200 for status in tally.statuses),
            "traceback": "Traceback" in text,
        }


def format_table(results: Path) -> str:
    path = results / "demo.jsonl"
    if not path.exists():
        return "Nothing has been measured yet."
    machine, measured = read_results(path)
    lines = [f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    single = statistics.median(rates(measured, 1))
    for clients in (1, CLIENTS):
        own = [one for one in measured if one["clients"] == clients]
        ratio = statistics.median(rates(measured, clients)) / single
        reached = ("reached" if ratio >= MUST_REACH else "**not reached**") if clients > 1 else ""
        cells = [str(clients), f"{sum(one['requests'] for one in own):,}", str(sum(one["errors"] for one in own))]
        cells += [f"{statistics.median(one[name] for one in own):.0f} ms" for name in ("p50_ms", "p95_ms")]
        cells += [spread(rates(measured, clients)), f"{ratio:.2f}"]
        cells += [f"{MUST_REACH:g}" if clients > 1 else "", reached]
        lines.append(f"| {' | '.join(cells)} |")
    misuse, end = machine["misuse"], machine["end"]
    statuses = ", ".join(f"{name} {' '.join(map(str, seen))}" for name, seen in misuse["statuses"].items())
    lines += [
        "",
        f"Misuse (status): {statuses}; {misuse['others']} proper requests meanwhile, "
        f"{misuse['errors of others']} errors; "
        f"traceback: {'yes' if misuse['traceback'] else 'none'}.",
        "",
        f"SIGTERM under load: exit code {end['exit code']}, {end['answered by the server']} requests answered, "
        f"{end['answers that arrived']} answers arrived, {end['other than 200']} of them not 200; "
        f"traceback: {'yes' if end['traceback'] else 'none'}.",
        "",
        f"On: {describe_in_words(machine)}.",
    ]
    return "\n".join(lines)


def rates(measured: Sequence[dict[str, Any]], clients: int) -> list[float]:
    """Requests per second of each repeat."""
    return [one["requests"] / one["seconds"] for one in measured if one["clients"] == clients]


def spread(values: Sequence[float]) -> str:
    """'310 (302-315)': median, lowest and highest."""
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


if __name__ == "__main__":
    main()
