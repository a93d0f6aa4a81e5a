"""What is counted while serving, in the form that Prometheus reads (GET /metrics).

seqfit_requests_total{path="/predict",status="200"} 2000
seqfit_request_seconds_bucket{path="/predict",le="0.1"} 1820
seqfit_batch_rows_sum{model="runs/demo"} 2000
seqfit_waiting_rows{model="runs/demo"} 0
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "ModelCounters", "ServerCounters"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class ServerCounters:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ["path", "status"]
        self.requests = Counter("seqfit_requests", "Requests answered", labels, registry=self.registry)
        self.seconds = Histogram(
            "seqfit_request_seconds", "Time of a request", ["path"], buckets=_SECONDS, registry=self.registry
        )
        self.waiting = Gauge("seqfit_waiting_rows", "Rows that wait for the model", ["model"], registry=self.registry)
        self.batch_rows = Histogram(
            "seqfit_batch_rows", "Rows generated together", ["model"], buckets=_ROWS, registry=self.registry
        )
        self.batch_seconds = Histogram(
            "seqfit_batch_seconds", "Time to generate a batch", ["model"], buckets=_SECONDS, registry=self.registry
        )
        self.generated_rows = Counter("seqfit_generated_rows", "Rows generated", ["model"], registry=self.registry)
        self.failed_batches = Counter(
            "seqfit_failed_batches", "Batches that failed and were generated again row by row", ["model"],
            registry=self.registry,
        )  # fmt: skip
        self.ratings = Counter("seqfit_ratings", "Answers rated", ["model", "rating"], registry=self.registry)

    def answered(self) -> int:
        """Requests, with any status."""
        samples = [sample for metric in self.requests.collect() for sample in metric.samples]
        return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))

    def write(self) -> bytes:
        return generate_latest(self.registry)


class ModelCounters:
    """Those of one model."""

    def __init__(self, counters: ServerCounters, model: str) -> None:
        self.waiting = counters.waiting.labels(model)
        self.batch_rows = counters.batch_rows.labels(model)
        self.batch_seconds = counters.batch_seconds.labels(model)
        self.generated_rows = counters.generated_rows.labels(model)
        self.failed_batches = counters.failed_batches.labels(model)
