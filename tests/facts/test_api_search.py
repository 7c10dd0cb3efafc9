"""Facts by meaning, in both times."""

import pytest

from app.core.clock import rfc3339
from app.embedding.embedder import Embedder
from app.facts.service import FACT
from app.memories.reembed import PendingEmbeddings
from app.memories.repository import PENDING
from app.settings import JobSettings, Settings
from app.storage.scope import SYSTEM
from tests.conftest import Service, Starter, TestParts, TurnedClock
from tests.support.facts import day, found, listed, tell, tell_all
from tests.support.memories import Faulty, Json, eventually, problem

pytestmark = pytest.mark.anyio

FACTS: list[Json] = [
    {"subject": "Ada", "predicate": "lives_in", "object": "Boston", "valid_from": day("2026-05-01")},
    {"subject": "Ada", "predicate": "works_as", "object": "bridge engineer", "trust": 0.5},
    {"subject": "Ben", "predicate": "age", "object": "41"},
    {"subject": "Ada", "predicate": "allergic_to", "object": "peanuts", "agent_id": "b"},
    {"subject": "company", "predicate": "headquartered_in", "object": "Oslo", "user_id": None},
    {"subject": "Zoe", "predicate": "lives_in", "object": "Rome", "user_id": "v"},
]


async def test_facts_are_found_by_meaning_within_their_scope(service: Service) -> None:
    api = service.client
    await tell_all(api, *FACTS)
    assert (await found(api, "Which city is Ada's home?"))[0] == "Boston"
    assert (await found(api, "What is Ada's work?"))[0] == "bridge engineer"
    for fields, wanted in (
        ({}, {"Boston", "bridge engineer", "41", "Oslo"}),
        ({"include_shared": False}, {"Boston", "bridge engineer", "41"}),
        ({"agent_id": None}, {"Boston", "bridge engineer", "41", "peanuts"}),
        ({"user_id": None}, {"Oslo"}),
        ({"subject": "ada"}, {"Boston", "bridge engineer"}),
        ({"predicate": "LIVES_IN"}, {"Boston"}),
        ({"object_type": "literal"}, {"41"}),
        ({"min_trust": 0.6}, {"Boston", "41", "Oslo"}),
        ({"as_of": day("2026-04-01"), "subject": "ada"}, set()),
        ({"mode": "text", "subject": "ada"}, {"Boston", "bridge engineer"}),
    ):
        got = set(await found(api, "lives works age company", **fields))
        assert got <= wanted, fields
        assert got == wanted or fields.get("mode") == "text", fields
    bodies: list[Json] = [{"query": "x"}, {"query": "x", "user_id": "u", "status": "retracted"}]
    for bad in bodies:
        problem(await api.post("/v1/facts/search", json=bad), 422, "invalid")


async def test_a_search_sees_what_was_known_then(service: Service) -> None:
    api, query = service.client, "Where does Ada live?"
    await tell(api, "New York", "2019-01-01")
    then = rfc3339(service.clock.now())
    await tell(api, "Boston", "2026-05-01")
    await tell(api, "Paris", "2026-05-02", trust=0.2)
    assert await found(api, query) == ["Boston"]
    assert await found(api, query, as_of=day("2025-01-01")) == ["New York"]
    assert await found(api, query, known_at=then) == ["New York"]
    assert await found(api, query, known_at=then, as_of=day("2018-01-01")) == []
    assert await found(api, query, status="disputed") == ["Paris"]


async def test_what_the_model_could_not_embed_is_found_by_words_and_embedded_later(
    parts: TestParts, start: Starter, settings: Settings, clock: TurnedClock
) -> None:
    made = watched(parts)
    async with start(settings) as service:
        api = service.client
        await tell(api, "New York", "2019-01-01")
        made[0].failing = True
        await tell(api, "Boston", "2026-05-01")
        assert await found(api, "Boston", mode="text") == ["Boston"]
        (bounded,) = await listed(api, as_of=day("2025-01-01"))
        made[0].failing = False

        async def embedded() -> bool:
            clock.move(seconds=5)
            return not await service.resources.store.count(PENDING, SYSTEM)

        assert await eventually(embedded, 10)
        assert await found(api, "town she calls home", mode="vector") == ["Boston"]
        assert (await api.get(f"/v1/facts/{bounded['fact_id']}")).json() == bounded


async def test_what_remains_of_a_fact_is_not_embedded_again(
    parts: TestParts, start: Starter, settings: Settings, clock: TurnedClock
) -> None:
    made, home = watched(parts), "town she calls home"
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        api, store = service.client, service.resources.store
        await tell(api, "New York", "2019-01-01")
        made[0].failing = True
        await tell(api, "Boston", "2025-05-01")
        assert await store.count(PENDING, SYSTEM) == 1  # Boston alone
        await tell(api, "Oslo", "2026-05-01")
        assert await store.count(PENDING, SYSTEM) == 3  # what remains of Boston has no vector either
        made[0].failing = False
        assert await found(api, home, mode="vector", as_of=day("2020-01-01")) == ["New York"]
        assert await found(api, home, mode="vector", as_of=day("2026-01-01")) == []
        await PendingEmbeddings(store, service.resources.embedder, [FACT], clock).embed_all()
        assert await found(api, home, mode="vector", as_of=day("2026-01-01")) == ["Boston"]
        assert await found(api, home, mode="vector") == ["Oslo"]


def watched(parts: TestParts) -> list[Faulty]:
    """The embedder of each service started, the latest last."""
    made: list[Faulty] = []

    def wrap(embedder: Embedder) -> Embedder:
        made.append(Faulty(embedder))
        return made[-1]

    parts.wrap = wrap
    return made
