"""Spans of what the service does. They are made by `app/core/otel.py` where a collector is configured, and by nothing
otherwise: then a span is one object that does nothing.

Spans say what was done, on how many records and how long it took. They never say what a record, a query or an error
message contains, nor whose it is.
"""

import asyncio
import importlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from app.core.otel import OtelSpan, OtelTracer

EXTRA_MISSING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT is set, and nothing is sent: the OpenTelemetry SDK is missing. Install it with "
    "`scripts/extra otel`, or `pip install recalld[otel]`."
)
WRONG_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL is {}, and nothing is sent: only http/protobuf is spoken here."
UNKNOWN_EXPORTER = "{} is {!r}, and nothing of it is sent: only `otlp` and `none` are known here."
FLUSH_SECONDS = 3.0
"""How long the end of the process waits for a collector."""

AttributeValue: TypeAlias = str | int | float | bool | Sequence[str]
Attributes: TypeAlias = Mapping[str, AttributeValue]
SpanKindName = Literal["internal", "client", "server"]
Signal = Literal["traces", "metrics"]
NOTHING: Attributes = {}
NO_CARRIER: Mapping[str, str] = {}

log = logging.getLogger(__name__)


class TraceSpan:
    """A span. It is open inside its `with` block. An error that leaves the block marks it, by the type of the error
    alone. A span of this class itself is one that nobody records: `app/core/otel.py` has those that somebody does."""

    __slots__ = ()

    def __enter__(self) -> "TraceSpan":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def name(self, name: str) -> None:
        """Gives the span its final name."""

    def set(self, attributes: Attributes) -> None:
        """Adds attributes."""

    def fail(self, error_type: str, *, fault: bool = True) -> None:
        """Notes the type of an error. `fault`: it is one of the service, so that the span counts as failed."""


NO_SPAN = TraceSpan()
_tracer: "OtelTracer | None" = None
_OPEN: ContextVar["OtelSpan | None"] = ContextVar("span", default=None)


def span(name: str, attributes: Attributes = NOTHING, kind: SpanKindName = "internal") -> TraceSpan:
    """Returns a span below the open one. Where none is open it returns `NO_SPAN`: what runs by the clock and finds
    nothing to do makes no traces."""
    parent = _OPEN.get()
    return NO_SPAN if parent is None else parent.child(name, attributes, kind)


def root(
    name: str,
    attributes: Attributes = NOTHING,
    kind: SpanKindName = "internal",
    carrier: Mapping[str, str] = NO_CARRIER,
) -> TraceSpan:
    """Returns the span of a request or a job. Inside another span, as with a request that an MCP tool makes, it lies
    below that."""
    if _tracer is None:
        return NO_SPAN
    parent = _OPEN.get()
    return (
        _tracer.root(name, attributes, kind, carrier) if parent is None else parent.child(name, attributes, "internal")
    )


def enter(opened: "OtelSpan") -> "Token[OtelSpan | None]":
    """Makes a span the open one of this context, until `leave`."""
    return _OPEN.set(opened)


def leave(token: "Token[OtelSpan | None]") -> None:
    """Ends what `enter` began."""
    _OPEN.reset(token)


def tracing() -> bool:
    """Returns whether spans are made in this process."""
    return _tracer is not None


def ids() -> tuple[str, str] | None:
    """Returns the ids of the open trace and span; None outside of any."""
    opened = _OPEN.get()
    return None if opened is None else opened.ids


def fail(error_type: str, *, fault: bool = True) -> None:
    """Notes the type of an error at the open span."""
    opened = _OPEN.get()
    if opened is not None:
        opened.fail(error_type, fault=fault)


# --- Start and end ----------------------------------------------------------------------------------------------------


def wanted(signal: Signal) -> bool:
    """Returns whether the standard variables ask for a signal: an endpoint is set, and neither `OTEL_SDK_DISABLED` nor
    an exporter of the name `none` turns it off."""
    upper = signal.upper()
    endpoint = _given(f"OTEL_EXPORTER_OTLP_{upper}_ENDPOINT") or _given("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not endpoint or _given("OTEL_SDK_DISABLED").lower() == "true":
        return False
    exporter = _given(f"OTEL_{upper}_EXPORTER") or "otlp"
    if exporter not in ("otlp", "none"):
        log.warning(UNKNOWN_EXPORTER.format(f"OTEL_{upper}_EXPORTER", exporter))
    protocol = _given(f"OTEL_EXPORTER_OTLP_{upper}_PROTOCOL") or _given("OTEL_EXPORTER_OTLP_PROTOCOL")
    if exporter == "otlp" and protocol not in ("", "http/protobuf"):
        log.warning(WRONG_PROTOCOL.format(protocol))
        return False
    return exporter == "otlp"


def _given(name: str) -> str:
    return os.environ.get(name, "").strip()


def begin(version: str) -> None:
    """Begins to trace and to send metrics, as far as the standard variables ask for it. `version`: of the service.

    If the extra is missing, a warning says so, and the service runs without.
    """
    global _tracer  # noqa: PLW0603 (one for the process)
    if _tracer is not None:
        return
    traces, metrics = wanted("traces"), wanted("metrics")
    if not traces and not metrics:
        return
    try:
        implementation = importlib.import_module("app.core.otel")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("opentelemetry", "google")):
            raise
        log.warning(EXTRA_MISSING)
        return
    _tracer = implementation.open_tracer(version, traces=traces, metrics=metrics)


def end() -> None:
    """Sends what is left, for `FLUSH_SECONDS` at most, and stops. Call it from a thread."""
    global _tracer
    tracer, _tracer = _tracer, None
    if tracer is not None:
        tracer.close(FLUSH_SECONDS)


@asynccontextmanager
async def running(version: str) -> AsyncIterator[None]:
    """Traces and sends metrics inside the block, as far as the standard variables ask for it."""
    begin(version)
    try:
        yield
    finally:
        await asyncio.to_thread(end)
