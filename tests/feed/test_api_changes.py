"""`GET /v1/changes`: pages, streams, bindings, and what is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.auth.keys import Keys, NewKey
from app.feed.endpoints import KINDS
from app.feed.service import ChangeFeed, Wanted
from app.lifespan import COLLECTIONS
from app.retention.service import DecayJob
from app.settings import ChangeSettings, JobSettings, Settings
from app.storage.scope import Scope
from tests.conftest import Service, Starter, TestParts
from tests.support.memories import OWNER, Json, problem, remember

pytestmark = pytest.mark.anyio

URL = "/v1/changes"


async def changes(api: httpx.AsyncClient, headers: dict[str, str] | None = None, **params: Any) -> list[Json]:
    answer = await api.get(URL, params={"limit": 1000, **params}, headers=headers)
    assert answer.status_code == 200, answer.text
    items: list[Json] = answer.json()["items"]
    return items


def told(items: list[Json]) -> list[tuple[str, str]]:
    return [(one["kind"], one["type"]) for one in items]


class Stream:
    """A client of a stream, which takes a part when it is asked to."""

    def __init__(self) -> None:
        self.status, self.headers, self.ended = 0, dict[str, str](), False
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._rest = b""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message.get("body"):
            await self._parts.put(message["body"])
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await self._parts.put(None)

    async def opened(self) -> None:
        """Waits for the first part, before which the stream's place is known."""
        async with asyncio.timeout(30):
            self._rest += await self._parts.get() or b""

    async def block(self) -> dict[str, str]:
        """The next event with an id, as its fields. Fails after a while."""
        async with asyncio.timeout(30):
            while True:
                block, found, rest = self._rest.partition(b"\n\n")
                if not found:
                    part = await self._parts.get()
                    if part is None:
                        self.ended = True
                        raise EOFError
                    self._rest += part
                    continue
                self._rest = rest
                fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
                if "data" in fields:
                    return fields

    async def change(self) -> Json:
        fields = await self.block()
        change: Json = json.loads(fields["data"])
        assert fields.get("id", change.get("cursor")) == change.get("cursor")
        return change


@asynccontextmanager
async def streaming(service: Service, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    stream, gone = Stream(), asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    given = {"accept": "text/event-stream", "host": "127.0.0.1", **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": URL,
        "raw_path": URL.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {"resources": service.resources},
    }
    running = asyncio.create_task(service.app(scope, receive, stream.send))
    try:
        yield stream
    finally:
        gone.set()
        running.cancel()
        await asyncio.wait((running,))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """No jobs, which change records when they like."""
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


# --- Pages ------------------------------------------------------------------------------------------------------------


async def test_each_kind_of_record_tells_its_changes(service: Service) -> None:
    api = service.client
    memory = await remember(api, "Ada prefers tea")
    await api.patch(f"/v1/memories/{memory['memory_id']}", json={"tags": ["t"]})
    said = {**OWNER, "messages": [{"role": "user", "content": "hello there"}], "memorize": "none"}
    assert (await api.post("/v1/sessions/s/messages", json=said)).status_code == 201
    await api.patch("/v1/sessions/s/messages/1", json={"content": "hello here"})
    assert (await api.delete("/v1/sessions/s/messages/1")).status_code == 204
    fact = {**OWNER, "subject": "Ada", "predicate": "drinks", "object": "tea"}
    assert (await api.post("/v1/facts", json=fact)).status_code == 201
    await api.post("/v1/graph/entities/Ada/aliases", json={**OWNER, "aliases": ["Ada Lovelace"]})
    task = (await api.post("/v1/tasks", json={**OWNER, "goal": "tea"})).json()
    await api.post(f"/v1/tasks/{task['task_id']}/checkpoints")
    done = {**OWNER, "event_type": "tool_call", "action_type": "t", "content": "c"}
    await api.post("/v1/actions", json=done)
    await api.post("/v1/procedures", json={**OWNER, "name": "n", "trigger": "t", "steps": ["one"]})
    assert (await api.post("/v1/agents", json={"agent_id": "b", "name": "B"})).status_code == 201
    assert (await api.patch("/v1/users/u/profile", json={"preferences": {"tea": "green"}})).is_success
    await api.delete(f"/v1/memories/{memory['memory_id']}")
    items = await changes(api)
    seen = set(told(items))
    assert {
        ("memory", "created"),
        ("memory", "updated"),
        ("memory", "deleted"),
        ("session", "created"),
        ("message", "created"),
        ("message", "updated"),
        ("message", "deleted"),
        ("fact", "created"),
        ("alias", "created"),
        ("task", "created"),
        ("checkpoint", "created"),
        ("action", "created"),
        ("procedure", "created"),
        ("agent", "created"),
        ("profile", "created"),
    } <= seen
    mine = [one for one in items if one["id"] == memory["memory_id"]]
    assert [(one["type"], one["version"]) for one in mine] == [("created", 1), ("updated", 2), ("deleted", 2)]
    assert all((one["agent_id"], one["user_id"]) == ("a", "u") for one in mine)


def test_every_kind_is_documented() -> None:
    assert {one.kind for one in COLLECTIONS if one.kind} == set(KINDS)


async def test_searches_accesses_and_decay_are_no_changes(service: Service) -> None:
    api = service.client
    await remember(api, "Ada prefers tea")
    before = await changes(api)
    await api.post("/v1/memories/search", json={**OWNER, "query": "tea"})
    await service.resources.accesses.flush()  # type: ignore[attr-defined]
    service.clock.move(days=40)
    assert await DecayJob(service.resources.store, service.clock).apply("default") == 1
    assert await changes(api, after=before[0]["cursor"]) == []


async def test_pages_follow_each_other_and_a_cursor_resumes(service: Service) -> None:
    api = service.client
    ids = [(await remember(api, f"number {n} is a memory"))["memory_id"] for n in range(7)]
    seen, after = [], None
    while True:
        page = (await api.get(URL, params={"limit": 3, **({"after": after} if after else {})})).json()
        seen += [one["id"] for one in page["items"]]
        after = page["next_cursor"]
        if after is None:
            break
        assert after == page["cursor"] == page["items"][-1]["cursor"]
    assert seen == ids
    assert await changes(api, after=page["cursor"]) == await changes(api, after="now") == []
    new = await remember(api, "one more of them")
    assert [one["id"] for one in await changes(api, after=page["cursor"])] == [new["memory_id"]]
    header = await api.get(URL, params={"after": "now"}, headers={"Last-Event-ID": page["cursor"]})
    assert [one["id"] for one in header.json()["items"]] == [new["memory_id"]]


async def test_filters_by_owner_kind_and_type(service: Service) -> None:
    api = service.client
    mine, theirs = await remember(api, "tea for me"), await remember(api, "tea for them", user_id="v", agent_id="b")
    await api.patch(f"/v1/memories/{mine['memory_id']}", json={"tags": ["t"]})
    await api.post("/v1/facts", json={**OWNER, "subject": "Ada", "predicate": "drinks", "object": "tea"})
    assert {one["user_id"] for one in await changes(api, user_id="u")} == {"u"}
    assert [one["id"] for one in await changes(api, agent_id="b")] == [theirs["memory_id"]]
    assert set(told(await changes(api, kind="fact"))) == {("fact", "created")}
    assert told(await changes(api, kind="memory,fact", type="updated", user_id="u")) == [("memory", "updated")]
    assert await changes(api, type="deleted") == []


async def test_records_come_along_as_they_are_now(service: Service) -> None:
    api = service.client
    kept, gone = await remember(api, "Ada prefers tea"), await remember(api, "Ada had coffee")
    await api.patch(f"/v1/memories/{kept['memory_id']}", json={"tags": ["t"]})
    await api.delete(f"/v1/memories/{gone['memory_id']}")
    items = await changes(api, include="record")
    assert {one["record"] and one["record"]["content"] for one in items} == {"Ada prefers tea", None}
    first = next(one for one in items if one["id"] == kept["memory_id"])
    assert first["record"]["tags"] == ["t"]
    assert not {"tenant_id", "content_hash", "anchored_at"} & first["record"].keys()
    assert "record" not in (await changes(api))[0]


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"kind": "memories"}, "/query/kind"),
        ({"kind": "memory,"}, "/query/kind"),
        ({"type": "made"}, "/query/type"),
        ({"limit": 0}, "/query/limit"),
        ({"format": "xml"}, "/query/format"),
        ({"include": "all"}, "/query/include"),
        ({"user_id": "a/b"}, "/query/user_id"),
        ({"cursor": "x"}, "/query/cursor"),
    ],
)
async def test_bad_input_names_field_and_rule(service: Service, params: Json, pointer: str) -> None:
    refused = problem(await service.client.get(URL, params=params), 422, "invalid")
    assert refused["errors"][0]["pointer"] == pointer


async def test_a_cursor_is_bound_to_its_tenant(service: Service) -> None:
    api = service.client
    await remember(api, "tea")
    cursor = (await changes(api))[0]["cursor"]
    other = await service.key("other")
    for wrong in (cursor, cursor[:-1] + "x", "nonsense", ""):
        if wrong:
            problem(await api.get(URL, params={"after": wrong}, headers=other), 400, "invalid_cursor")
    assert await changes(api, other) == []


async def test_a_key_sees_the_changes_of_what_it_may_read(service: Service) -> None:
    api, full = service.client, await service.key()
    pairs = [("a", "u"), ("a", None), (None, "u"), ("a", "v"), ("b", "u"), ("b", None), (None, "v")]
    for agent, user in pairs:
        body = {"agent_id": agent, "user_id": user, "content": f"tea of {agent} {user}"}
        assert (await api.post("/v1/memories", json=body, headers=full)).status_code == 201
    every: tuple[Json, ...] = ({}, {"users": ["u"]}, {"agents": ["a"]}, {"agents": ["a"], "users": ["u"]})
    for bindings in every:
        bound = await service.key(**bindings)
        listed = (await api.get("/v1/memories", params={"limit": 100}, headers=bound)).json()["items"]
        seen = await changes(api, bound, kind="memory")
        assert {one["id"] for one in seen} == {one["memory_id"] for one in listed}
        everything = await changes(api, bound, include="record")
        assert all(one["record"] for one in everything)
    assert await changes(api, await service.key("other")) == []


async def test_a_key_bound_to_a_user_sees_agents_as_their_route_shows_them(service: Service) -> None:
    agent = {"agent_id": "a", "name": "A", "system_prompt": "s3cret", "settings": {"extraction_instructions": "s3cret"}}
    full = await service.key()
    assert (await service.client.post("/v1/agents", json=agent, headers=full)).status_code == 201
    lesson = {"procedural_knowledge": "s3cret"}
    assert (await service.client.patch("/v1/agents/a/experience", json=lesson, headers=full)).status_code == 200
    for key in (await service.key(users=["u"]), full):
        shown = (await service.client.get("/v1/agents/a", headers=key)).json()
        told_of = await changes(service.client, key, kind="agent", include="record")
        assert told_of
        assert all(change["record"] == shown for change in told_of)
        assert ("s3cret" in str(told_of)) == (key is full)


async def test_an_erased_user_leaves_a_mark_that_names_nobody(service: Service) -> None:
    api = service.client
    full, bound = await service.key(verbs="read,write,admin"), await service.key(users=["v"])
    for user in ("u", "v"):
        await api.post("/v1/memories", json={"user_id": user, "content": f"tea of {user}"}, headers=full)
    before = (await changes(api, full))[-1]["cursor"]
    assert (await api.delete("/v1/users/u", headers=full)).status_code == 200
    items = await changes(api, full)
    assert {one["user_id"] for one in items} == {"v", None}
    mark = {"kind": "profile", "id": None, "type": "erased", "agent_id": None, "user_id": None, "version": None}
    assert items[-1] | mark == items[-1]
    for params in ({}, {"user_id": "u"}, {"kind": "fact"}, {"type": "erased"}):
        assert [one["type"] for one in await changes(api, full, after=before, **params)] == ["erased"]
    assert [one["type"] for one in await changes(api, bound)] == ["created"]


async def test_what_is_older_than_the_retention_is_lost(service: Service) -> None:
    api = service.client
    await remember(api, "old tea")
    old = (await api.get(URL, params={"limit": 1})).json()["cursor"]
    await remember(api, "older tea")
    service.clock.move(hours=73)
    await remember(api, "new tea")
    await service.resources.store.change_log.prune()
    problem(await api.get(URL, params={"after": old}), 410, "changes_lost")
    assert len(await changes(api)) == 1
    async with streaming(service, f"after={old}") as stream:
        with pytest.raises(EOFError):
            await stream.block()
        assert (stream.status, stream.headers["content-type"]) == (410, "application/problem+json")


async def test_without_a_log_the_feed_says_so(start: Starter, settings: Settings) -> None:
    off = settings.model_copy(update={"changes": ChangeSettings(retention_hours=0)})
    async with start(off) as service:
        await remember(service.client, "tea")
        problem(await service.client.get(URL), 409, "changes_off")


# --- Streams ----------------------------------------------------------------------------------------------------------


async def test_a_stream_tells_what_was_and_goes_on_with_what_comes(service: Service) -> None:
    first = await remember(service.client, "tea in the morning")
    async with streaming(service, "kind=memory") as stream:
        assert (await stream.change())["id"] == first["memory_id"]
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        second = await remember(service.client, "coffee at noon")
        change = await stream.change()
        assert (change["id"], change["type"]) == (second["memory_id"], "created")
    third = await remember(service.client, "water at night")
    async with streaming(service, "kind=memory", **{"Last-Event-ID": change["cursor"]}) as stream:
        assert (await stream.change())["id"] == third["memory_id"]


async def test_a_stream_tells_what_another_process_writes(start: Starter, settings: Settings) -> None:
    async with start(settings) as one, start(settings) as other, streaming(one, "after=now&format=events") as stream:
        await stream.opened()
        made = await remember(other.client, "tea of another process")
        assert (await stream.change())["id"] == made["memory_id"]


async def test_a_client_that_takes_nothing_holds_up_nobody(service: Service) -> None:
    """The stream waits with one part in hand, and reads on in the log when the client does."""
    async with streaming(service, "after=now&kind=memory") as slow, streaming(service, "after=now&kind=memory") as fast:
        await slow.opened()
        await fast.opened()
        ids = []
        for number in range(20):
            ids.append((await remember(service.client, f"number {number} is a memory"))["memory_id"])
            assert (await fast.change())["id"] == ids[-1]
        assert [(await slow.change())["id"] for _ in ids] == ids


async def test_a_stream_ends_when_the_service_drains(service: Service) -> None:
    async with streaming(service, "after=now") as stream:
        await stream.opened()
        service.resources.lifecycle.draining = True
        with pytest.raises(EOFError):
            await stream.block()
        assert (stream.status, stream.ended) == (200, True)
    service.resources.lifecycle.draining = False


async def test_streams_are_capped(start: Starter, settings: Settings, parts: TestParts) -> None:
    parts.tuning = replace(parts.tuning, streams=1)
    async with start(settings) as service:
        await remember(service.client, "tea")
        async with streaming(service) as stream:
            await stream.change()
            problem(await service.client.get(URL, params={"format": "events"}), 503, "busy")
            assert len(await changes(service.client)) == 1


async def test_a_stream_asks_whether_its_key_is_still_valid(service: Service) -> None:
    resources = service.resources
    feed = ChangeFeed(resources.store, Scope("default"), resources.clock, heartbeat=0)  # each idle turn says so
    asked: list[bool] = []

    async def allowed() -> bool:
        asked.append(len(asked) < 2)
        return asked[-1]

    async with asyncio.timeout(30):
        parts = [part async for part in feed.events(None, Wanted(), ending=lambda: False, allowed=allowed)]
    assert asked == [True, True, False]
    assert [part.startswith(b": alive\nid: ") for part in parts] == [False, True, True]


async def test_a_revoked_key_is_told_of_nothing_more(service: Service) -> None:
    keys = Keys(service.resources.store, service.resources.clock)
    key, doc = await keys.create(NewKey("default", "reader", ["read"], requests_per_second=1))
    full = await service.key()
    body = {**OWNER, "content": "tea"}
    async with streaming(service, "after=now&kind=memory", Authorization=f"Bearer {key}") as stream:
        await stream.opened()
        for content in ("tea", "coffee", "water"):  # more pages than the key has requests
            await service.client.post("/v1/memories", json={**body, "content": content}, headers=full)
            assert (await stream.change())["kind"] == "memory"
        await keys.revoke(doc["id"])
        await service.client.post("/v1/memories", json={**body, "content": "milk"}, headers=full)
        with pytest.raises(EOFError):
            await stream.block()
        assert stream.ended


async def test_an_idle_stream_writes_nothing(service: Service) -> None:
    await remember(service.client, "tea")
    position = await service.resources.store.change_log.end("default")
    async with streaming(service, "after=now") as stream:
        await stream.opened()
        await asyncio.sleep(1.5)
        assert await service.resources.store.change_log.end("default") == position
        assert stream.status == 200
