"""Duplicate memories become one, without a language model: planned, applied, looked at again, undone."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from app.core.language import wording
from app.learning import consolidation_job
from app.learning.derivations import DERIVATIONS
from app.lifespan import job_runner
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, MemoryRecord
from app.settings import JobSettings, ReflectionSettings, Settings
from app.storage.schema import EVERYTHING
from tests.conftest import Service, Starter
from tests.support.learning import consolidate, kept, undo, work
from tests.support.memories import Json, batch, found, problem, recall, remember
from tests.support.operations import rows

pytestmark = pytest.mark.anyio

PAIRS = [json.loads(line) for line in Path("benchmarks/data/near_pairs.jsonl").read_text(encoding="utf-8").splitlines()]


# --- What claims the same ---------------------------------------------------------------------------------------------


@pytest.mark.before_store
def test_no_two_texts_of_different_meaning_claim_the_same() -> None:
    wrong = [pair for pair in PAIRS if not pair["same"] and wording(pair["one"]) == wording(pair["other"])]
    assert wrong == []
    told = sum(wording(pair["one"]) == wording(pair["other"]) for pair in PAIRS if pair["same"])
    assert told == 1, "of 28: the others are left as they are"


@pytest.mark.before_store
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Prefers short answers", "prefers  short answers!"),
        ("Can\u2019t swim", "Can't swim."),
        ("住在上海。", "住在上海"),
        ("Mag ＲＯＳＥＮ…", "mag Rosen"),
    ],
)
def test_wording_that_carries_no_claim_makes_no_difference(one: str, other: str) -> None:
    assert wording(one) == wording(other)


@pytest.mark.before_store
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Owes 5.00 euros", "Owes 500 euros"),
        ("Temperature is -5", "Temperature is 5"),
        ("Likes tea?", "Likes tea"),
        ("No, tea", "No tea"),
        ("Paid $5", "Paid \u20ac5"),
        ("Works 9-5", "Works 95"),
        ("Is a nurse", "Was a nurse"),
        ("He likes tea", "She likes tea"),
        ("Likes tea", "The user likes tea"),
        ("Likes action films", "Likes action movies"),
        ("...", "!!!"),
    ],
)
def test_everything_else_does(one: str, other: str) -> None:
    assert wording(one) != wording(other)


DOC = st.fixed_dictionaries(
    {
        "content": st.sampled_from(["Likes tea", "likes tea.", "LIKES TEA!", "Likes no tea"]),
        "memory_type": st.sampled_from(["fact", "preference"]),
        "user_id": st.sampled_from(["u", "v"]),
        "agent_id": st.just("a"),
        "importance": st.sampled_from([0.2, 0.5, 0.9]),
        "trust": st.sampled_from([0.5, 1.0]),
        "pinned": st.booleans(),
        "key": st.sampled_from([None, None, "k"]),
        "tags": st.lists(st.sampled_from("xyz"), max_size=2),
        "metadata": st.sampled_from([{}, {"a": 1}, {"a": 2}]),
        "context": st.sampled_from([None, None, "at work"]),
        "event_at": st.sampled_from([None, None, "2026-01-01T00:00:00.000Z"]),
    }
)


@pytest.mark.before_store
@given(st.lists(DOC, max_size=8))
@examples(max_examples=150, deadline=None)
def test_a_plan_loses_nothing_and_has_nothing_to_add(fields: list[Json]) -> None:
    docs = [
        new_memory(MEMORIES.as_record(one), {}, f"2026-01-01T00:00:00.{at:03}Z", unique=False)
        for at, one in enumerate(fields)
    ]
    while groups := plan(docs):
        for group in groups:
            for gone in group.retired:
                kept: MemoryRecord = {**group.survivor, **group.gains}
                assert not gone["pinned"]
                assert gone["key"] is None
                assert gone["trust"] <= kept["trust"]
                assert {*gone["tags"]} <= {*kept["tags"]}
                assert gone["metadata"] in ({}, kept["metadata"])
                assert gone["importance"] <= kept["importance"]
                assert consolidation_job.duplicate_digest(gone) == consolidation_job.duplicate_digest(group.survivor)
        before, docs = docs, applied(docs, groups)
        assert len(docs) == len(before) - sum(len(group.retired) for group in groups)
        assert plan(docs) == [], "one run is enough"


def plan(docs: list[MemoryRecord]) -> list[consolidation_job.DuplicateGroup]:
    importance = {doc["memory_id"]: doc["importance"] for doc in docs}
    alike: dict[bytes, list[MemoryRecord]] = {}
    for doc in docs:
        alike.setdefault(consolidation_job.duplicate_digest(doc), []).append(doc)
    return [group for each in alike.values() for group in consolidation_job.grouped(each, importance)]


def applied(docs: list[MemoryRecord], groups: list[consolidation_job.DuplicateGroup]) -> list[MemoryRecord]:
    gone = {doc["memory_id"] for group in groups for doc in group.retired}
    gains = {group.survivor["memory_id"]: group.gains for group in groups}
    return [{**doc, **gains.get(doc["memory_id"], {})} for doc in docs if doc["memory_id"] not in gone]


# --- The service ------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Jobs run when a test says so; there is no language model."""
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


@pytest.fixture
async def service(start: Starter, settings: Settings) -> Any:
    async with start(settings) as made:
        yield made


async def told_thrice(api: httpx.AsyncClient) -> list[str]:
    made = [
        await remember(api, "The user prefers action films.", tags=["films"], trust=0.9),
        await remember(api, "the user prefers action films", importance=0.9, tags=["taste"], trust=0.9),
        await remember(api, "The user prefers  action films!", trust=0.8),
    ]
    return [memory["memory_id"] for memory in made]


async def test_a_dry_run_shows_the_plan_and_changes_nothing(service: Service, api: httpx.AsyncClient) -> None:
    first, second, third = await told_thrice(api)
    before = await rows(service)
    done = await consolidate(service, dry_run=True)
    assert await rows(service) == before
    assert (done["status"], done["can_undo"]) == ("succeeded", False)
    counts = {"groups": 1, "retired": 2, "left": 0, "unverified": 0}
    plan = [{"kept": second, "retired": [first, third]}]
    assert done["result"]["memories"] == {**counts, "items": plan}


async def test_duplicates_are_merged_once_and_undone_exactly(service: Service, api: httpx.AsyncClient) -> None:
    first, second, third = await told_thrice(api)
    await remember(api, "The user prefers horror films.")
    before = {memory["memory_id"]: memory for memory in await kept(service, status="any")}
    done = await consolidate(service)
    assert (done["status"], done["can_undo"]) == ("succeeded", True)
    assert done["result"]["memories"]["retired"] == 2
    now = {memory["memory_id"]: memory for memory in await kept(service, status="any")}
    assert [now[each]["status"] for each in (first, second, third)] == ["superseded", "active", "superseded"]
    assert [now[each]["superseded_by"] for each in (first, third)] == [second, second]
    assert now[second]["supersedes"] == [first, third]
    assert (now[second]["importance"], now[second]["trust"]) == (0.9, 0.9)
    assert sorted(now[second]["tags"]) == ["films", "taste"]
    assert now[second]["source"] == before[second]["source"]
    assert await found(api, "action films", mode="text", record_access=False) == [
        "the user prefers action films",
        "The user prefers horror films.",
    ]
    again = await consolidate(service)
    assert (again["result"]["memories"]["groups"], again["can_undo"]) == (0, False)
    undone = await undo(service, done["operation_id"])
    assert undone["result"] == {"restored": 1, "not_restored": 0}
    after = {memory["memory_id"]: memory for memory in await kept(service, status="any")}
    assert {one: same(memory) for one, memory in after.items()} == {one: same(each) for one, each in before.items()}
    assert len(await found(api, "action films", mode="text", record_access=False)) == 4
    assert (await consolidate(service))["result"]["memories"]["groups"] == 0, "what was undone stays undone"


def same(memory: Json) -> Json:
    return memory | {"version": 0, "updated_at": ""}


async def test_what_differs_in_any_way_that_counts_stays_apart(service: Service, api: httpx.AsyncClient) -> None:
    fine = {"content": "The user likes tea"}
    await batch(
        api,
        fine,
        {**fine, "content": "The user likes no tea"},
        {**fine, "content": "The user likes tea", "user_id": "v"},
        {**fine, "content": "the user likes tea.", "agent_id": None},
        {**fine, "content": "The user likes tea!", "memory_type": "preference"},
        {**fine, "content": "the user likes tea", "context": "in summer"},
        {**fine, "content": "the user likes tea.", "valid_until": "2027-01-01T00:00:00Z"},
        {**fine, "content": "the user likes tea!", "event_at": "2025-01-01T00:00:00Z"},
        {**fine, "content": "the user likes tea!", "expires_at": "2027-01-01T00:00:00Z"},
        {**fine, "content": "Cannot log in", "memory_type": "issue"},
        {**fine, "content": "Cannot log in.", "memory_type": "issue"},
        {**fine, "content": "Pinned.", "pinned": True},
        {**fine, "content": "pinned", "pinned": True},
        {**fine, "content": "Named.", "key": "one"},
        {**fine, "content": "named", "key": "two"},
        {**fine, "content": "Told.", "metadata": {"by": 1}},
        {**fine, "content": "told", "metadata": {"by": 2}},
    )
    said = {"agent_id": "a", "user_id": "u", "messages": [{"role": "user", "content": text} for text in ("Hi", "Hi.")]}
    await api.post("/v1/sessions/s/messages", json=said)
    done = await consolidate(service)
    assert done["result"]["memories"]["groups"] == 0


async def test_what_has_expired_is_merged_with_nothing(service: Service, api: httpx.AsyncClient) -> None:
    until = "2026-07-01T00:00:00Z"
    for text in ("Likes tea", "likes tea."):
        await remember(api, text, expires_at=until)
    service.clock.move(days=60)
    done = await consolidate(service)
    assert (done["result"]["memories"]["groups"], done["can_undo"]) == (0, False)
    await remember(api, "LIKES TEA")
    await remember(api, "likes tea!")
    (group,) = (await consolidate(service))["result"]["memories"]["items"]
    assert len(group["retired"]) == 1
    kinds = {doc["content"]: doc["status"] for doc in await rows(service) if "memory_type" in doc}
    assert (kinds["Likes tea"], kinds["likes tea."]) == ("active", "active"), "for the purge, as they were"


async def test_a_kept_memory_is_found_by_all_that_the_others_were_found_by(
    service: Service, api: httpx.AsyncClient
) -> None:
    await remember(api, "Pays by card.", key="pays", trust=0.6, metadata={"shop": 1})
    await remember(api, "pays by card", trust=0.6, metadata={"shop": 1}, tags=["money"])
    await remember(api, "PAYS BY CARD", trust=0.9)
    await consolidate(service)
    active = await kept(service, status="active")
    assert sorted((memory["content"], memory["trust"]) for memory in active) == [
        ("PAYS BY CARD", 0.9),  # believed more than the one with a name
        ("Pays by card.", 0.6),
    ]
    hits = (await recall(api, "card", tags=["money"], metadata={"shop": 1}))["items"]
    assert [hit["memory"]["key"] for hit in hits] == ["pays"]


async def test_an_undo_leaves_what_somebody_has_changed_since(service: Service, api: httpx.AsyncClient) -> None:
    _, second, _ = await told_thrice(api)
    await remember(api, "Drinks tea")
    await remember(api, "drinks tea.")
    done = await consolidate(service)
    await api.patch(f"/v1/memories/{second}", json={"content": "The user prefers comedies."})
    undone = await undo(service, done["operation_id"])
    assert (undone["status"], undone["result"]) == ("partial", {"restored": 1, "not_restored": 1})
    active = sorted(memory["content"] for memory in await kept(service, status="active"))
    assert active == ["Drinks tea", "The user prefers comedies.", "drinks tea."]


async def test_one_user_alone_and_no_other_tenant(service: Service, api: httpx.AsyncClient) -> None:
    admin, other = await service.key("one", "read,write,admin"), await service.key("two", "read,write,admin")
    for headers in (admin, other):
        for user in ("u", "v"):
            for text in ("Likes tea", "likes tea."):
                body = {"user_id": user, "content": text}
                assert (await api.post("/v1/memories", json=body, headers=headers)).status_code == 201
    done = await consolidate(service, headers=admin, user_id="u")
    assert (done["user_id"], done["result"]["memories"]["retired"]) == ("u", 1)
    assert (await consolidate(service, headers=admin))["result"]["memories"]["retired"] == 1
    assert (await consolidate(service, headers=other))["result"]["memories"]["retired"] == 2
    bound = await service.key("one", "read,write,admin", users=["u"])
    problem(await api.post("/v1/jobs/consolidation/run", json={"user_id": "v"}, headers=bound), 403)
    problem(await api.post("/v1/jobs/consolidation/run", json={}, headers=bound), 403)
    narrow = await api.post("/v1/jobs/retention/run", json={"user_id": "u"}, headers=admin)
    problem(narrow, 422, "invalid", "/user_id")


async def test_the_clock_starts_an_operation_for_each_pair_with_something_to_do(
    service: Service, api: httpx.AsyncClient
) -> None:
    await told_thrice(api)
    await remember(api, "Likes tea", user_id="v")
    held = service.resources
    given = {"jobs": JobSettings(), "reflection": ReflectionSettings(policy="off")}
    on = held.settings.model_copy(update=given)
    runner = job_runner(on, held.store, held.embedder, held.clock, None)
    await runner._schedules.tick()
    await work(service)
    (done,) = (await api.get("/v1/operations")).json()["items"]
    assert (done["kind"], done["status"], done["user_id"]) == ("consolidation", "succeeded", "u")
    assert done["result"]["memories"]["retired"] == 2
    assert (await undo(service, done["operation_id"]))["result"]["restored"] == 1
    service.clock.move(days=60)
    await runner._schedules.tick()
    await work(service)
    notes = await held.store.find(DERIVATIONS, "default", EVERYTHING)
    assert [(note["operation_id"], note["undo"]) for note in notes] == [(None, [])]


async def test_a_run_has_an_end_and_says_what_is_left(
    service: Service, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await batch(api, *({"content": "Likes tea", "deduplicate": False} for _ in range(7)))
    await batch(api, *({"content": "Likes rum", "deduplicate": False} for _ in range(3)))
    monkeypatch.setattr(consolidation_job, "AT_ONCE", 4)
    monkeypatch.setattr(consolidation_job, "MOST", 5)
    done = await consolidate(service)
    assert (done["status"], done["can_undo"]) == ("partial", True)
    assert done["result"]["memories"] | {"items": []} == {
        "groups": 1,
        "retired": 4,
        "left": 4,
        "unverified": 0,
        "items": [],
    }
    assert (await consolidate(service))["result"]["memories"] | {"items": []} == {
        "groups": 2,
        "retired": 4,
        "left": 0,
        "unverified": 0,
        "items": [],
    }
