"""Books that an earlier version kept apart by their spelling become one, by a job that can be undone."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.core.clock import rfc3339
from app.facts.keys import group_of
from app.facts.schemas import FACT_GROUPS, FACTS, RULE
from app.jobs.queue import Job
from app.settings import JobSettings, Settings
from app.storage.changes import Change, Delete, Insert, Update
from app.storage.schema import value_at
from app.storage.scope import SYSTEM
from app.storage.text import normalise_content
from tests.conftest import Service, Starter
from tests.support.facts import HOME, day, found, listed, objects, spans, tell
from tests.support.memories import PAIR, Json
from tests.support.operations import operation, rows_of, undo, work

pytestmark = pytest.mark.anyio

JOB = "merge_predicates"


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def as_before(service: Service, **spellings: str) -> None:
    """Stores facts as an earlier version did: compared without regard to case, width and spaces alone, in a group for
    each spelling. `spellings`: what stands in the store now, and how it was spelled then."""
    store = service.resources.store
    changes: dict[str, Change] = {}
    for fact in await rows_of(service, "facts"):
        predicate: str = spellings.get(fact["predicate"]) or fact["predicate"]
        key = normalise_content(predicate)
        group_id = group_of(fact["agent_id"], fact["user_id"], fact["subject_key"], key)
        fields = {"predicate": predicate, "predicate_key": key, "group_id": group_id}
        changes[fact["fact_id"]] = Update(FACTS, fact["tenant_id"], fact["fact_id"], set=fields)
        old = await store.get(FACT_GROUPS, fact["tenant_id"], fact["group_id"])
        assert old is not None
        names = ("tenant_id", "agent_id", "user_id", "known", "usual", "version", "created_at", "updated_at")
        changes[f"{fact['tenant_id']} old {fact['group_id']}"] = Delete(
            FACT_GROUPS, fact["tenant_id"], fact["group_id"]
        )
        group = FACT_GROUPS.as_record({name: value_at(old, name) for name in names} | {"group_id": group_id})
        changes[f"{fact['tenant_id']} new {group_id}"] = Insert(FACT_GROUPS, group)
    await store.commit(list(changes.values()))


async def two_books(service: Service, **fields: Any) -> None:
    """Ada lives in New York, by one spelling; she has moved to Boston, by another."""
    await tell(service.client, "New York", "2019-01-01", **fields)
    await tell(service.client, "Boston", "2026-05-01", predicate="dwells", **fields)
    await as_before(service, dwells="livesIn")


async def merge(service: Service, headers: dict[str, str] | None = None, **body: Any) -> Json:
    asked = await service.client.post(f"/v1/jobs/{JOB}/run", json=body, headers=headers)
    assert asked.status_code == 202, asked.text
    await work(service)
    return await operation(service.client, asked.json()["operation_id"], headers)


async def facts(service: Service) -> list[Json]:
    """All documents, without what an undo leaves changed: the count of changes, and that a group was looked at."""
    left_out = ("version", "updated_at", "rule", "known")
    docs = [*await rows_of(service, "facts"), *await rows_of(service, "fact_groups")]
    return [{name: value for name, value in doc.items() if name not in left_out} for doc in docs]


async def test_an_earlier_book_is_found_by_its_own_spelling_before_the_merge(service: Service) -> None:
    await two_books(service)
    assert await objects(service.client, predicate="lives_in") == ["New York"]
    assert await objects(service.client, predicate="livesIn") == ["Boston"]
    assert await found(service.client, "home", predicate="lives_in") == ["New York"]


async def test_two_books_become_one_by_the_rules_and_apart_again_by_an_undo(service: Service) -> None:
    api = service.client
    await two_books(service)
    then = rfc3339(service.clock.now())
    before = await facts(service)
    dry = await merge(service, dry_run=True)
    assert (dry["status"], dry["can_undo"]) == ("succeeded", False)
    assert await facts(service) == before
    done = await merge(service)
    for over in (dry, done):
        result = over["result"]
        assert (result["books"], result["facts"]) == (1, 2)
        (merged,) = result["merges"]
        assert merged == {"predicate": "lives_in", "spellings": ["lives_in", "livesIn"], "books": 1}
    assert (done["status"], done["can_undo"]) == ("succeeded", True)
    assert await spans(api) == [("New York", "2019-01-01", "2026-05-01"), ("Boston", "2026-05-01", None)]
    for spelling in ("lives_in", "livesIn", "lives in"):
        assert await objects(api, predicate=spelling) == ["Boston"]
        assert await objects(api, predicate=spelling, as_of=day("2025-01-01")) == ["New York"]
        assert await objects(api, predicate=spelling, known_at=then) == ["Boston", "New York"]
    assert {fact["predicate"] for fact in await listed(api, timeline=True, status="any")} == {"lives_in"}
    moved = await tell(api, "Rome", "2026-06-01", predicate="LIVES-IN")
    assert (await api.delete(f"/v1/facts/{moved['fact_id']}")).status_code == 204
    await merge(service)
    assert await objects(api, as_of=day("2025-01-01")) == ["New York"]


async def test_an_undo_restores_both_books(service: Service) -> None:
    await two_books(service)
    before = await facts(service)
    done = await merge(service)
    undone = await undo(service, done["operation_id"])
    assert (undone["status"], undone["result"]) == ("succeeded", {"restored": 1, "not_restored": 0})
    kept = [doc for doc in await facts(service) if doc.get("group_id") in {one["group_id"] for one in before}]
    assert [one for one in kept if one in before] == before
    assert await objects(service.client, predicate="lives_in") == ["New York"]
    assert await objects(service.client, predicate="livesIn") == ["Boston"]
    again = await merge(service)
    assert again["result"]["books"] == 0, "what was taken apart stays apart"
    assert await objects(service.client, predicate="livesIn") == ["Boston"]


async def test_the_schedule_merges_once_in_every_tenant_and_is_idle_then(service: Service) -> None:
    api, keys = service.client, [await service.key(tenant, "read,write,admin") for tenant in ("one", "two")]
    for key in keys:
        for predicate, object, since in (("lives_in", "New York", "2019-01-01"), ("dwells", "Boston", "2026-05-01")):
            body = {**HOME, "predicate": predicate, "object": object, "valid_from": day(since)}
            assert (await api.post("/v1/facts", json=body, headers=key)).status_code == 201
    await as_before(service, dwells="livesIn")
    await service.resources.store.commit([Job(JOB, SYSTEM).enqueue(service.clock.now())])
    assert await work(service) == 3, "one for all, one for each tenant"
    for key in keys:
        (over,) = (await api.get("/v1/operations", headers=key)).json()["items"]
        assert (over["kind"], over["status"], over["result"]["books"]) == (JOB, "succeeded", 1)
        params = {**PAIR, "predicate": "lives in"}
        assert [one["object"] for one in (await api.get("/v1/facts", params=params, headers=key)).json()["items"]] == [
            "Boston"
        ]
    await service.resources.store.commit([Job(JOB, SYSTEM).enqueue(service.clock.now())])
    assert await work(service) == 1, "nothing is left to merge"
    names = [job["name"] for job in (await api.get("/v1/jobs", headers=keys[0])).json()["items"]]
    assert JOB in names


async def test_a_tenants_merge_leaves_the_others(service: Service) -> None:
    api, keys = service.client, [await service.key(tenant, "read,write,admin") for tenant in ("one", "two")]
    for key in keys:
        body = {**HOME, "object": "New York"}
        assert (await api.post("/v1/facts", json=body, headers=key)).status_code == 201
    await as_before(service)
    assert (await merge(service, keys[0]))["result"]["facts"] == 1
    left = {fact["tenant_id"]: fact["predicate_key"] for fact in await rows_of(service, "facts")}
    assert left["two"] == "lives_in"
    assert left["one"] != "lives_in"


async def test_books_of_other_scopes_and_subjects_stay_apart(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    for fields in ({"subject": "Ben"}, {"user_id": "v"}, {"agent_id": None}):
        await tell(api, "Boston", "2026-05-01", predicate="dwells", **fields)
    await as_before(service, dwells="livesIn")
    assert (await merge(service))["result"] | {"merges": []} == {"dry_run": False, "books": 0, "facts": 4, "merges": []}
    assert len(await listed(api, predicate="lives in")) == 4


async def test_groups_that_need_no_new_key_are_looked_at_once_and_give_their_spelling(service: Service) -> None:
    api, store = service.client, service.resources.store
    await tell(api, "Ben", predicate="Knows", cardinality="many")
    await tell(api, "Rome", predicate="likes")
    for group in await rows_of(service, "fact_groups"):
        await store.commit(
            [Update(FACT_GROUPS, "default", group["group_id"], set={"rule": None, "predicate_key": None})]
        )
    before = await facts(service)
    assert (await merge(service))["result"] == {"dry_run": False, "books": 0, "facts": 0, "merges": []}
    assert [doc for doc in await facts(service) if "fact_id" in doc] == [doc for doc in before if "fact_id" in doc]
    assert {group["rule"] for group in await rows_of(service, "fact_groups")} == {RULE}
    assert (await tell(api, "Cleo", subject="Ben", predicate="knows"))["predicate"] == "Knows"


async def test_less_trust_is_disputed_in_the_merged_book(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    await tell(api, "Boston", "2026-05-01", predicate="dwells", trust=0.3)
    await as_before(service, dwells="livesIn")
    await merge(service)
    assert await objects(api, predicate="lives in") == ["New York"]
    assert await objects(api, predicate="lives in", status="disputed") == ["Boston"]


async def test_what_a_book_has_gone_through_comes_along(service: Service, api: httpx.AsyncClient) -> None:
    """Superseded and retracted facts have the new key, too, and a lineage stays whole."""
    first = await tell(api, "New York", "2019-01-01")
    await tell(api, "Boston", "2026-05-01")
    wrong = await tell(api, "Rome", "2026-05-20", predicate="dwells")
    await api.post(f"/v1/facts/{wrong['fact_id']}/retract")
    await as_before(service, dwells="livesIn")
    before = (await api.get(f"/v1/facts/{first['fact_id']}/history")).json()["items"]
    await merge(service)
    assert (await api.get(f"/v1/facts/{first['fact_id']}/history")).json()["items"] == before
    every: Json = {"timeline": True, "status": "any", "predicate": "Lives-In"}
    assert await objects(api, **every) == ["Boston", "New York", "New York", "Rome"]
    assert await objects(api, predicate="lives_in", status="retracted") == ["Rome"]
    assert await objects(api, predicate="lives_in") == ["Boston"]


async def test_a_merge_that_was_cut_short_goes_on(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    store = service.resources.store
    for subject in ("Ada", "Ben", "Cleo"):
        await tell(service.client, "New York", "2019-01-01", subject=subject)
        await tell(service.client, "Boston", "2026-05-01", subject=subject, predicate="dwells")
    await as_before(service, dwells="livesIn")
    commit, merged = store.commit, 0

    async def breaking(changes: Any) -> Any:
        nonlocal merged
        merged += any(getattr(change, "collection", None) is FACT_GROUPS for change in changes)
        if merged == 2:
            merged += 1
            raise RuntimeError
        return await commit(changes)

    monkeypatch.setattr(store, "commit", breaking)
    asked = await service.client.post(f"/v1/jobs/{JOB}/run", json={})
    await work(service)
    service.clock.move(minutes=5)
    await work(service)
    over = await operation(service.client, asked.json()["operation_id"])
    assert over["status"] == "succeeded", over
    assert await objects(service.client, predicate="lives in") == ["Boston"] * 3
    undone = await undo(service, over["operation_id"])
    assert undone["result"]["not_restored"] == 0
    assert await objects(service.client, predicate="livesIn") == ["Boston"] * 3
