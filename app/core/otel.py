"""Traces and metrics over OTLP by the OpenTelemetry SDK. It is the only module that imports OpenTelemetry, and it is
imported where the standard variables name a collector (`app/core/tracing.py`).

Tracer and metrics belong to this module: the library's global ones stay unset, so that no other library sends spans of
its own, with what it likes in them. Metrics are those of `/metrics`, read at each interval: one set of counters with
two ways out.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextvars import Token
from types import TracebackType
from typing import Any
from uuid import uuid4

import prometheus_client
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_METRIC_EXPORT_INTERVAL
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, Status, StatusCode
from prometheus_client.metrics_core import Metric as Family

from app.core.tracing import NO_SPAN, Attributes, SpanKindName, TraceSpan, enter, leave
from app.errors import RecalldError

NAME = "recalld"
SCHEMA = Schemas.V1_33_0.value
"""The version of the semantic conventions by which attributes are named."""
INTERVAL_MS = 60_000.0
"""How often metrics are sent, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise."""
_KINDS: Mapping[str, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "server": SpanKind.SERVER,
}

log = logging.getLogger(__name__)


class OtelSpan(TraceSpan):
    """A span of the SDK. Unlike the SDK's own context manager it records no message of an error, which may quote what
    a caller sent."""

    __slots__ = ("_span", "_token", "_tracer")

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer, self._span = tracer, span
        self._token: Token[OtelSpan | None] | None = None

    def __enter__(self) -> TraceSpan:
        self._token = enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._token is not None
        leave(self._token)
        if isinstance(error, RecalldError):
            self.fail(error.code, fault=error.status >= RecalldError.status)
        elif kind is not None:
            self.fail(kind.__name__.lstrip("_"), fault=issubclass(kind, Exception))  # a cancelled call is no fault
        self._span.end()

    @property
    def ids(self) -> tuple[str, str]:
        context = self._span.get_span_context()
        return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)

    def child(self, name: str, attributes: Attributes, kind: SpanKindName) -> TraceSpan:
        """Returns a span below this one; `NO_SPAN` if the sampler left this one out."""
        if not self._span.is_recording():
            return NO_SPAN
        above = trace.set_span_in_context(self._span, Context())
        return OtelSpan(self._tracer, self._tracer.start_span(name, above, _KINDS[kind], attributes))

    def name(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def fail(self, error_type: str, *, fault: bool = True) -> None:
        self._span.set_attribute("error.type", error_type)
        if fault:
            self._span.set_status(Status(StatusCode.ERROR))


class OtelTracer:
    """Makes spans and sends them, and the metrics, to a collector."""

    def __init__(self, tracing: TracerProvider | None, metrics: "MetricsSender | None", version: str) -> None:
        self._provider, self._metrics = tracing, metrics
        self._tracer = None if tracing is None else tracing.get_tracer(NAME, version, SCHEMA)

    def root(self, name: str, attributes: Attributes, kind: SpanKindName, carrier: Mapping[str, str]) -> TraceSpan:
        """Returns a span that begins a trace, or goes on with the one that `carrier` names (W3C `traceparent`)."""
        if self._tracer is None:
            return NO_SPAN
        above = propagate.extract(carrier, Context()) if carrier else Context()
        return OtelSpan(self._tracer, self._tracer.start_span(name, above, _KINDS[kind], attributes))

    def close(self, seconds: float) -> None:
        """Sends what is left, for at most so many seconds. A thread that waits for a collector longer than that ends
        with the process."""
        parts = [part for part in (self._provider, self._metrics) if part is not None]
        threads = [threading.Thread(target=part.shutdown, daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))


def open_tracer(version: str, *, traces: bool, metrics: bool) -> OtelTracer:
    """Returns the tracer as the standard variables say: endpoint, headers, sampler, batches, limits, resource."""
    resource = resource_of(version)
    provider = None
    if traces:
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    sender = MetricsSender(resource, version) if metrics else None
    return OtelTracer(provider, sender, version)


def resource_of(version: str) -> Resource:
    """Returns what the service says of itself. The standard variables win."""
    configured = Resource.create()
    ours = {SERVICE_NAME: NAME, SERVICE_VERSION: version, SERVICE_INSTANCE_ID: str(uuid4())}
    named = {
        name
        for name, value in configured.attributes.items()
        if name in ours and not str(value).startswith("unknown_service")  # the SDK's word for no name
    }
    return configured.merge(Resource({name: value for name, value in ours.items() if name not in named}, SCHEMA))


# --- Metrics ----------------------------------------------------------------------------------------------------------


class MetricsSender:
    """Sends the metrics of the process at each interval, from a thread of its own."""

    def __init__(self, resource: Resource, version: str) -> None:
        self._resource, self._scope = resource, InstrumentationScope(NAME, version)
        self._exporter = OTLPMetricExporter()
        self._started = time.time_ns()
        self._ending = threading.Event()
        self._seconds = _interval_ms() / 1000
        self._thread = threading.Thread(target=self._run, name="recalld-metrics", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Sends a last time and ends the thread."""
        self._ending.set()
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        ending = False
        while not ending:
            ending = self._ending.wait(self._seconds)
            try:
                self._exporter.export(self.data())
            except Exception:
                log.exception("metrics were not sent")

    def data(self) -> MetricsData:
        now = time.time_ns()
        metrics = (self._metric(family, now) for family in prometheus_client.REGISTRY.collect())
        scoped = ScopeMetrics(self._scope, [metric for metric in metrics if metric is not None], "")
        return MetricsData([ResourceMetrics(self._resource, [scoped], "")])

    def _metric(self, family: Family, now: int) -> Metric | None:
        """Returns a family of the registry as OpenTelemetry has it, under its name of `/metrics`. None: it has no
        numbers, or is of a type that nothing here uses."""
        span = (self._started, now)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        points: list[Any]
        if family.type == "histogram":
            points = list(_histograms(family, span))
        else:
            samples = (sample for sample in family.samples if sample.name == name)
            points = [NumberDataPoint(dict(sample.labels), *span, sample.value) for sample in samples]
        if not points or family.type not in ("counter", "gauge", "histogram"):
            return None
        data: Sum | Gauge | Histogram = Gauge(points)
        if family.type == "counter":
            data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        elif family.type == "histogram":
            data = Histogram(points, AggregationTemporality.CUMULATIVE)
        return Metric(name, family.documentation, "", data)


def _interval_ms() -> float:
    given = os.environ.get(OTEL_METRIC_EXPORT_INTERVAL, "")
    try:
        return max(float(given), 1.0) if given else INTERVAL_MS
    except ValueError:
        log.warning("%s is no number: metrics are sent each minute", OTEL_METRIC_EXPORT_INTERVAL)
        return INTERVAL_MS


def _histograms(family: Family, span: tuple[int, int]) -> Iterable[HistogramDataPoint]:
    """Yields the points of a histogram: one for each set of labels, with the counts of each bucket alone."""
    by_labels: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in family.samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        if not sample.name.endswith("_created"):
            by_labels.setdefault(labels, {})[sample.labels.get("le", sample.name.rpartition("_")[2])] = sample.value
    for labels, values in by_labels.items():
        total, count = values.pop("sum", 0.0), int(values.pop("count", 0))
        upper = sorted((float(bound), int(below)) for bound, below in values.items())
        counts = [below - before for (_, below), (_, before) in zip(upper, [(0.0, 0), *upper], strict=False)]
        bounds = [bound for bound, _ in upper[:-1]]
        extremes: Any = None, None  # a registry keeps neither, and OTLP can do without
        yield HistogramDataPoint(dict(labels), *span, count, total, counts, bounds, *extremes)
