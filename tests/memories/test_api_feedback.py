"""`POST /v1/memories/feedback`: once for a memory, API key and UTC day, and counted on the memory."""

import asyncio
from typing import Any

import httpx
import pytest

from app.audit.trail import AUDIT
from app.memories.schemas import FEEDBACK, MEMORIES, FeedbackNote, MemoryRecord
from app.settings import Settings
from app.storage.schema import EVERYTHING, Eq
from app.writes.executor import IDEMPOTENCY
from tests.conftest import Service, Starter, TurnedClock
from tests.support.memories import OWNER, batch, eventually, found, history, problem, recall, remember

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
PATH = "/v1/memories/feedback"
NOTHING = dict.fromkeys(("importance", "base_importance", "helpful_count", "misleading_count"))


async def give(api: httpx.AsyncClient, *said: tuple[str, bool], **more: Any) -> list[Json]:
    """The answer's items. `said`: ids of memories, and whether they helped."""
    items = [{"memory_id": memory_id, "helpful": helpful} for memory_id, helpful in said]
    answer = await api.post(PATH, json={"items": items}, **more)
    assert answer.status_code == 200, answer.text
    listed: list[Json] = answer.json()["items"]
    return listed


async def memory(api: httpx.AsyncClient, memory_id: str, **more: Any) -> Json:
    got = await api.get(f"/v1/memories/{memory_id}", **more)
    assert got.status_code == 200, got.text
    body: Json = got.json()
    return body


async def stored(service: Service, memory_id: str) -> MemoryRecord:
    doc = await service.resources.store.get(MEMORIES, "default", memory_id)
    assert doc is not None
    return doc


async def notes(service: Service) -> list[FeedbackNote]:
    return await service.resources.store.find(FEEDBACK, None, limit=1_000)


def counts(of: Json) -> tuple[int, int]:
    return of["helpful_count"], of["misleading_count"]


# --- What it does -----------------------------------------------------------------------------------------------------


async def test_what_helped_gains_and_what_misled_loses(api: httpx.AsyncClient) -> None:
    tea, rain = [(await remember(api, text))["memory_id"] for text in ("tea", "rain")]
    helped, misled = await give(api, (tea, True), (rain, False))
    shown = {"applied": True, "reason": None, "replaced": False}
    assert helped == {
        "memory_id": tea, **shown, "importance": 0.55, "base_importance": 0.55,
        "helpful_count": 1, "misleading_count": 0,
    }  # fmt: skip
    assert misled == {
        "memory_id": rain, **shown, "importance": 0.4, "base_importance": 0.4,
        "helpful_count": 0, "misleading_count": 1,
    }  # fmt: skip
    for one in (helped, misled):
        got = await memory(api, one["memory_id"])
        assert {name: got[name] for name in NOTHING} == {name: one[name] for name in NOTHING}
    items = (await recall(api, "tea and rain", mode="vector"))["items"]
    assert {item["memory"]["content"]: counts(item["memory"]) for item in items} == {"tea": (1, 0), "rain": (0, 1)}
    assert await found(api, "tea and rain", mode="vector", min_importance=0.5) == ["tea"]


async def test_it_is_no_new_version_and_leaves_no_history(api: httpx.AsyncClient) -> None:
    made = await remember(api, "tea")
    await give(api, (made["memory_id"], True))
    got = await memory(api, made["memory_id"])
    changing = ("importance", "base_importance", "helpful_count")
    assert {k: v for k, v in got.items() if k not in changing} == {
        k: v for k, v in made.items() if k not in (*changing, "similar")
    }
    assert await history(api, made["memory_id"]) == []


async def test_importance_never_leaves_its_bounds(api: httpx.AsyncClient) -> None:
    high, low = [
        (await remember(api, text, importance=at))["memory_id"] for text, at in (("tea", 0.98), ("rain", 0.04))
    ]
    helped, misled = await give(api, (high, True), (low, False))
    assert (helped["base_importance"], misled["base_importance"]) == (1.0, 0.0)


async def test_pinned_memories_move_as_others_do(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    made = await remember(api, "tea", pinned=True)
    clock.move(days=900)
    (one,) = await give(api, (made["memory_id"], False))
    assert (one["importance"], counts(one)) == (0.4, (0, 1))


async def test_a_faded_memory_moves_from_what_it_has_left(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    tea, rain = [(await remember(api, text, importance=0.8))["memory_id"] for text in ("tea", "rain")]
    born = (await stored(service, rain))["anchored_at"]
    clock.move(days=400)
    left = (await memory(api, tea))["importance"]
    assert 0.4 < left < 0.45
    helped, misled = await give(api, (tea, True), (rain, False))
    assert helped["importance"] == helped["base_importance"] == pytest.approx(left + 0.05, abs=1e-6)
    assert misled["importance"] == pytest.approx(left - 0.1, abs=1e-6)
    assert (await stored(service, rain))["anchored_at"] == born
    clock.move(days=20)
    assert (await memory(api, tea))["importance"] == helped["importance"]  # fades anew, after its grace time
    assert (await memory(api, rain))["importance"] < misled["importance"]  # fades on


async def test_being_recalled_is_no_feedback(api: httpx.AsyncClient) -> None:
    made = await remember(api, "tea")
    for _ in range(3):
        await recall(api, "tea")

    async def noted() -> Json | None:
        got = await memory(api, made["memory_id"])
        return got if got["access_count"] == 3 else None

    got = await eventually(noted)
    assert (counts(got), got["base_importance"]) == ((0, 0), 0.5)


async def test_recall_and_feedback_at_once_lose_nothing(api: httpx.AsyncClient) -> None:
    made = await remember(api, "tea")

    async def recalled() -> None:
        await recall(api, "tea")

    async def helped() -> None:
        await give(api, (made["memory_id"], True))

    await asyncio.gather(*(recalled() for _ in range(5)), helped())

    async def all_there() -> bool:
        got = await memory(api, made["memory_id"])
        return (got["access_count"], counts(got)) == (5, (1, 0)) and got["base_importance"] == 0.55

    await eventually(all_there)


@pytest.mark.parametrize("status", ["archived", "superseded", "disputed"])
async def test_of_a_memory_that_is_not_active_it_is_counted_alone(api: httpx.AsyncClient, status: str) -> None:
    made = await remember(api, "lives in Oslo", key="home")
    memory_id = made["memory_id"]
    if status == "archived":
        await api.patch(f"/v1/memories/{memory_id}", json={"status": "archived"})
    elif status == "superseded":
        await remember(api, "lives in Rome", supersedes=[memory_id])
    else:
        memory_id = (await remember(api, "lives in Rome", key="home", trust=0.4))["memory_id"]
    assert (await memory(api, memory_id))["status"] == status
    (one,) = await give(api, (memory_id, False))
    assert (one["applied"], one["importance"], counts(one)) == (True, 0.5, (0, 1))


# --- Once for a memory, key and day -----------------------------------------------------------------------------------


async def test_the_same_again_on_the_same_day_changes_nothing(service: Service, clock: TurnedClock) -> None:
    api, mine = service.client, await service.key()
    made = await api.post("/v1/memories", json={**OWNER, "content": "tea"}, headers=mine)
    tea = made.json()["memory_id"]
    (first,) = await give(api, (tea, True), headers=mine)
    before = await stored(service, tea)
    clock.move(hours=11)
    (again,) = await give(api, (tea, True), headers=mine)
    assert again == first | {"applied": False, "reason": "already_today"}
    assert await stored(service, tea) == before
    (other,) = await give(api, (tea, True), headers=await service.key())
    assert (other["applied"], other["base_importance"], counts(other)) == (True, 0.6, (2, 0))
    clock.move(hours=1)  # it is past midnight, UTC
    (next_day,) = await give(api, (tea, True), headers=mine)
    assert (next_day["applied"], next_day["base_importance"], counts(next_day)) == (True, 0.65, (3, 0))


@pytest.mark.parametrize(("first", "base", "tally"), [(True, 0.4, (0, 1)), (False, 0.55, (1, 0))])
async def test_the_opposite_on_the_same_day_replaces_the_first(
    service: Service, api: httpx.AsyncClient, first: bool, base: float, tally: tuple[int, int]
) -> None:
    tea = (await remember(api, "tea"))["memory_id"]
    await give(api, (tea, first))
    (one,) = await give(api, (tea, not first))
    assert (one["applied"], one["replaced"], one["base_importance"], counts(one)) == (True, True, base, tally)
    (again,) = await give(api, (tea, not first))
    assert (again["applied"], again["reason"]) == (False, "already_today")
    (back,) = await give(api, (tea, first))
    assert back["base_importance"] == (0.55 if first else 0.4)
    assert (await memory(api, tea))["base_importance"] == back["base_importance"]
    assert len(await notes(service)) == 1


async def test_the_opposite_of_a_feedback_at_the_bound_undoes_what_that_one_did(api: httpx.AsyncClient) -> None:
    low, high = [(await remember(api, str(at), importance=at))["memory_id"] for at in (0.04, 0.98)]
    await give(api, (low, False), (high, True))
    one, other = await give(api, (low, True), (high, False))
    assert (one["base_importance"], other["base_importance"]) == (0.09, 0.88)


async def test_a_key_and_its_successor_are_one(service: Service) -> None:
    api, admin = service.client, await service.key(verbs="read,write,admin")
    made = await api.post("/v1/memories", json={**OWNER, "content": "tea"}, headers=admin)
    await give(api, (made.json()["memory_id"], True), headers=admin)
    key_id = admin["Authorization"].split("_")[1]
    rotated = await api.post(f"/v1/keys/{key_id}/rotate", json={}, headers=admin)
    assert rotated.is_success, rotated.text
    renewed = {"Authorization": f"Bearer {rotated.json()['key']}"}
    (one,) = await give(api, (made.json()["memory_id"], True), headers=renewed)
    assert (one["applied"], one["reason"]) == (False, "already_today")


async def test_twenty_at_once_in_two_processes_count_once(start: Starter, settings: Settings) -> None:
    async with start(settings) as one, start(settings) as two:
        tea = (await remember(one.client, "tea"))["memory_id"]
        answers = await asyncio.gather(*(give(each.client, (tea, True)) for _ in range(10) for each in (one, two)))
        assert sorted(item["applied"] for (item,) in answers) == [False] * 19 + [True]
        assert {counts(item) for (item,) in answers} == {(1, 0)}
        got = await memory(two.client, tea)
        assert (got["base_importance"], counts(got)) == (0.55, (1, 0))


async def test_many_keys_at_once_all_count(service: Service) -> None:
    api, keys = service.client, [await service.key() for _ in range(8)]
    made = await api.post("/v1/memories", json={**OWNER, "content": "tea"}, headers=keys[0])
    tea = made.json()["memory_id"]
    await asyncio.gather(*(give(api, (tea, number % 2 == 0), headers=key) for number, key in enumerate(keys)))
    got = await memory(api, tea, headers=keys[0])
    assert (got["base_importance"], counts(got)) == (0.3, (4, 4))


async def test_an_idempotency_key_brings_the_first_answer_again(api: httpx.AsyncClient) -> None:
    tea = (await remember(api, "tea"))["memory_id"]
    once = {"Idempotency-Key": "once"}
    body = {"items": [{"memory_id": tea, "helpful": True}]}
    first, again = [await api.post(PATH, json=body, headers=once) for _ in range(2)]
    assert first.content == again.content
    assert again.headers["idempotency-replayed"] == "true"
    other = {"items": [{"memory_id": tea, "helpful": False}]}
    problem(await api.post(PATH, json=other, headers=once), 422, "idempotency_mismatch")


# --- What it refuses --------------------------------------------------------------------------------------------------


ITEM = {"memory_id": "mem_x", "helpful": True}


@pytest.mark.before_store
@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/items"),
        ({"items": []}, "/items"),
        ({"items": [ITEM] * 101}, "/items"),
        ({"items": [{"memory_id": "mem_x"}]}, "/items/0/helpful"),
        ({"items": [{"memory_id": "mem_x", "helpful": 1}]}, "/items/0/helpful"),
        ({"items": [{"memory_id": "mem_x", "helpful": None}]}, "/items/0/helpful"),
        ({"items": [{"memory_id": "a/b", "helpful": True}]}, "/items/0/memory_id"),
        ({"items": [{**ITEM, "query": " "}]}, "/items/0/query"),
        ({"items": [{**ITEM, "rating": 5}]}, "/items/0/rating"),
        ({"items": [ITEM], "user_id": "u"}, "/user_id"),
        ({"items": [ITEM, {**ITEM, "memory_id": "mem_y"}, {**ITEM, "helpful": False}]}, "/items/2/memory_id"),
    ],
)
async def test_what_is_invalid_is_named(api: httpx.AsyncClient, body: Json, pointer: str) -> None:
    problem(await api.post(PATH, json=body), 422, "invalid", pointer)


async def test_a_hundred_items_are_one_commit(service: Service, api: httpx.AsyncClient) -> None:
    made = await batch(api, *({"content": f"locker {number}"} for number in range(100)))
    ids = [item["memory_id"] for item in made["items"]]
    answers = await give(api, *((memory_id, True) for memory_id in ids))
    assert [one["memory_id"] for one in answers] == ids
    assert {one["base_importance"] for one in answers} == {0.55}
    entries = await service.resources.store.find(AUDIT, "default", Eq("action", "give_memory_feedback"))
    (entry,) = entries
    assert (entry["user_id"], entry["changes"]) == ("u", {"agent_memories": {"update": 100}})
    assert set(entry["records"]) == set(ids)


async def test_what_is_not_there_stops_no_other_item(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    gone = (await remember(api, "gone"))["memory_id"]
    await api.delete(f"/v1/memories/{gone}")
    expiring = (await remember(api, "expired", expires_at="2026-06-02T00:00:00Z"))["memory_id"]
    tea = (await remember(api, "tea"))["memory_id"]
    clock.move(days=1)
    *missing, one = await give(api, (gone, True), (expiring, True), ("mem_never", False), (tea, True))
    assert one["applied"]
    for memory_id, answer in zip((gone, expiring, "mem_never"), missing, strict=True):
        no = {"applied": False, "reason": "not_found", "replaced": False}
        assert answer == {"memory_id": memory_id, **no, **NOTHING}


async def test_if_match_holds_for_one_memory(api: httpx.AsyncClient) -> None:
    tea, rain = [(await remember(api, text))["memory_id"] for text in ("tea", "rain")]
    one, both = [{"items": [{"memory_id": m, "helpful": True} for m in ids]} for ids in ((tea,), (tea, rain))]
    problem(await api.post(PATH, json=one, headers={"If-Match": '"2"'}), 412, "precondition_failed")
    problem(await api.post(PATH, json=both, headers={"If-Match": '"1"'}), 412, "precondition_failed")
    assert (await api.post(PATH, json=one, headers={"If-Match": '"1"'})).status_code == 200


# --- Whose ------------------------------------------------------------------------------------------------------------


async def test_what_the_key_may_not_see_is_as_what_is_not_there(service: Service) -> None:
    api, owner = service.client, await service.key()
    made = await api.post("/v1/memories", json={**OWNER, "content": "secret"}, headers=owner)
    memory_id = made.json()["memory_id"]
    before = await stored(service, memory_id)
    for stranger in (await service.key("other"), await service.key(users=["v"]), await service.key(agents=["b"])):
        answers = await give(api, (memory_id, False), ("mem_never", False), headers=stranger)
        theirs, nothing = [answer | {"memory_id": ""} for answer in answers]
        assert theirs == nothing
        assert nothing["reason"] == "not_found"
    assert await stored(service, memory_id) == before
    assert await notes(service) == []


async def test_what_a_bound_key_may_read_only_is_said_and_stays(service: Service) -> None:
    api, owner, bound = service.client, await service.key(), await service.key(users=["u"])
    shared = {"agent_id": "a", "content": "for all users"}
    memory_id = (await api.post("/v1/memories", json=shared, headers=owner)).json()["memory_id"]
    own = (await api.post("/v1/memories", json={**OWNER, "content": "tea"}, headers=owner)).json()["memory_id"]
    refused, applied = await give(api, (memory_id, False), (own, True), headers=bound)
    no = {"applied": False, "reason": "forbidden", "replaced": False}
    assert refused == {"memory_id": memory_id, **no, **NOTHING}
    assert applied["applied"]
    assert counts(await memory(api, memory_id, headers=bound)) == (0, 0)
    problem(await api.post(PATH, json={"items": [ITEM]}, headers=await service.key(verbs="read")), 403, "forbidden")


# --- What is kept of it -----------------------------------------------------------------------------------------------


async def test_the_query_is_kept_with_the_memory_of_a_user_alone(service: Service, api: httpx.AsyncClient) -> None:
    own = (await remember(api, "tea"))["memory_id"]
    shared = (await remember(api, "tea", user_id=None))["memory_id"]
    items = [{"memory_id": one, "helpful": True, "query": "what do I drink?"} for one in (own, shared)]
    assert (await api.post(PATH, json={"items": items})).status_code == 200
    kept = {note["memory_id"]: note["query"] for note in await notes(service)}
    assert kept == {own: "what do I drink?", shared: None}


async def test_a_note_goes_with_its_memory(service: Service, api: httpx.AsyncClient) -> None:
    tea, rain = [(await remember(api, text))["memory_id"] for text in ("tea", "rain")]
    await give(api, (tea, True), (rain, True))
    await api.delete(f"/v1/memories/{rain}")
    assert [note["memory_id"] for note in await notes(service)] == [tea]


async def test_the_stored_answer_is_about_the_user_though_it_changed_nothing(
    service: Service, api: httpx.AsyncClient
) -> None:
    """Such answers are erased with the user."""
    tea = (await remember(api, "tea"))["memory_id"]
    await give(api, (tea, True))
    (again,) = await give(api, (tea, True), headers={"Idempotency-Key": "again"})
    assert again["reason"] == "already_today"
    stored_answers = await service.resources.store.find(IDEMPOTENCY, None, EVERYTHING)
    assert [answer["users"] for answer in stored_answers] == [["u"]]
