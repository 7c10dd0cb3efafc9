"""Trust guards memories: a write of less trust is stored apart, until somebody settles the dispute."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.settings import JobSettings, Settings
from app.storage.changes import Change, Committed, Delete, Insert
from tests.conftest import Service, Starter, TestParts, TurnedClock, wrapped_stores
from tests.support.memories import OWNER, batch, found, history, listed, problem, recall, remember
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
LIKE, ALIKE = "Ada likes green tea in the morning.", "Ada likes green tea in the morning!"


async def read(api: httpx.AsyncClient, memory: Json) -> Json:
    body: Json = (await api.get(f"/v1/memories/{memory['memory_id']}")).json()
    return body


async def resolve(api: httpx.AsyncClient, memory: Json, keep: str, expect: int = 200) -> Json:
    answer = await api.post(f"/v1/memories/{memory['memory_id']}/resolve", json={"keep": keep})
    assert answer.status_code == expect, answer.text
    body: Json = answer.json()
    return body


async def disputed_by_key(api: httpx.AsyncClient) -> tuple[Json, Json]:
    sure = await remember(api, "lives in Oslo", key="home", trust=0.9)
    return sure, await remember(api, "lives in Rome", key="home", trust=0.6)


# --- What is disputed -------------------------------------------------------------------------------------------------


async def test_a_write_of_less_trust_does_not_overwrite_by_key(api: httpx.AsyncClient) -> None:
    sure, doubted = await disputed_by_key(api)
    assert (doubted["status"], doubted["contradicts"], doubted["key"]) == ("disputed", [sure["memory_id"]], None)
    assert (await read(api, sure))["version"] == 1
    assert await found(api, "Where does she live?") == ["lives in Oslo"]
    assert await found(api, "Where does she live?", status="disputed") == ["lives in Rome"]
    assert await listed(api) == ["lives in Oslo"]
    assert await listed(api, status="disputed") == ["lives in Rome"]


async def test_a_write_of_less_trust_supersedes_nothing_not_even_what_has_less(api: httpx.AsyncClient) -> None:
    sure, doubted = await remember(api, "one", trust=0.9), await remember(api, "two", trust=0.1)
    ids = [sure["memory_id"], doubted["memory_id"]]
    made = await remember(api, "three", trust=0.5, supersedes=ids)
    assert (made["status"], made["contradicts"], made["supersedes"]) == ("disputed", ids, [])
    assert sorted(await listed(api)) == ["one", "two"]


async def test_a_write_of_less_trust_retires_no_near_duplicate(api: httpx.AsyncClient) -> None:
    sure = await remember(api, LIKE, trust=0.9)
    made = await remember(api, ALIKE, trust=0.5, on_similar="supersede")
    assert (made["status"], made["contradicts"]) == ("disputed", [sure["memory_id"]])
    assert [(one["memory_id"], one["superseded"]) for one in made["similar"]] == [(sure["memory_id"], False)]
    assert await listed(api) == [LIKE]


@pytest.mark.parametrize(("trust", "status"), [(0.7, "active"), (0.6, "disputed"), (1.0, "active")])
async def test_a_pinned_memory_gives_way_to_equal_trust_only(api: httpx.AsyncClient, trust: float, status: str) -> None:
    pinned = await remember(api, "deadly allergic to peanuts", pinned=True, trust=0.7)
    made = await remember(api, "eats peanuts again", trust=trust, supersedes=[pinned["memory_id"]])
    assert made["status"] == status
    assert (await read(api, pinned))["status"] == ("superseded" if status == "active" else "active")


async def test_the_same_said_with_less_trust_under_its_key_is_no_dispute(api: httpx.AsyncClient) -> None:
    sure = await remember(api, "lives in Oslo", key="home", trust=0.9, tags=["a"])
    again = await remember(api, "Lives in  Oslo", 200, key="home", trust=0.2, tags=["b"])
    assert (again["memory_id"], again["trust"], again["tags"]) == (sure["memory_id"], 0.9, ["a", "b"])


async def test_what_a_caller_says_under_a_key_has_the_trust_of_the_caller(api: httpx.AsyncClient) -> None:
    doubted = await remember(api, "lives in Oslo", key="home", trust=0.4, tags=["a"])
    sure = await remember(api, "lives in Rome", 200, key="home")
    assert (sure["memory_id"], sure["content"], sure["trust"]) == (doubted["memory_id"], "lives in Rome", 1.0)
    assert sure["tags"] == ["a"]
    assert (await remember(api, "lives in Bonn", 201, key="home", trust=0.6))["status"] == "disputed"


async def test_the_same_said_again_under_its_key_has_the_higher_trust(api: httpx.AsyncClient) -> None:
    await remember(api, "lives in Oslo", key="home", trust=0.4)
    assert (await remember(api, "lives in Oslo", 200, key="home"))["trust"] == 1.0


async def test_an_equal_memory_of_less_trust_that_would_retire_another_is_stored_apart(api: httpx.AsyncClient) -> None:
    equal, sure = await remember(api, "tea"), await remember(api, "coffee", trust=0.9)
    made = await remember(api, "tea", 201, trust=0.5, supersedes=[sure["memory_id"]])
    assert (made["status"], made["contradicts"]) == ("disputed", [sure["memory_id"]])
    assert made["memory_id"] != equal["memory_id"]
    assert sorted(await listed(api)) == ["coffee", "tea"]


async def test_the_same_dispute_again_is_answered(api: httpx.AsyncClient) -> None:
    _, doubted = await disputed_by_key(api)
    again = await remember(api, "LIVES in Rome", 200, key="home", trust=0.6)
    assert again["memory_id"] == doubted["memory_id"]
    other = await remember(api, "lives in Rome", 201, key="home", trust=0.6, deduplicate=False)
    assert other["memory_id"] != doubted["memory_id"]


async def test_a_batch_stores_its_disputes_beside_the_rest(api: httpx.AsyncClient) -> None:
    sure = await remember(api, "lives in Oslo", key="home")
    items = [{"content": "lives in Rome", "key": "home", "trust": 0.4}, {"content": "likes tea", "trust": 0.4}]
    made = (await batch(api, *items))["items"]
    assert [one["status"] for one in made] == ["disputed", "active"]
    assert made[0]["contradicts"] == [sure["memory_id"]]
    assert sorted(await listed(api)) == ["likes tea", "lives in Oslo"]


async def test_a_disputed_memory_is_no_equal_and_no_near_duplicate(api: httpx.AsyncClient) -> None:
    sure = await remember(api, "something else", trust=0.9)
    await remember(api, LIKE, trust=0.5, supersedes=[sure["memory_id"]])
    made = await remember(api, LIKE, 201, on_similar="supersede")
    assert (made["similar"], made["supersedes"]) == ([], [])


async def test_a_disputed_memory_gets_no_other_status_by_hand(api: httpx.AsyncClient) -> None:
    _, doubted = await disputed_by_key(api)
    for status in ("active", "archived"):
        answer = await api.patch(f"/v1/memories/{doubted['memory_id']}", json={"status": status})
        assert "resolve" in problem(answer, 409, "conflict")["detail"]


async def test_a_dispute_that_is_embedded_later_is_found_by_meaning_once_it_is_kept(api: httpx.AsyncClient) -> None:
    _, doubted = await disputed_by_key(api)
    await resolve(api, doubted, "both")
    hits = (await recall(api, "In which city is her home?", mode="vector"))["items"]
    assert {hit["memory"]["content"] for hit in hits} == {"lives in Oslo", "lives in Rome"}


# --- How it is settled ------------------------------------------------------------------------------------------------


async def test_a_disputed_memory_that_is_kept_takes_place_key_and_trust(api: httpx.AsyncClient) -> None:
    sure, doubted = await disputed_by_key(api)
    kept = await resolve(api, doubted, doubted["memory_id"])
    assert (kept["status"], kept["key"], kept["trust"]) == ("active", "home", 0.9)
    assert (kept["supersedes"], kept["contradicts"], kept["version"]) == ([sure["memory_id"]], [], 2)
    old = await read(api, sure)
    assert (old["status"], old["superseded_by"]) == ("superseded", kept["memory_id"])
    assert await found(api, "Where does she live?") == ["lives in Rome"]
    assert (await remember(api, "lives in Paris", 200, key="home"))["memory_id"] == kept["memory_id"]
    assert [past["record"]["status"] for past in await history(api, kept["memory_id"])] == ["active", "disputed"]


async def test_deleting_a_dispute_that_was_kept_brings_back_what_it_replaced(api: httpx.AsyncClient) -> None:
    sure, doubted = await disputed_by_key(api)
    await resolve(api, doubted, doubted["memory_id"])
    await api.delete(f"/v1/memories/{doubted['memory_id']}")
    assert ((await read(api, sure))["status"], (await read(api, sure))["key"]) == ("active", "home")


async def test_a_dispute_that_is_dismissed_does_not_come_back_with_a_deletion(api: httpx.AsyncClient) -> None:
    sure, doubted = await disputed_by_key(api)
    kept = await resolve(api, doubted, sure["memory_id"])
    assert (kept["memory_id"], kept["version"], kept["trust"]) == (sure["memory_id"], 1, 0.9)
    gone = await read(api, doubted)
    assert (gone["status"], gone["superseded_by"], gone["contradicts"]) == ("superseded", sure["memory_id"], [])
    await api.delete(f"/v1/memories/{sure['memory_id']}")
    assert await listed(api) == []


async def test_a_dispute_is_over_once_what_it_contradicts_is_deleted(api: httpx.AsyncClient) -> None:
    sure, doubted = await disputed_by_key(api)
    await api.delete(f"/v1/memories/{sure['memory_id']}")
    left = await read(api, doubted)
    assert (left["status"], left["key"], left["contradicts"], left["trust"]) == ("active", "home", [], 0.6)
    assert await found(api, "Where does she live?") == ["lives in Rome"]
    assert [past["record"]["status"] for past in await history(api, doubted["memory_id"])] == ["disputed"]


async def test_a_dispute_is_over_once_what_it_contradicts_is_deleted_by_filter(api: httpx.AsyncClient) -> None:
    _, doubted = await disputed_by_key(api)
    gone = await api.delete("/v1/memories", params={"user_id": "u", "key": "home", "status": "active"})
    assert gone.json() == {"deleted": 1}
    left = await read(api, doubted)
    assert (left["status"], left["key"], left["contradicts"]) == ("active", "home", [])
    assert await found(api, "Where does she live?") == ["lives in Rome"]


async def test_a_dispute_is_deleted_by_filter_together_with_what_it_contradicts(api: httpx.AsyncClient) -> None:
    await disputed_by_key(api)
    gone = await api.delete("/v1/memories", params={"user_id": "u", "status": "any"})
    assert gone.json() == {"deleted": 2}
    assert await listed(api, status="any") == []


async def test_a_dispute_with_two_goes_on_with_the_one_that_is_left(api: httpx.AsyncClient) -> None:
    one, two = await remember(api, "one", trust=0.9), await remember(api, "two", trust=0.9)
    made = await remember(api, "three", trust=0.5, supersedes=[one["memory_id"], two["memory_id"]])
    await api.delete(f"/v1/memories/{one['memory_id']}")
    assert (await read(api, made))["status"] == "disputed"
    await api.delete(f"/v1/memories/{two['memory_id']}")
    assert (await read(api, made))["status"] == "active"


async def test_a_dispute_goes_on_with_what_comes_back_under_its_key(api: httpx.AsyncClient) -> None:
    first = await remember(api, "lives in Bergen", key="home", trust=0.9)
    sure = await remember(api, "lives in Oslo", trust=0.9, supersedes=[first["memory_id"]])
    await api.patch(f"/v1/memories/{sure['memory_id']}", json={"key": "home"})
    doubted = [await remember(api, f"lives in {town}", key="home", trust=0.6) for town in ("Rome", "Turin")]
    await api.delete(f"/v1/memories/{sure['memory_id']}")
    assert ((await read(api, first))["status"], (await read(api, first))["key"]) == ("active", "home")
    for each in doubted:
        left = await read(api, each)
        assert (left["status"], left["contradicts"]) == ("disputed", [first["memory_id"]])
    await api.delete(f"/v1/memories/{first['memory_id']}")
    assert sorted([(await read(api, each))["status"] for each in doubted]) == ["active", "disputed"]


@pytest.mark.parametrize("again", [{"key": "home", "trust": 0.7}, {"trust": 1.0}])
async def test_a_dispute_is_over_or_goes_on_with_what_takes_the_place_of_an_expired_memory(
    api: httpx.AsyncClient, clock: TurnedClock, again: Json
) -> None:
    expires: Json = {"expires_at": "2026-06-02T00:00:00Z"}
    sure = await remember(api, "lives in Oslo", trust=0.9, **expires)
    doubted = await remember(api, "lives in Rome", key="city", trust=0.6, supersedes=[sure["memory_id"]])
    await api.patch(f"/v1/memories/{sure['memory_id']}", json={"key": again.get("key")})
    clock.move(days=60)
    fresh = await remember(api, "lives in Oslo", **again, **({} if "key" in again else expires))
    left = await read(api, doubted)
    assert (left["status"], left["key"], left["contradicts"]) == ("active", "city", [])
    assert fresh["memory_id"] != sure["memory_id"]


async def test_a_dispute_goes_on_with_what_takes_the_key_of_an_expired_memory(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "lives in Oslo", key="home", trust=0.9, expires_at="2026-06-02T00:00:00Z")
    doubted = await remember(api, "lives in Rome", key="home", trust=0.6)
    clock.move(days=60)
    fresh = await remember(api, "lives in Bonn", key="home")
    assert (await read(api, doubted))["contradicts"] == [fresh["memory_id"]]
    assert (await resolve(api, doubted, doubted["memory_id"]))["key"] == "home"


async def test_a_dispute_takes_the_key_of_an_expired_memory_if_what_is_sent_with_that_key_is_disputed(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "lives in Oslo", key="home", trust=0.9, expires_at="2026-06-02T00:00:00Z")
    doubted = await remember(api, "lives in Rome", key="home", trust=0.6)
    sure = await remember(api, "moves never", trust=0.9)
    clock.move(days=60)
    fresh = await remember(api, "lives in Bonn", key="home", trust=0.7, supersedes=[sure["memory_id"]])
    assert (fresh["status"], fresh["key"], fresh["contradicts"]) == ("disputed", None, [sure["memory_id"]])
    left = await read(api, doubted)
    assert (left["status"], left["key"], left["contradicts"]) == ("active", "home", [])


async def test_a_dispute_with_an_expired_memory_takes_its_key(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await remember(api, "lives in Oslo", key="home", trust=0.9, expires_at="2026-06-02T00:00:00Z")
    doubted = await remember(api, "lives in Rome", key="home", trust=0.6)
    clock.move(days=60)
    assert (await resolve(api, doubted, doubted["memory_id"]))["key"] == "home"


class Overtaken(Wrapped):
    """A store in which `first` happens between the reads of a write of memories and its commit, once."""

    first: Callable[[], Awaitable[object]] | None = None

    async def commit(self, changes: Sequence[Change]) -> Committed:
        first = self.first
        if first is not None and any(isinstance(each, Insert | Delete) for each in changes):
            self.first = None
            await first()
        committed: Committed = await self._store.commit(changes)
        return committed


@pytest.mark.parametrize("overtaken", ["dispute", "deletion"])
async def test_a_dispute_with_what_is_deleted_at_the_same_moment_is_over(
    start: Starter, settings: Settings, parts: TestParts, overtaken: str
) -> None:
    stores = wrapped_stores(parts, Overtaken)
    quiet = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    async with start(quiet) as service:
        api, (store,) = service.client, stores
        sure = await remember(api, "lives in Oslo", key="home", trust=0.9)

        async def dispute() -> Json:
            return await remember(api, "lives in Rome", key="home", trust=0.6)

        async def delete() -> httpx.Response:
            return await api.delete(f"/v1/memories/{sure['memory_id']}")

        async def overtake() -> None:
            await (delete() if overtaken == "dispute" else dispute())

        store.first = overtake
        await (dispute() if overtaken == "dispute" else delete())
        assert store.first is None, "the other one came in between"
        (left,) = (await api.get("/v1/memories", params={**OWNER, "status": "any"})).json()["items"]
        assert (left["content"], left["status"], left["key"], left["contradicts"]) == (
            "lives in Rome",
            "active",
            "home",
            [],
        )


async def test_both_stand_side_by_side_on_wish(api: httpx.AsyncClient) -> None:
    sure, doubted = await disputed_by_key(api)
    kept = await resolve(api, doubted, "both")
    assert (kept["status"], kept["key"], kept["trust"], kept["contradicts"]) == ("active", None, 0.6, [])
    assert sorted(await listed(api)) == ["lives in Oslo", "lives in Rome"]
    assert (await read(api, sure))["version"] == 1


async def test_what_cannot_be_kept_is_refused(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    sure = await remember(api, "one", trust=0.9, expires_at="2026-06-02T00:00:00Z")
    other = await remember(api, "other")
    doubted = await remember(api, "two", trust=0.5, supersedes=[sure["memory_id"]])
    path = f"/v1/memories/{doubted['memory_id']}/resolve"
    clock.move(days=2)
    for keep in (other["memory_id"], "mem_none", sure["memory_id"]):
        problem(await api.post(path, json={"keep": keep}), 422, "invalid", "/keep")
    problem(await api.post("/v1/memories/mem_none/resolve", json={"keep": "both"}), 404, "not_found")
    problem(await api.post(f"/v1/memories/{other['memory_id']}/resolve", json={"keep": "both"}), 409, "conflict")
    stale = await api.post(path, json={"keep": "both"}, headers={"If-Match": '"7"'})
    problem(stale, 412, "precondition_failed")
    assert (await read(api, doubted))["status"] == "disputed"
    assert (await resolve(api, doubted, doubted["memory_id"]))["supersedes"] == []
    problem(await api.post(path, json={"keep": "both"}), 409, "conflict")


async def test_a_key_that_another_memory_has_meanwhile_is_not_taken(api: httpx.AsyncClient) -> None:
    sure, doubted = await disputed_by_key(api)
    await api.patch(f"/v1/memories/{sure['memory_id']}", json={"key": None})
    await remember(api, "lives in Paris", key="home")
    path = f"/v1/memories/{doubted['memory_id']}/resolve"
    problem(await api.post(path, json={"keep": doubted["memory_id"]}), 409, "conflict")
    assert (await resolve(api, doubted, "both"))["key"] is None


async def test_only_the_owners_key_settles_a_dispute(service: Service) -> None:
    mine, theirs = await service.key(users=["u"]), await service.key(users=["bob"])
    api = service.client
    sure = await api.post("/v1/memories", json={**OWNER, "content": "one", "trust": 0.9}, headers=mine)
    body = {**OWNER, "content": "two", "trust": 0.5, "supersedes": [sure.json()["memory_id"]]}
    doubted = (await api.post("/v1/memories", json=body, headers=mine)).json()
    path = f"/v1/memories/{doubted['memory_id']}/resolve"
    problem(await api.post(path, json={"keep": "both"}, headers=theirs), 404, "not_found")
    assert (await api.post(path, json={"keep": "both"}, headers=mine)).status_code == 200


# --- The rule ---------------------------------------------------------------------------------------------------------

TRUST = st.sampled_from([0.0, 0.2, 0.4, 0.7, 1.0])


async def test_no_write_retires_or_overwrites_a_memory_of_more_trust(api: httpx.AsyncClient) -> None:
    """Whatever is written in whatever order: what stands active under a key never loses trust."""

    @given(st.lists(st.tuples(TRUST, st.sampled_from("abc"), st.booleans()), min_size=2, max_size=6))
    @settings(max_examples=25, deadline=None)
    def scripts(drawn: list[tuple[float, str, bool]]) -> None:
        examples.append(drawn)

    examples: list[list[tuple[float, str, bool]]] = []
    scripts()
    for number, script in enumerate(examples):
        owner, best = {"user_id": f"u{number}"}, -1.0
        for trust, content, pinned in script:
            body = {**OWNER, **owner, "content": content, "key": "k", "trust": trust, "pinned": pinned}
            made = await api.post("/v1/memories", json=body)
            assert made.status_code in (200, 201), made.text
            (active,) = (await api.get("/v1/memories", params={**owner, "key": "k"})).json()["items"]
            assert active["trust"] >= best
            best = active["trust"]
            assert made.json()["status"] == ("disputed" if made.json()["trust"] < best else "active")
