"""Entries that an earlier version made catch up in the background with the rules of this one."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from app.core.tuning import Tuning
from app.embedding.embedder import Embedder
from app.errors import StoreUnavailable
from app.facts.schemas import FACTS
from app.jobs.models import EMBED_PENDING
from app.lifespan import EMBEDDABLE
from app.memories import reindex
from app.memories.models import MEMORIES, Source, StoredEmbedding
from app.memories.records import new_memory, passage
from app.memories.reindex import INDEXING, REVISION, Reindex
from app.settings import JobSettings, Settings
from app.storage.changes import Change, Committed, IndexEntry, Insert, Update
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Doc, Eq
from app.storage.scope import ANY_AGENT, SYSTEM, Partition
from app.storage.search import Columns, SearchQuery
from app.storage.text import LONG, SAID_BY_USER, index_text, term_ids, terms
from tests.conftest import Service, Starter, TestParts
from tests.support.memories import PAIR, Faulty, eventually, found, recall
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio

OLD = replace(MEMORIES, searched=replace(MEMORIES.spec, flags=None, flag_fields=()))
"""As an earlier version declared it: it writes no flags of the document."""
LONG_TEXT = "We talked about the weather and the garden at length. " * 40 + "The code of the safe is 4711."


@pytest.fixture
async def service(settings: Settings, start: Starter, anyio_backend: str) -> AsyncIterator[Service]:
    """One that runs no jobs."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def write_as_before(service: Service, *memories: Doc) -> list[str]:
    """Memories with entries of an earlier version; their ids."""
    embedder, store = service.resources.embedder, service.resources.store
    made: list[Change] = []
    for given in memories:
        fields = MEMORIES.as_record({**PAIR, "memory_type": "fact", "importance": 0.5, **given})
        source: Source = {"origin": "message"}
        doc = new_memory(fields, source | fields.get("source", {}), "2026-06-01T12:00:00.000Z", unique=False)
        info: StoredEmbedding = {"model": embedder.name, "dim": embedder.dim, "status": "ready"}
        doc |= {"tenant_id": "default", "embedding": info}
        del doc["standing"]
        (vector,) = await embedder.embed_texts([doc["content"]])
        made.append(Insert(OLD, doc, IndexEntry(index_text(doc["content"], doc["context"]), vector, embedder.name)))
    await store.commit(made)
    return [change.doc["memory_id"] for change in made if isinstance(change, Insert)]


def catching_up(service: Service, store: Store | None = None, embedder: Embedder | None = None) -> Reindex:
    held = service.resources
    return Reindex(store or held.store, embedder or held.embedder, EMBEDDABLE, held.clock)


async def columns(service: Service, query: str = "tea", **more: Any) -> Columns:
    held = service.resources
    vector, words = await held.embedder.embed_query(query), term_ids(terms(query))
    where = more.get("where", EVERYTHING)
    return await held.store.search(
        MEMORIES, SearchQuery("default", (Partition(ANY_AGENT, "u"),), where, vector, held.embedder.name, words)
    )


async def test_a_memory_is_found_by_its_tag_after_the_walk(service: Service) -> None:
    (memory_id,) = await write_as_before(service, {"content": "She plays the cello", "tags": ["orchestra", "hobby"]})
    await write_as_before(service, {"content": "Rain is likely"})
    assert await found(service.client, "orchestra", mode="text") == []
    before = (await service.client.get(f"/v1/memories/{memory_id}")).json()
    vectors = (await columns(service)).cosine.tolist()
    assert await catching_up(service).catch_up(1_000) == 2
    assert await found(service.client, "orchestra", mode="text") == ["She plays the cello"]
    assert (await service.client.get(f"/v1/memories/{memory_id}")).json() == before, "the version stays"
    assert sorted((await columns(service)).cosine.tolist()) == pytest.approx(sorted(vectors)), "nothing was embedded"


async def test_a_store_at_revision_1_has_its_emoji_indexed_and_nothing_embedded(service: Service) -> None:
    """Long texts, whose windows are embedded, were rewritten by revision 1."""
    store = service.resources.store
    await catching_up(service).catch_up(1_000)
    await store.commit([Update(INDEXING, SYSTEM, reindex.SEARCH, set={"revision": 1, "target": 1, "collection": None})])
    api = service.client
    texts = ("The release is out 🎉", "Rain is likely", LONG_TEXT)
    for text in texts:
        made = (await api.post("/v1/memories", json={**PAIR, "content": text})).json()
        without = index_text(text.replace("🎉", ""))
        await store.commit([Update(MEMORIES, "default", made["memory_id"], text=without)])
    fact = {**PAIR, "subject": "Ada", "predicate": "likes", "object": "🎉"}
    made = (await api.post("/v1/facts", json=fact)).json()
    await store.commit([Update(FACTS, "default", made["fact_id"], text=index_text("Ada likes"))])
    assert await found(api, "🎉", mode="text") == []
    embedder = Faulty(service.resources.embedder)
    assert await catching_up(service, embedder=embedder).catch_up(1_000) == 4, "all, since initials are terms"
    assert embedder.calls == []
    assert await found(api, "🎉", mode="text") == [texts[0]]
    facts = (await api.post("/v1/facts/search", json={**PAIR, "query": "🎉", "mode": "text"})).json()["items"]
    assert [item["fact"]["object"] for item in facts] == ["🎉"]
    assert not await catching_up(service).unfinished()


async def test_a_store_at_revision_2_has_its_identifiers_indexed_and_stays_searchable(service: Service) -> None:
    store, api = service.resources.store, service.client
    await catching_up(service).catch_up(1_000)
    await store.commit([Update(INDEXING, SYSTEM, reindex.SEARCH, set={"revision": 2, "target": 2, "collection": None})])
    texts = ("Thermostat: 10.0.4.117", "The door sensor uses 10.0.4.71", "Rain 🎉")
    for text in texts:
        made = (await api.post("/v1/memories", json={**PAIR, "content": text})).json()
        words = term_ids(terms(text))
        ids, counts = np.unique(words, return_counts=True)
        before = replace(index_text(text), ids=ids, counts=counts.astype(np.uint8))
        await store.commit([Update(MEMORIES, "default", made["memory_id"], text=before)])
    assert set(await found(api, "10.0.4.117", mode="text")) == set(texts[:2])
    assert await catching_up(service).catch_up(1_000) == 2
    assert (await found(api, "who uses 10.0.4.117?", mode="text"))[0] == texts[0]
    assert not await catching_up(service).unfinished()


async def test_a_store_at_revision_3_has_its_initials_indexed_and_stays_searchable(service: Service) -> None:
    store, api = service.resources.store, service.client
    await catching_up(service).catch_up(1_000)
    await store.commit([Update(INDEXING, SYSTEM, reindex.SEARCH, set={"revision": 3, "target": 3, "collection": None})])
    texts = ("Non-disclosure agreement with Quill", "The function parseUserName", "Tea")
    for text in texts:
        made = (await api.post("/v1/memories", json={**PAIR, "content": text})).json()
        ids, counts = np.unique(term_ids(terms(text)), return_counts=True)
        before = replace(index_text(text), ids=ids, counts=counts.astype(np.uint8))
        await store.commit([Update(MEMORIES, "default", made["memory_id"], text=before)])
    assert await found(api, "NDA", mode="text") == await found(api, "user name", mode="text") == []
    assert await found(api, "Quill", mode="text") == [texts[0]]
    assert await catching_up(service).catch_up(1_000) == 2
    assert await found(api, "NDA", mode="text") == [texts[0]]
    assert await found(api, "user name", mode="text") == [texts[1]]
    assert not await catching_up(service).unfinished()


async def test_flags_and_standing_are_filled_in(service: Service) -> None:
    await write_as_before(
        service,
        {"content": "I like tea", "source": {"speaker": "user"}, "memory_type": "message"},
        {"content": "Speak German", "pinned": True},
    )
    assert not (await columns(service)).flags.any()
    assert not (await columns(service, where=Eq("standing", "instruction"))).matched.any()
    await catching_up(service).catch_up(1_000)
    assert sorted((await columns(service)).flags.tolist()) == [0, SAID_BY_USER]
    assert np.count_nonzero((await columns(service, where=Eq("standing", "instruction"))).matched) == 1


async def test_the_further_windows_of_a_long_text_are_embedded(service: Service) -> None:
    await write_as_before(service, {"content": LONG_TEXT}, {"content": "Rain is likely"})
    query = "what is the code of the safe?"
    before = await columns(service, query)
    await catching_up(service).catch_up(1_000)
    after = await columns(service, query)
    assert after.cosine.max() > before.cosine.max() + 0.2
    assert (after.flags & LONG != 0).tolist().count(True) == 1
    assert all(finding.ok for finding in await service.resources.store.check(deep=True))


async def test_the_walk_goes_on_where_it_was_and_ends(service: Service) -> None:
    for user in ("u", "v", "w"):
        await write_as_before(service, *({"content": f"{n} cups", "tags": ["tea"], "user_id": user} for n in range(5)))
    store = service.resources.store
    rewritten = [await catching_up(service).catch_up(1) for _ in range(4)]
    assert sum(rewritten) == 15
    assert max(rewritten) <= 5, "a page is of one pair"
    note = await store.get(INDEXING, SYSTEM, reindex.SEARCH)
    assert note is not None
    assert (note["revision"], note["done"]) == (REVISION, 15)
    assert await catching_up(service).catch_up(1_000) == 0
    for user in ("u", "v", "w"):
        assert len(await found(service.client, "tea", mode="text", user_id=user)) == 5


async def test_a_crash_in_the_middle_leaves_nothing_out(service: Service) -> None:
    await write_as_before(service, *({"content": f"{n} cups", "tags": ["tea"]} for n in range(70)))

    class Dying(Wrapped):
        left = 2

        async def commit(self, changes: Sequence[Change]) -> Committed:
            self.left -= 1
            if self.left < 0:
                raise StoreUnavailable("killed by a test")
            done: Committed = await self._store.commit(changes)
            return done

    with pytest.raises(StoreUnavailable):
        await catching_up(service, cast(Store, Dying(service.resources.store))).catch_up(1_000)
    text = {"mode": "text", "top_k": 100, "record_access": False}  # a count on its way would differ from the index
    assert len(await found(service.client, "tea", **text)) == 64
    await catching_up(service).catch_up(1_000)
    assert len(await found(service.client, "tea", **text)) == 70
    assert all(finding.ok for finding in await service.resources.store.check(deep=True))


async def test_without_the_model_the_walk_waits_at_a_long_text(service: Service) -> None:
    await write_as_before(service, {"content": LONG_TEXT, "tags": ["garden talk"]})
    embedder = Faulty(service.resources.embedder)
    embedder.failing = True
    assert await catching_up(service, embedder=embedder).catch_up(1_000) == 0
    assert (await reindex.finding(service.resources.store)).detail.startswith(f"0 of {REVISION}")
    embedder.failing = False
    assert await catching_up(service, embedder=embedder).catch_up(1_000) == 1
    assert (await reindex.finding(service.resources.store)).detail == str(REVISION)


async def test_a_memory_that_is_changed_meanwhile_keeps_the_change(service: Service) -> None:
    (memory_id,) = await write_as_before(service, {"content": "She plays the cello", "tags": ["orchestra"]})

    class Changing(Wrapped):
        async def commit(self, changes: Sequence[Change]) -> Committed:
            if any(getattr(change, "text", None) for change in changes):
                patched = await service.client.patch(f"/v1/memories/{memory_id}", json={"tags": ["band"]})
                assert patched.status_code == 200
            done: Committed = await self._store.commit(changes)
            return done

    await catching_up(service, cast(Store, Changing(service.resources.store))).catch_up(1_000)
    assert await found(service.client, "band", mode="text") == ["She plays the cello"]
    assert await found(service.client, "orchestra", mode="text") == []


async def test_a_running_service_catches_up_by_itself(
    settings: Settings, start: Starter, service: Service, parts: TestParts
) -> None:
    await write_as_before(service, {"content": "She plays the cello", "tags": ["orchestra"]})
    parts.tuning = Tuning(job_seconds={EMBED_PENDING: 1})
    async with start(settings) as running:

        async def by_tag() -> list[str]:
            return await found(running.client, "orchestra", mode="text")

        assert await eventually(by_tag, seconds=60) == ["She plays the cello"]


async def test_an_import_begins_the_walk_anew(service: Service) -> None:
    await catching_up(service).catch_up(1)
    assert (await reindex.finding(service.resources.store)).detail == str(REVISION)
    await reindex.forget(service.resources.store)
    await write_as_before(service, {"content": "She plays the cello", "tags": ["orchestra"]})
    assert await catching_up(service).catch_up(1_000) == 1
    assert len((await recall(service.client, "orchestra", mode="text"))["items"]) == 1


def test_tags_are_terms_of_a_memory() -> None:
    doc = new_memory(
        {"content": "tea", "memory_type": "fact", "importance": 0.5, "tags": ["green tea", "the"]},
        {},
        "x",
        unique=False,
    )
    text = passage(doc).indexed()
    assert text.length == 4
    assert set(text.ids.tolist()) == set(term_ids(["tea", "green", "the"]).tolist())
