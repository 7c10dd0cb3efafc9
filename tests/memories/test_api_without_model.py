"""While the embedding model does not answer, every hybrid search goes by words and says so."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import httpx
import pytest

from app.context.schemas import ContextRequest
from app.context.source import SourceRequest, search
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.memories.schemas import MEMORIES
from app.settings import JobSettings, Settings
from app.storage.schema import EVERYTHING
from app.storage.scope import Scope
from tests.conftest import Service, Starter, TestParts
from tests.support.context import ask, names, problem_free
from tests.support.memories import OWNER, Faulty, Json, found, problem, recall, remember
from tests.support.procedures import learn

pytestmark = pytest.mark.anyio

QUERY = "violin in Boston"
SEARCHES = {
    "memories": ("/v1/memories/search", "query"),
    "facts": ("/v1/facts/search", "query"),
    "actions": ("/v1/actions/search", "query"),
    "procedures": ("/v1/procedures/search", "situation"),
}


class Hanging(Faulty):
    """Never answers while it is told to hang."""

    hanging = False

    async def embed_query(self, text: str) -> Vectors:
        if self.hanging:
            await asyncio.Event().wait()
        return await super().embed_query(text)


@pytest.fixture
def embedder(service: Service) -> Hanging:
    assert isinstance(service.resources.embedder, Hanging)
    return service.resources.embedder


@pytest.fixture
async def service(start: Starter, settings: Settings, parts: TestParts) -> AsyncIterator[Service]:
    parts.wrap = Hanging
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def stored(api: httpx.AsyncClient) -> None:
    """One of each kind that a search can find by words and by meaning, and one that only meaning can find."""
    for content in ("plays the violin in Boston", "enjoys a string instrument"):
        await remember(api, content)
        fact = {**OWNER, "subject": "Ada", "predicate": "likes", "object": content, "cardinality": "many"}
        assert (await api.post("/v1/facts", json=fact)).status_code == 201
        act = {**OWNER, "action_type": "concert", "content": content}
        assert (await api.post("/v1/actions", json=act)).status_code == 201
        await learn(api, name=content, trigger=content)


Ask = Callable[..., Awaitable[Json]]


@pytest.fixture
def searched(api: httpx.AsyncClient) -> Ask:
    async def ask_for(kind: str, **fields: object) -> Json:
        path, asked = SEARCHES[kind]
        answer = await api.post(path, json={**OWNER, asked: QUERY, **fields})
        assert answer.status_code == 200, answer.text
        body: Json = answer.json()
        return body

    return ask_for


@pytest.mark.parametrize("kind", SEARCHES)
async def test_a_hybrid_search_goes_by_words_and_by_both_again_when_the_model_is_back(
    kind: str, api: httpx.AsyncClient, embedder: Hanging, searched: Ask
) -> None:
    await stored(api)
    both = await searched(kind)
    assert (both["mode_used"], both["warnings"], len(both["items"])) == ("hybrid", [], 2)
    embedder.failing = True
    words = await searched(kind)
    assert words["mode_used"] == "text"
    (warning,) = words["warnings"]
    assert warning["code"] == "embedding_unavailable"
    assert "words alone" in warning["detail"]
    assert len(words["items"]) == 1
    assert set(words["took_ms"]) == {"embed", "search", "total"}
    embedder.failing = False
    again = await searched(kind)
    assert (again["mode_used"], again["warnings"], again["items"]) == ("hybrid", [], both["items"])


async def test_what_holds_now_moves_no_hit_of_a_search_that_went_by_words(
    api: httpx.AsyncClient, embedder: Hanging
) -> None:
    old, new = "I live in Oslo.", "We have moved, and from this spring on we live in Bergen near the harbour."
    for content, since, home in ((old, "2026-01-05T00:00:00Z", "Oslo"), (new, "2026-04-02T00:00:00Z", "Bergen")):
        await remember(api, content, event_at=since)
        named = {"subject": "@user", "predicate": "lives_in", "object": home, "valid_from": since}
        assert (await api.post("/v1/facts", json={**OWNER, **named})).status_code == 201
    by_words = await recall(api, "Where do I live?", mode="text")
    assert [item["memory"]["content"] for item in by_words["items"]] == [old, new]
    both = await recall(api, "Where do I live?")
    assert [item["memory"]["content"] for item in both["items"]] == [new, old]
    embedder.failing = True
    degraded = await recall(api, "Where do I live?")
    assert degraded["mode_used"] == "text"
    assert degraded["items"] == by_words["items"]


@pytest.mark.parametrize("kind", ["memories", "facts"])
async def test_a_search_by_words_does_not_ask_the_model_and_lacks_nothing(
    kind: str, api: httpx.AsyncClient, embedder: Hanging, searched: Ask
) -> None:
    await stored(api)
    embedder.failing = True
    words = await searched(kind, mode="text")
    assert (words["mode_used"], words["warnings"], len(words["items"])) == ("text", [], 1)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("memories", {"mode": "vector"}),
        ("memories", {"min_similarity": 0.5}),
        ("memories", {"min_similarity": 0.5, "mode": "text"}),
        ("memories", {"min_score": 0.1}),
        ("facts", {"mode": "vector"}),
    ],
)
async def test_a_search_that_needs_the_vector_is_refused(
    kind: str, fields: Json, api: httpx.AsyncClient, embedder: Hanging
) -> None:
    await stored(api)
    embedder.failing = True
    path, asked = SEARCHES[kind]
    answer = await api.post(path, json={**OWNER, asked: QUERY, **fields})
    problem(answer, 503, "embedding_unavailable")
    assert int(answer.headers["retry-after"]) >= 1


async def test_what_is_written_during_the_outage_is_found_by_its_words(
    api: httpx.AsyncClient, embedder: Hanging
) -> None:
    embedder.failing = True
    made = await remember(api, "keeps bees on the roof")
    assert made["embedding"]["status"] == "pending"
    assert await found(api, "who keeps bees?") == ["keeps bees on the roof"]


async def test_filters_hold_during_the_outage(api: httpx.AsyncClient, embedder: Hanging) -> None:
    await remember(api, "plays the violin", tags=["music"], importance=0.9)
    await remember(api, "broke the violin", importance=0.1)
    await remember(api, "tunes the violin", user_id="another")
    embedder.failing = True
    assert await found(api, "violin", tags=["music"]) == ["plays the violin"]
    assert await found(api, "violin", min_importance=0.5) == ["plays the violin"]
    assert sorted(await found(api, "violin")) == ["broke the violin", "plays the violin"]


async def test_of_an_empty_scope_nothing_is_lacking(api: httpx.AsyncClient, embedder: Hanging) -> None:
    embedder.failing = True
    body = await recall(api, "violin")
    assert (body["items"], body["mode_used"], body["warnings"]) == ([], "hybrid", [])


async def test_a_context_warns_once_and_names_no_section_as_unread(api: httpx.AsyncClient, embedder: Hanging) -> None:
    await stored(api)
    everything: Json = {"include": ["memories", "facts", "procedures", "episodes"]}
    assert problem_free(await ask(api, QUERY, **everything))["warnings"] == []
    embedder.failing = True
    body = problem_free(await ask(api, QUERY, **everything))
    assert [warning["code"] for warning in body["warnings"]] == ["embedding_unavailable"]
    assert names(body) == ["memories", "facts", "procedures"]  # what was done says the same as the memory


async def test_a_context_leaves_time_for_the_words_where_the_model_hangs(
    start: Starter, settings: Settings, parts: TestParts
) -> None:
    parts.tuning = replace(parts.tuning, section_seconds=0.1)
    parts.wrap = Hanging
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        await remember(service.client, "plays the violin")
        embedder: Embedder = service.resources.embedder
        assert isinstance(embedder, Hanging)
        embedder.hanging = True
        body = ContextRequest.model_validate({**OWNER, "query": "violin"})
        asked = SourceRequest(body, Scope("default"), service.resources, service.clock.now(), budget=4000)
        looked = await search(asked, MEMORIES, EVERYTHING, 5)
        assert [hit.doc["content"] for hit in looked.hits] == ["plays the violin"]
        assert [warning["code"] for warning in looked.warnings] == ["embedding_unavailable"]
