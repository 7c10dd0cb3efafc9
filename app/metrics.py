"""Prometheus metrics of the service. Labels are route templates, kinds and outcomes: few values, and no ids
but that of the tenant in the use of the language model.

Where several workers serve one address, each writes its values to a file of its own, and `/metrics` of any worker is
the sum of all. A gauge says how its values become one (`multiprocess_mode`): `livesum` of the workers that live, or
`mostrecent` where each counts the same store.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which the library knows the directory of the workers' files."""


class _Value:
    """A value that is this process's own until it becomes a worker, and from then on also in a file.

    The library chooses between the two when a metric is declared, which is before anybody knows.
    """

    _multiprocess = False
    _kind: type = values.MutexValue
    _all: "list[_Value]" = []

    def __init__(self, *described: Any, **how: Any) -> None:
        self._described = described, how
        self._all.append(self)
        self._choose()

    def _choose(self) -> None:
        described, how = self._described
        value = self._kind(*described, **how)
        self.inc, self.set, self.get = value.inc, value.set, value.get
        self.set_exemplar, self.get_exemplar = value.set_exemplar, value.get_exemplar

    @classmethod
    def share(cls, number: int) -> None:
        cls._kind = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
        for metric in cls._all:
            metric._choose()


values.ValueClass = _Value

REQUESTS = Counter("recalld_http_requests", "Requests answered", ["method", "route", "status"])
REQUEST_SECONDS = Histogram(
    "recalld_http_request_seconds",
    "Time to answer",
    ["method", "route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
REQUESTS_IN_PROGRESS = Gauge(
    "recalld_http_requests_in_progress", "Requests being answered", multiprocess_mode="livesum"
)
QUOTA_REFUSALS = Counter("recalld_quota_refusals", "Writes refused because they would exceed a tenant's quota")
SEARCH_INDEX_FALLBACKS = Counter(
    "recalld_search_index_fallbacks",
    "Searches of large scopes whose search index could not be used: searched exactly, or refused",
    ["collection", "outcome"],
)
SECRETS = Counter(
    "recalld_secrets_found",
    "Secrets and personal data in texts that came in, by kind and what became of them",
    ["kind", "policy"],
)
WRONG_KEYS = Counter("recalld_wrong_keys", "Requests with a wrong key or token")


JOB_RUNS = Counter("recalld_job_runs", "Jobs run, by kind and outcome", ["kind", "outcome"])
JOB_SECONDS = Histogram("recalld_job_seconds", "Time of a job", ["kind"], buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30, 120))
JOBS_QUEUED = Gauge(
    "recalld_jobs_queued",
    "Jobs that wait for their time or a worker, as last counted",
    multiprocess_mode="mostrecent",
)
JOB_AGE = Gauge(
    "recalld_job_queue_age_seconds",
    "For how long the job has been due that waits longest, by lane, as last counted",
    ["lane"],
    multiprocess_mode="mostrecent",
)


_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

EMBEDDING_SECONDS = Histogram("recalld_embedding_batch_seconds", "Time of one batch in the model", buckets=_FAST)
EMBEDDING_BATCH = Histogram(
    "recalld_embedding_batch_texts", "Texts in one batch", buckets=(1, 2, 4, 8, 16, 32, 64, 128)
)
EMBEDDING_QUEUE = Gauge(
    "recalld_embedding_queue_texts", "Texts that wait for the model, or are in it", multiprocess_mode="livesum"
)
SEARCH_SECONDS = Histogram("recalld_search_seconds", "Time of a search without its embedding", buckets=_FAST)
RERANK_SECONDS = Histogram(
    "recalld_rerank_seconds",
    "Time of the second stage of a search, waiting included, by outcome",
    ["outcome"],
    buckets=_FAST,
)
COMMIT_SECONDS = Histogram("recalld_store_commit_seconds", "Time of one group commit", buckets=_FAST)
COMMIT_WRITES = Histogram(
    "recalld_store_commit_writes", "Writes in one group", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256)
)
PENDING = Gauge(
    "recalld_pending_embeddings",
    "Records whose embedding is still to be made, as last counted",
    multiprocess_mode="mostrecent",
)
PENDING_AGE = Gauge(
    "recalld_pending_embedding_age_seconds",
    "For how long the record waits for its embedding that waits longest, as last counted",
    multiprocess_mode="mostrecent",
)
STORED_RECORDS = Gauge(
    "recalld_stored_records",
    "Records stored, of all tenants, by collection, as last counted",
    ["collection"],
    multiprocess_mode="mostrecent",
)
STORED_BYTES = Gauge(
    "recalld_stored_bytes",
    "Bytes of these records as documents, without indexes, by collection, as last counted",
    ["collection"],
    multiprocess_mode="mostrecent",
)
TENANTS = Gauge("recalld_tenants", "Tenants that have stored records, as last counted", multiprocess_mode="mostrecent")
BUILD_INFO = Gauge(
    "recalld_build_info",
    "Always 1; the labels say what runs",
    ["version", "engine", "model"],
    multiprocess_mode="mostrecent",
)
RECORDS_LEFT_OUT = Counter(
    "recalld_records_left_out",
    "Stored records that a job skipped or a list left out because their content cannot be handled, by kind",
    ["kind"],
)
RECORDS = Counter("recalld_records_written", "Records written, by type", ["collection"])
LLM_SECONDS = Histogram(
    "recalld_llm_call_seconds",
    "Time of one call of the language model, by outcome",
    ["outcome"],
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
)
LLM_USAGE = Counter(
    "recalld_llm_usage",
    "Calls, tokens and cached tokens of the language model, by tenant and kind",
    ["tenant", "kind"],
)
LLM_TOKENS = Counter("recalld_llm_tokens", "Tokens of the language model's calls, prompts included")


def observe_batch(texts: int, seconds: float) -> None:
    """Counts one batch of the embedding model. `seconds`: its time in the model."""
    EMBEDDING_BATCH.observe(texts)
    EMBEDDING_SECONDS.observe(seconds)


def observe_fallback(collection: str, outcome: str) -> None:
    """Counts one search whose index could not be used. `outcome`: exact or refused."""
    SEARCH_INDEX_FALLBACKS.labels(collection, outcome).inc()


def observe_commit(writes: int, seconds: float) -> None:
    """Counts one group commit of the store."""
    COMMIT_WRITES.observe(writes)
    COMMIT_SECONDS.observe(seconds)


def observe_llm(outcome: str, seconds: float, tokens: int) -> None:
    """Counts one call of the language model."""
    LLM_SECONDS.labels(outcome).observe(seconds)
    LLM_TOKENS.inc(tokens)


_shown_build: list[tuple[str, str, str]] = []


def tell_build(version: str, engine: str, model: str) -> None:
    """Says in the metrics what runs here."""
    build = (version, engine, model)
    while _shown_build and _shown_build[0] != build:  # of an earlier service of this process, as tests start them
        BUILD_INFO.remove(*_shown_build.pop())
    _shown_build[:] = [build]
    BUILD_INFO.labels(*build).set(1)


LivingWorkers: TypeAlias = Callable[[], list[tuple[int, int, bool]]]
"""Returns number and process id of each worker, and whether it accepts connections."""


class _Workers:
    """What there is of each worker: whether it accepts connections, and the figures of its process."""

    def __init__(self, living: LivingWorkers) -> None:
        self._living = living

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics. A worker that ends in the meantime has none."""
        up = GaugeMetricFamily("recalld_worker_ready", "Whether a worker accepts connections", labels=["worker"])
        figures: dict[str, Metric] = {}
        for number, pid, ready in self._living():
            up.add_metric([str(number)], float(ready))
            for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                family = figures.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                for sample in metric.samples:
                    family.add_sample(sample.name, {"worker": str(number)}, sample.value)
        yield up
        yield from figures.values()


_registry: CollectorRegistry = REGISTRY


def share(directory: Path, number: int, living: LivingWorkers) -> None:
    """Makes the metrics of this process a part of those of a service with several workers. `directory`: of their files.
    `number`: of this worker; the one that takes its place later goes on with its counts."""
    global _registry  # noqa: PLW0603 (the library's registry is as global)
    os.environ[DIRECTORY] = str(directory)
    _Value.share(number)
    _registry = CollectorRegistry()
    MultiProcessCollector(_registry, str(directory))  # type: ignore[no-untyped-call]
    _registry.register(_Workers(living))


class _OfAllTenants:
    """The metrics of the service, where those of a tenant are summed: whoever has no key learns of no tenant."""

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics, none of which has the label `tenant`."""
        for metric in _registry.collect():
            if all("tenant" not in sample.labels for sample in metric.samples):
                yield metric
                continue
            sums: defaultdict[tuple[str, frozenset[tuple[str, str]]], float] = defaultdict(float)
            for sample in metric.samples:
                if not sample.name.endswith("_created"):  # the time of the first one of a tenant
                    others = frozenset((name, value) for name, value in sample.labels.items() if name != "tenant")
                    sums[sample.name, others] += sample.value
            whole = Metric(metric.name, metric.documentation, metric.type)
            for (name, labels), value in sums.items():
                whole.add_sample(name, dict(sorted(labels)), value)
            yield whole


def exposition(*, tenants: bool) -> bytes:
    """Returns the metrics of the service as Prometheus text. `tenants`: by tenant where they are counted so."""
    return generate_latest(_registry if tenants else _OfAllTenants())


def collected(metric: Histogram) -> list[Metric]:
    """Returns what a metric has counted, in all workers."""
    if _registry is REGISTRY:
        return [*metric.collect()]
    (name,) = {family.name for family in metric.describe()}
    return [family for family in _registry.collect() if family.name == name]
