"""Long answers over a real port: once a key is not what it was, nothing more is told than what is on its way."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from app.auth.keys import API_KEYS, KeyRecord, Keys, NewKey
from app.feed.service import READ_EVERY_SECONDS, STREAMED, WAIT_SECONDS, ChangeFeed, Wanted
from app.retention.user_export import EXPORT_BATCH
from app.sessions.schemas import MESSAGES
from app.settings import JobSettings, Settings
from app.storage.changes import Update
from app.storage.protocol import Store
from app.storage.scope import SYSTEM, Scope
from tests.conftest import Service, Starter, TestParts, wrapped_stores
from tests.support.issuer import Issuer
from tests.support.memories import OWNER
from tests.support.port import on_a_port
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio

SECONDS = 60
"""How long a test waits for what must come."""
PAGES = 3
LIFETIME = timedelta(hours=1)


class Interrupted(Wrapped):
    """A store that does something after a certain page of a long answer was read, before any of that page is sent."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.pages, self._at = 0, 0
        self._then: Callable[[], Awaitable[Any]] | None = None

    def after(self, page: int, then: Callable[[], Awaitable[Any]]) -> None:
        self.pages, self._at, self._then = 0, page, then

    async def was_read(self) -> None:
        self.pages += 1
        if self._then is not None and self.pages == self._at:
            await self._then()

    async def find(self, collection: Any, *given: Any, **named: Any) -> Any:
        docs = await self._store.find(collection, *given, **named)
        if collection is MESSAGES and named.get("limit") == EXPORT_BATCH:
            await self.was_read()
        return docs

    @property
    def change_log(self) -> Any:
        return InterruptedLog(self)


class InterruptedLog:
    def __init__(self, interrupted: Interrupted) -> None:
        self._interrupted, self._log = interrupted, interrupted._store.change_log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def page(self, *given: Any, **named: Any) -> Any:
        page = await self._log.page(*given, **named)
        if named.get("limit") == STREAMED:
            await self._interrupted.was_read()
        return page


class Counter:
    """Stands for all limits, and limits nothing."""

    def __init__(self) -> None:
        self.counted: list[str] = []

    def check(self, key_id: str, per_second: float | None) -> None:
        self.counted.append(key_id)

    def admit(self, key_id: str) -> None:
        self.counted.append(key_id)

    def count(self, address: str) -> None:
        self.counted.append(address)


class Reader:
    """A caller whose key or token ends by `end`."""

    def __init__(self, headers: dict[str, str], end: Callable[[], Awaitable[Any]]) -> None:
        self.headers, self.end = headers, end


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


@pytest.fixture
async def service(parts: TestParts, start: Starter, accepting: Settings) -> AsyncIterator[Service]:
    """With `PAGES` pages of changes and of an export's lines; the clock begins where the issuer's is."""
    wrapped_stores(parts, Interrupted)
    async with start(accepting) as service:
        service.clock.time = datetime.now(UTC)
        writer = await service.key()
        for page in range(PAGES):
            said = [{"role": "user", "content": f"number {number} of {page}"} for number in range(STREAMED)]
            body = {**OWNER, "messages": said, "memorize": "none"}
            made = await service.client.post("/v1/sessions/s/messages", json=body, headers=writer)
            assert made.status_code == 201, made.text
        yield service


ENDS = ("revoked", "expired", "bound to others", "bound no more", "token expired")


@pytest.fixture(params=ENDS)
async def reader(request: pytest.FixtureRequest, service: Service, issuer: Issuer) -> Reader:
    store, clock = service.resources.store, service.clock
    keys = Keys(store, clock)
    key, record = await keys.create(NewKey("default", "reader", ["read"], users=["u"], lifetime=LIFETIME))

    async def later() -> None:
        clock.move(hours=1)

    async def bind(*users: str) -> None:
        bound: KeyRecord = {"users": list(users)}
        change = Update(API_KEYS, SYSTEM, record["id"], set=bound, inc={"version": 1})
        await store.commit([change])

    if request.param == "token expired":
        token = issuer.issue("recalld:read", tenant="default", sub="u")
        return Reader({"Authorization": f"Bearer {token}"}, later)
    ends: dict[str, Callable[[], Awaitable[Any]]] = {
        "revoked": lambda: keys.revoke(record["id"]),
        "expired": later,
        "bound to others": lambda: bind("v"),
        "bound no more": bind,
    }
    return Reader({"Authorization": f"Bearer {key}"}, ends[request.param])


async def changes(
    address: str, reader: Reader, opened: Callable[[], Awaitable[Any]] | None = None, **params: Any
) -> int:
    """How many changes a stream tells until it ends. Does `opened` after the first part, which tells none."""
    number = 0
    asked = {"format": "events", **params}
    async with (
        asyncio.timeout(SECONDS),
        httpx.AsyncClient(base_url=address, headers=reader.headers, timeout=SECONDS) as client,
        client.stream("GET", "/v1/changes", params=asked) as answer,
    ):
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            number += line.startswith("data: ")
            if opened is not None and line.startswith("retry: "):
                await opened()
    return number


async def test_of_full_pages_that_follow_each_other_only_those_before_the_end_are_told(
    service: Service, reader: Reader
) -> None:
    store: Any = service.resources.store
    async with on_a_port(service) as address:
        store.after(2, reader.end)
        assert await changes(address, reader, kind="message") == STREAMED
        assert store.pages == 2


async def test_between_the_pieces_of_a_page_of_records_a_stream_ends(service: Service) -> None:
    answers = iter([True])

    async def allowed() -> bool:
        return next(answers, False)

    feed = ChangeFeed(service.resources.store, Scope("default"), service.clock)
    wanted = Wanted(kinds=("message",), records=True)
    parts = [part async for part in feed.events(None, wanted, ending=lambda: False, allowed=allowed)]
    told = b"".join(parts)
    assert told.endswith(b"\n\n"), "whole events only"
    assert 0 < told.count(b"\ndata: ") < STREAMED


@pytest.mark.parametrize(("reader", "busy"), [("revoked", True), *((end, False) for end in ENDS)], indirect=["reader"])
async def test_a_stream_that_waits_ends_and_tells_nothing_more(service: Service, reader: Reader, busy: bool) -> None:
    assert WAIT_SECONDS + READ_EVERY_SECONDS <= 1, "it looks at least every second"
    writer = await service.key()

    async def end() -> None:
        await reader.end()
        if busy:
            body = {**OWNER, "messages": [{"role": "user", "content": "more"}]}
            made = await service.client.post("/v1/sessions/s/messages", json=body, headers=writer)
            assert made.status_code == 201, made.text

    async with on_a_port(service) as address:
        assert await changes(address, reader, end, after="now") == 0


@pytest.mark.parametrize("reader", ["revoked", "token expired"], indirect=True)
async def test_an_export_ends_without_its_last_line(service: Service, reader: Reader) -> None:
    store: Any = service.resources.store
    async with on_a_port(service) as address:
        store.after(2, reader.end)
        async with httpx.AsyncClient(base_url=address, headers=reader.headers, timeout=SECONDS) as client:
            answer = await client.get("/v1/users/u/export")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["type"] for line in lines if line["type"] != "record"] == ["export"]
    assert sum(line.get("collection") == MESSAGES.name for line in lines) == EXPORT_BATCH
    assert store.pages == 2


@pytest.mark.parametrize("reader", ["revoked", "token expired"], indirect=True)
async def test_looking_at_the_key_counts_towards_no_limit(service: Service, reader: Reader) -> None:
    store: Any = service.resources.store
    requests, costs, wrong = Counter(), Counter(), Counter()
    limits: Any = {"limiter": requests, "costs": costs, "wrong_keys": wrong}
    counted = Service(service.app, service.client, replace(service.resources, **limits), service.clock)
    async with on_a_port(counted) as address:
        store.after(PAGES, reader.end)
        assert await changes(address, reader, kind="message") == (PAGES - 1) * STREAMED
    assert (len(requests.counted), len(costs.counted), wrong.counted) == (1, 1, [])
