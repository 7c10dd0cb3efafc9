"""Requests by route template, never by path: labels stay few and hold no ids."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("recalld_http_requests", "Requests answered", ["method", "route", "status"])
REQUEST_SECONDS = Histogram(
    "recalld_http_request_seconds",
    "Time to answer",
    ["method", "route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
REQUESTS_IN_PROGRESS = Gauge("recalld_http_requests_in_progress", "Requests being answered")
