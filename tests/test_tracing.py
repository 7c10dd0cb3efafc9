"""Traces and metrics over OTLP: what a collector gets of each kind of work, that it is no word of anybody's, and that
nothing is there of it where no collector is named."""

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.cli._common import JsonFormatter
from app.core import tracing
from app.memories.schemas import MEMORIES
from app.settings import JobSettings, LLMSettings, Settings
from tests.conftest import Service, Starter
from tests.support.collector import Collector, Seen, collecting
from tests.support.collector import collector as collector
from tests.support.learning import end, learned, talk
from tests.support.memories import OWNER, recall, remember
from tests.support.model import Model, scripted_model
from tests.support.server import ROOT, environment, serving

pytestmark = pytest.mark.anyio

SECRETS = ("xylophone", "zanzibar", "quetzalcoatl", "agent-flamingo", "user-ocelot", "walrus")
"""Words of contents, queries, ids, tags and metadata."""
NAMED_OWNER = {"agent_id": "agent-flamingo", "user_id": "user-ocelot"}
CALLER = "0af7651916cd43dd8448eb211c80319c"
CLIENT, SERVER = 3, 2
NAME = MEMORIES.name
RETRIEVAL = f"retrieval {NAME}"


@pytest.fixture
def variables(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=letmein")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


@pytest.fixture
def llm() -> Iterator[Model]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def settings(settings: Settings, llm: Model) -> Settings:
    """Jobs run when a test says so."""
    asked = LLMSettings(base_url=llm.server.url, model="scripted", timeout_seconds=5)
    return settings.model_copy(update={"llm": asked, "jobs": JobSettings(enabled=False)})


@pytest.fixture
async def worked(variables: None, collector: Collector, start: Starter, settings: Settings, llm: Model) -> Collector:
    """What a collector got of a service that did a bit of everything and has stopped."""
    async with start(settings) as service:
        await _everything(service, llm)
    return collector


async def _everything(service: Service, llm: Model) -> None:
    api = service.client
    memory = {
        **NAMED_OWNER,
        "content": "the xylophone is in zanzibar",
        "tags": ["walrus"],
        "metadata": {"walrus": "walrus"},
    }
    (await api.post("/v1/memories", json=memory)).raise_for_status()
    asked = {**NAMED_OWNER, "query": "who is quetzalcoatl of zanzibar?"}
    assert len((await api.post("/v1/memories/search", json=asked)).json()["items"]) == 1
    (await api.post("/v1/context", json=asked)).raise_for_status()
    (await api.get("/v1/memories", params=NAMED_OWNER)).raise_for_status()
    assert (await api.get("/v1/memories/quetzalcoatl?walrus=1")).status_code == 422
    assert (await api.get("/v1/memories/quetzalcoatl")).status_code == 404
    llm.says["memories"] = {"memories": [learned("Ada prefers zanzibar tea.", 1)]}
    await talk(service, "I prefer zanzibar tea.")
    assert (await end(service))["status"] == "succeeded"
    (await api.get("/livez")).raise_for_status()
    assert (await api.get("/v1/walrus")).status_code == 404
    assert (await api.request("PROPFIND", "/v1/memories")).status_code == 405


async def test_a_search_shows_its_parts(worked: Collector) -> None:
    top = worked.root("POST /v1/memories/search")
    parts = worked.tree(top)[RETRIEVAL]
    (embedding,) = parts["search embedding"]
    assert embedding.startswith("embeddings recalld-minilm-1:onnx-int8-")
    steps = {f"scope_facts {NAME}", "search analysis", f"search {NAME}", "search ranking", f"fetch {NAME}"}
    assert steps <= {*parts}
    assert top.kind == SERVER
    assert not top.failed
    assert top.attributes["http.route"] == "/v1/memories/search"
    assert top.attributes["http.response.status_code"] == 200
    (retrieval,) = [span for span in worked.named(RETRIEVAL) if span.parent == top.id]
    assert retrieval.attributes["gen_ai.operation.name"] == "retrieval"
    assert retrieval.attributes["recalld.search.hits"] == 1
    assert {span.trace for span in worked.spans if span.parent == retrieval.id} == {top.trace}


async def test_a_write_shows_its_embedding_and_its_commit(worked: Collector) -> None:
    top = worked.root("POST /v1/memories")
    (embedding,) = [one for one in worked.spans if one.parent == top.id and one.name.startswith("embeddings ")]
    assert embedding.attributes["gen_ai.operation.name"] == "embeddings"
    assert embedding.attributes["recalld.embedding.texts"] == 1
    commits = [
        one for one in worked.spans if one.parent == top.id and one.attributes.get("db.operation.name") == "commit"
    ]
    assert NAME in commits[-1].attributes["recalld.collections"]
    assert commits[-1].attributes["db.system.name"] in ("sqlite", "mongodb")
    assert commits[-1].kind == CLIENT


async def test_a_context_shows_its_sources_and_its_packing(worked: Collector) -> None:
    parts = worked.tree(worked.root("POST /v1/context"))
    assert {"context memories", "context facts", "context procedures", "context packing"} <= {*parts}
    assert "search ranking" in parts["context memories"][RETRIEVAL]


async def test_a_job_is_a_trace_with_the_calls_of_the_model(worked: Collector) -> None:
    (job,) = [one for one in worked.named("job post_conversation") if not one.parent]
    assert job.attributes["recalld.job.outcome"] == "succeeded"
    assert job.attributes["recalld.job.lane"] == "language_model"
    call, look = [one for one in worked.named("chat scripted") if one.trace == job.trace]
    assert look.attributes["gen_ai.request.model"] == "scripted"
    assert call.attributes["gen_ai.request.model"] == "scripted"
    assert call.attributes["gen_ai.provider.name"] == "openai"
    assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert call.kind == CLIENT
    assert any(one.name.startswith("commit") and one.trace == job.trace for one in worked.spans)


async def test_a_refused_request_is_no_fault_of_the_service_and_names_the_error(worked: Collector) -> None:
    refused = [one for one in worked.named("GET /v1/memories/{memory_id}") if not one.parent]
    said = [(one.attributes["http.response.status_code"], one.attributes["error.type"], one.failed) for one in refused]
    assert sorted(said) == [(404, "not_found", False), (422, "invalid", False)]


async def test_spans_are_named_as_the_conventions_say(worked: Collector) -> None:
    """Of the version that they name, but for `url.path`, which holds ids."""
    (unmatched,) = [one for one in worked.named("GET") if not one.parent]
    assert "http.route" not in unmatched.attributes
    other = worked.root("HTTP /v1/memories")
    assert other.attributes["http.request.method"] == "_OTHER"
    assert other.attributes["http.request.method_original"] == "PROPFIND"
    sizes = {one.attributes.get("db.operation.batch.size") for one in worked.spans if one.name.startswith("commit")}
    assert 1 not in sizes
    assert b"https://opentelemetry.io/schemas/1.33.0" in b"".join(worked.bodies)


async def test_nothing_tells_a_word_of_what_is_stored_asked_or_whose_it_is(worked: Collector) -> None:
    sent = b"\n".join(worked.bodies).decode("utf-8", "replace").lower()
    assert "post_conversation" in sent
    assert [word for word in SECRETS if word in sent] == []
    assert not worked.named("GET /livez")


async def test_metrics_are_those_of_the_metrics_route(worked: Collector) -> None:
    searches = {"method": "POST", "route": "/v1/memories/search"}
    # one for each status: other tests of this process may have searched, too
    counts = [one for one in worked.metrics["recalld_http_requests_total"] if searches.items() <= one.labels.items()]
    (seconds,) = [one for one in worked.metrics["recalld_http_request_seconds"] if one.labels == searches]
    assert sum(one.value for one in counts) == seconds.count >= 1
    assert sum(seconds.buckets) == seconds.count
    assert len(seconds.buckets) == len(seconds.bounds) + 1
    assert worked.metrics["recalld_http_requests_in_progress"][0].value == 0
    assert all(headers["api-key"] == "letmein" for headers in worked.headers)


async def test_a_resource_says_which_service_and_version_it_is(worked: Collector) -> None:
    told = worked.spans[0].resource
    assert told["service.name"] == "recalld"
    assert told["service.version"]
    assert told["service.instance.id"]


def sampled(seen: Collector, trace: str) -> list[Seen]:
    return [span for span in seen.spans if span.trace == trace]


@pytest.mark.parametrize(("flag", "kept"), [("01", True), ("00", False)])
async def test_a_caller_s_trace_goes_on_and_so_does_its_sampling(
    flag: str, kept: bool, variables: None, collector: Collector, start: Starter, settings: Settings
) -> None:
    async with start(settings) as service:
        headers = {"traceparent": f"00-{CALLER}-b7ad6b7169203331-{flag}"}
        lost = await service.client.get("/v1/memories/nowhere", headers=headers)
        assert lost.json()["trace_id"] == CALLER  # also where the sampler keeps nothing: the caller may
    assert bool(sampled(collector, CALLER)) is kept
    assert all(span.parent == "b7ad6b7169203331" for span in collector.named("GET /v1/memories/{memory_id}"))


async def test_what_an_mcp_tool_asks_lies_in_the_trace_of_its_request(
    variables: None, collector: Collector, start: Starter, settings: Settings
) -> None:
    async with start(settings) as service:
        await remember(service.client, "tea")
        call = {"name": "recall", "arguments": {**OWNER, "query": "tea"}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        headers = {"accept": "application/json, text/event-stream", "traceparent": f"00-{CALLER}-b7ad6b7169203331-01"}
        (await service.client.post("/mcp", json=asked, headers=headers)).raise_for_status()
    (outer,) = [span for span in collector.spans if span.parent == "b7ad6b7169203331"]
    assert outer.name == "POST /mcp"
    (inner,) = collector.named("POST /v1/memories/search")
    assert (inner.trace, inner.parent) == (CALLER, outer.id)


async def test_a_sampler_of_the_variables_is_used_and_the_service_name(
    variables: None, collector: Collector, start: Starter, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "memory-of-acme")
    async with start(settings) as service:
        await remember(service.client, "tea")
        headers = {"traceparent": f"00-{CALLER}-b7ad6b7169203331-01"}
        (await service.client.get("/v1/memories", headers=headers)).raise_for_status()
    assert {span.trace for span in collector.spans} == {CALLER}
    assert {span.resource["service.name"] for span in collector.spans} == {"memory-of-acme"}


async def test_a_fault_is_marked_and_its_message_stays_here(
    variables: None, collector: Collector, start: Starter, settings: Settings
) -> None:
    async with start(settings) as service:
        await remember(service.client, "tea")

        async def broken(*given: Any) -> Any:
            raise ValueError("quetzalcoatl")

        vars(service.resources.store)["search"] = broken
        answer = await service.client.post("/v1/memories/search", json={**OWNER, "query": "tea"})
        assert answer.status_code == 500
        assert len(answer.json()["trace_id"]) == 32
    top = collector.root("POST /v1/memories/search")
    assert top.failed
    assert top.attributes["error.type"] == "internal_error"
    (within,) = [one for one in collector.named(RETRIEVAL) if one.trace == top.trace]
    assert (within.failed, within.attributes["error.type"]) == (True, "ValueError")
    assert "quetzalcoatl" not in b"".join(collector.bodies).decode("utf-8", "replace")


async def test_log_lines_name_trace_and_span(
    variables: None, start: Starter, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, Any]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(orjson.loads(JsonFormatter().format(record)))

    caplog.set_level(logging.INFO, "recalld.request")
    keep = Keep()
    logging.getLogger("recalld.request").addHandler(keep)
    try:
        async with start(settings) as service:
            headers = {"traceparent": f"00-{CALLER}-b7ad6b7169203331-01"}
            (await service.client.get("/v1/memories", headers=headers)).raise_for_status()
    finally:
        logging.getLogger("recalld.request").removeHandler(keep)
    (line,) = lines
    assert line["trace_id"] == CALLER
    assert len(line["span_id"]) == 16


# --- Off --------------------------------------------------------------------------------------------------------------


OFF: tuple[dict[str, str], ...] = (
    {},
    {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
    {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"},
    {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
)


def test_where_it_is_off_nothing_of_it_is_imported(tmp_path: Path) -> None:
    """Beside the API, which mcp and FastAPI import in any case."""
    code = f"""
import os, sys
from app import main
from app.core import tracing
for given in {OFF!r}:
    os.environ.update(given)
    tracing.begin("1")
    print(tracing.tracing(), tracing.root("x") is tracing.span("y") is tracing.NO_SPAN)
    for name in given:
        del os.environ[name]
parts = ("opentelemetry.sdk", "opentelemetry.exporter", "google.protobuf", "requests", "app.core.otel")
print([name for name in sys.modules if name.startswith(parts)])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False True"] * len(OFF) + ["[]"]
    assert done.stderr.count("only http/protobuf") == 2  # for traces and for metrics


def test_without_the_extra_a_warning_says_how_to_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None; from app.core import tracing; tracing.begin('1'); "
        "print(tracing.tracing())"
    )
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path, **given), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
    assert "scripts/extra otel" in done.stderr


async def test_where_it_is_off_problems_and_spans_are_as_ever(start: Starter, settings: Settings) -> None:
    async with start(settings) as service:
        assert "trace_id" not in (await service.client.get("/v1/memories/nowhere")).json()
        await remember(service.client, "tea")
        await recall(service.client, "tea")
        assert not tracing.tracing()


def test_a_service_that_stops_sends_what_is_left_and_one_without_its_collector_stops_in_time(tmp_path: Path) -> None:
    slow = {"OTEL_BSP_SCHEDULE_DELAY": "60000"}
    with collecting() as seen:
        with serving(tmp_path / "data", OTEL_EXPORTER_OTLP_ENDPOINT=seen.url, **slow) as server:
            server.client.post("/v1/memories", json={**OWNER, "content": "tea"}).raise_for_status()
            assert server.stop() == 0
        lines = [line for line in server.log() if line.get("route") == "/v1/memories"]
        assert [line["trace_id"] for line in lines] == [seen.root("POST /v1/memories").trace]
        assert seen.metrics["recalld_http_requests_total"]
        url = seen.url
    with serving(tmp_path / "data", OTEL_EXPORTER_OTLP_ENDPOINT=url, **slow) as server:
        server.client.post("/v1/memories", json={**OWNER, "content": "coffee"}).raise_for_status()
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 30
    assert "coffee" not in server.log_text()
    assert ROOT.is_dir()
