"""A collector that takes OTLP over HTTP, as OpenTelemetry's own does, and keeps what it got."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class Seen:
    """A span as it arrived. `parent` is empty for the first one of a trace."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """A number of a metric, or the count and the sum of a histogram."""

    labels: dict[str, Any]
    value: float
    count: int = 0
    buckets: tuple[int, ...] = ()
    bounds: tuple[float, ...] = ()


class Collector:
    """Keeps spans and metrics. `bodies` is all that was sent, as it came over the wire."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.metrics: dict[str, list[Point]] = {}
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                outer.bodies.append(body)
                if self.path == "/v1/traces":
                    outer.spans += _spans(body)
                elif self.path == "/v1/metrics":
                    outer.metrics |= _metrics(body)
                self.send_response(200 if self.path in ("/v1/traces", "/v1/metrics") else 404)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    def root(self, name: str) -> Seen:
        """The one span of that name that begins a trace here."""
        ours = {span.id for span in self.spans}
        (found,) = [span for span in self.named(name) if span.parent not in ours]
        return found

    def tree(self, top: Seen) -> Any:
        """Names below a span, as nested dicts. Of siblings of one name all children count."""
        found: dict[str, Any] = {}
        for span in self.spans:
            if span.parent == top.id:
                found.setdefault(span.name, {}).update(self.tree(span))
        return found


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def _told(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _spans(body: bytes) -> list[Seen]:
    sent = ExportTraceServiceRequest.FromString(body)
    return [
        Seen(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.kind,
            span.status.code == span.status.STATUS_CODE_ERROR,
            _told(span.attributes),
            _told(group.resource.attributes),
        )
        for group in sent.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _metrics(body: bytes) -> dict[str, list[Point]]:
    sent = ExportMetricsServiceRequest.FromString(body)
    found: dict[str, list[Point]] = {}
    for group in sent.resource_metrics:
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                found[metric.name] = [_point(point) for point in data.data_points]
    return found


def _point(point: Any) -> Point:
    labels = _told(point.attributes)
    if hasattr(point, "bucket_counts"):
        bounds = tuple(point.explicit_bounds)
        return Point(labels, point.sum, point.count, tuple(point.bucket_counts), bounds)
    return Point(labels, getattr(point, point.WhichOneof("value")))


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    try:
        yield collector
    finally:
        collector.stop()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made
