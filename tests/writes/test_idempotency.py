"""`Idempotency-Key`: one effect, one answer, however often a request is sent."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.auth.keys import Keys
from app.errors import IdempotencyInProgress
from app.storage.changes import Insert
from app.writes.executor import IDEMPOTENCY, LEASE, KeyedRequest, WriteResult, run_write
from tests.conftest import Service, TurnedClock
from tests.support.memories import OWNER, listed, problem, remember

pytestmark = pytest.mark.anyio

FACT = {**OWNER, "content": "tea", "deduplicate": False, "metadata": {"$a.b": 1.5, "": None}}
KEY = {"Idempotency-Key": "k-1"}
REPLAYED = "idempotency-replayed"


async def post(api: httpx.AsyncClient, path: str = "/v1/memories", body: Any = FACT, **headers: str) -> httpx.Response:
    return await api.post(path, json=body, headers={**KEY, **headers})


async def test_the_same_request_has_the_same_answer_and_no_second_effect(api: httpx.AsyncClient) -> None:
    first, second = await post(api), await post(api)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert first.headers["etag"] == second.headers["etag"]
    assert REPLAYED not in first.headers
    assert second.headers[REPLAYED] == "true"
    assert len(await listed(api)) == 1


async def test_the_answer_stays_what_it_was(api: httpx.AsyncClient) -> None:
    first = await post(api)
    path = f"/v1/memories/{first.json()['memory_id']}"
    await api.patch(path, json={"content": "coffee"})
    assert (await post(api)).content == first.content
    await api.delete(path)
    assert (await post(api)).content == first.content
    assert await listed(api) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/memories", {**FACT, "content": "coffee"}),
        ("/v1/memories/batch", {"items": [FACT]}),
        ("/v1/sessions", {"agent_id": "a", "user_id": "u"}),
    ],
)
async def test_another_request_under_the_same_key_is_refused(api: httpx.AsyncClient, path: str, body: Any) -> None:
    await post(api)
    problem(await post(api, path, body), 422, "idempotency_mismatch")
    assert await listed(api) == ["tea"]


async def test_every_post_that_writes_takes_a_key(api: httpx.AsyncClient) -> None:
    message = {**OWNER, "messages": [{"role": "user", "content": "hi"}]}
    for number, (path, body) in enumerate(
        [
            ("/v1/memories/batch", {"items": [FACT]}),
            ("/v1/sessions", {"session_id": "s1", "agent_id": "a", "user_id": "u"}),
            ("/v1/sessions/s2/messages", message),
            ("/v1/sessions/s2/end", None),
        ]
    ):
        key = {"Idempotency-Key": f"each-{number}"}
        first, second = [await api.post(path, json=body, headers=key) for _ in range(2)]
        assert first.is_success, first.text
        assert (first.content, first.status_code) == (second.content, second.status_code)
        assert second.headers[REPLAYED] == "true"


async def test_the_stored_answer_of_an_append_holds_its_numbers(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]}
    path = "/v1/sessions/s/messages"
    await api.post(path, json=body)
    first = await post(api, path, body)
    assert [message["seq"] for message in first.json()["items"]] == [3, 4]
    await api.post(path, json=body)
    again = await post(api, path, body)
    assert again.content == first.content
    assert (await api.get("/v1/sessions/s")).json()["message_count"] == 6


async def test_twenty_at_once_have_one_effect(api: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(post(api) for _ in range(20)))
    done = [answer for answer in answers if answer.status_code == 201]
    assert len({answer.content for answer in done}) == 1
    assert len([answer for answer in done if REPLAYED not in answer.headers]) == 1
    for answer in answers:
        if answer.status_code != 201:
            problem(answer, 409, "idempotency_in_progress")
            assert int(answer.headers["retry-after"]) >= 1
    assert len(await listed(api)) == 1


async def test_a_request_that_failed_leaves_its_key_unused(api: httpx.AsyncClient) -> None:
    old = await remember(api, "old")
    await remember(api, "new", supersedes=[old["memory_id"]])
    problem(await post(api, body={**FACT, "content": ""}), 422)
    problem(await post(api, body={**FACT, "supersedes": ["mem_none"]}), 422)
    problem(await post(api, body={**FACT, "supersedes": [old["memory_id"]]}), 409)
    problem(await api.post("/v1/memories", content=b"{", headers={**KEY, "Content-Type": "application/json"}), 400)
    assert (await post(api)).status_code == 201


async def test_a_key_is_free_again_after_a_day(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    first = await post(api)
    clock.move(hours=23, minutes=59)
    assert (await post(api)).content == first.content
    clock.move(minutes=2)
    other = await post(api, body={**FACT, "content": "coffee"})
    assert other.status_code == 201
    assert REPLAYED not in other.headers


async def test_the_claim_of_a_crashed_request_lapses(service: Service, clock: TurnedClock) -> None:
    def crashed() -> dict[str, Any]:
        (doc,) = held
        return {**doc, "answered": False, "status": None, "headers": None, "body": None}

    api, store = service.client, service.resources.store
    first = await post(api)
    held = await store.find(IDEMPOTENCY, "default")
    claim = crashed() | {"claim_id": KeyedRequest("default", "anonymous", "k-2", "").claim_id}
    await store.commit([Insert(IDEMPOTENCY, claim)])
    late = {"Idempotency-Key": "k-2"}
    waiting = await post(api, **late)
    problem(waiting, 409, "idempotency_in_progress")
    assert int(waiting.headers["retry-after"]) >= 1
    problem(await post(api, body={**FACT, "content": "coffee"}, **late), 422, "idempotency_mismatch")
    clock.move(seconds=LEASE.total_seconds())
    done = await post(api, **late)
    assert done.status_code == 201
    assert done.json()["memory_id"] != first.json()["memory_id"]
    assert (await post(api, **late)).content == done.content


async def test_who_lost_the_lease_cannot_finish(service: Service, clock: TurnedClock) -> None:
    """The slow first request wakes up when a second has taken its claim over."""
    request = KeyedRequest("default", "anonymous", "k", "f")
    store = service.resources.store

    async def slow() -> WriteResult:
        clock.move(seconds=LEASE.total_seconds())
        await run_write(store, clock, request, quick)
        return WriteResult({"who": "slow"})

    async def quick() -> WriteResult:
        return WriteResult({"who": "quick"})

    with pytest.raises(Exception, match="took over"):
        await run_write(store, clock, request, slow)
    assert (await run_write(store, clock, request, slow)).body == {"who": "quick"}


async def test_work_that_takes_longer_than_its_lease_keeps_its_claim(service: Service, clock: TurnedClock) -> None:
    """As asking a language model does: nobody else takes the claim meanwhile, and the answer is stored."""
    request, lease = KeyedRequest("default", "anonymous", "k", "f"), timedelta(seconds=0.3)
    store = service.resources.store

    async def leased_until() -> Any:
        claim = await store.get(IDEMPOTENCY, request.tenant, request.claim_id)
        return claim and claim["leased_until"]

    async def slow() -> WriteResult:
        for _ in range(3):
            before = await leased_until()
            clock.move(seconds=0.2)
            async with asyncio.timeout(60):
                while await leased_until() == before:  # noqa: ASYNC110 (a task beside this one renews it)
                    await asyncio.sleep(0.01)
            with pytest.raises(IdempotencyInProgress):
                await run_write(store, clock, request, quick)
        return WriteResult({"who": "slow"})

    async def quick() -> WriteResult:
        return WriteResult({"who": "quick"})

    assert (await run_write(store, clock, request, slow, lease=lease)).body == {"who": "slow"}
    assert (await run_write(store, clock, request, quick)).headers["Idempotency-Replayed"] == "true"


async def test_keys_belong_to_an_api_key_of_a_tenant(service: Service) -> None:
    owners = [await service.key("one"), await service.key("one"), await service.key("two")]
    answers = [await post(service.client, **headers) for headers in owners]
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert len({answer.json()["memory_id"] for answer in answers}) == 3
    assert all(REPLAYED not in answer.headers for answer in answers)


async def test_authorisation_comes_first(service: Service) -> None:
    headers = await service.key()
    await post(service.client, **headers)
    problem(await post(service.client), 401)
    read = await service.key(verbs="read")
    problem(await post(service.client, **read), 403)


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_key_has_1_to_255_characters(api: httpx.AsyncClient, key: str) -> None:
    response = await api.post("/v1/memories", json=FACT, headers={"Idempotency-Key": key})
    problem(response, 422, "invalid", "/header/Idempotency-Key")
    assert await listed(api) == []
    for fine in ("k", "k" * 255):
        assert (await api.post("/v1/memories", json=FACT, headers={"Idempotency-Key": fine})).status_code == 201


async def test_searches_ignore_it(api: httpx.AsyncClient) -> None:
    await remember(api, "tea")
    for query, count in (("tea", 1), ("rain", 0), ("tea", 1)):
        found = await post(api, "/v1/memories/search", {**OWNER, "query": query, "mode": "text"})
        assert REPLAYED not in found.headers
        assert len(found.json()["items"]) == count
    assert (await post(api)).status_code == 201


# --- Rotated API keys -------------------------------------------------------------------------------------------------


def key_id(headers: dict[str, str]) -> str:
    return headers["Authorization"].split("_")[1]


async def rotated(service: Service, headers: dict[str, str], hours: float = 1) -> dict[str, str]:
    """Headers of the successor of that key."""
    keys = Keys(service.resources.store, service.clock)
    key, _ = await keys.rotate(key_id(headers), timedelta(hours=hours))
    return {"Authorization": f"Bearer {key}"}


async def stored(api: httpx.AsyncClient, headers: dict[str, str]) -> int:
    page = await api.get("/v1/memories", headers=headers)
    assert page.status_code == 200, page.text
    return len(page.json()["items"])


async def test_a_retry_with_the_rotated_key_is_a_retry(service: Service) -> None:
    api, first = service.client, await service.key()
    sent = await post(api, **first)
    second = await rotated(service, first, hours=0)
    third = await rotated(service, second)
    for headers in (second, third):
        again = await post(api, **headers)
        assert again.headers[REPLAYED] == "true"
        assert again.content == sent.content
    assert await stored(api, third) == 1


async def test_the_old_and_the_new_key_share_idempotency_keys_both_ways(service: Service) -> None:
    api, old = service.client, await service.key()
    new = await rotated(service, old)
    sent = await post(api, **new)
    assert REPLAYED not in sent.headers
    assert (await post(api, **old)).content == sent.content
    problem(await post(api, body={**FACT, "content": "coffee"}, **old), 422, "idempotency_mismatch")


async def test_a_key_of_another_lineage_runs_its_own(service: Service) -> None:
    api, ours, other = service.client, await service.key(), await service.key()
    await post(api, **ours)
    answer = await post(api, **await rotated(service, other))
    assert REPLAYED not in answer.headers
    assert await stored(api, other) == 2


async def test_what_the_rotated_key_writes_names_that_key(service: Service) -> None:
    admin = await service.key(verbs="read,write,admin")
    new = await rotated(service, admin)
    memory = (await post(service.client, **new)).json()
    assert memory["source"]["api_key_id"] == key_id(new)
    trail = (await service.client.get("/v1/audit", headers=new)).json()["items"]
    assert [entry["key_id"] for entry in trail if memory["memory_id"] in entry["records"]] == [key_id(new)]
    shown = (await service.client.get(f"/v1/keys/{key_id(new)}", headers=new)).json()
    assert "lineage" not in shown
