from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.errors import Forbidden, InvalidCursor, NotFound
from app.storage.changes import Delete, Insert
from app.storage.protocol import Order, Store
from app.storage.repository import Listing, Repository
from app.storage.schema import EVERYTHING, Eq
from app.storage.scope import Scope
from app.storage.sqlite.store import EmbeddedStore
from tests.support.declared import OTHER, THINGS, T, at, thing

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await EmbeddedStore.open(tmp_path, [THINGS], dim=8)
    yield made
    await made.close()


@pytest.fixture
async def things(store: Store) -> Repository:
    await store.commit(
        [thing(f"t{i}", created_at=at(i // 2), group="g", agent_id="a", user_id=f"u{i}") for i in range(5)]
    )
    return Repository(store, Scope(T), THINGS)


def bound(store: Store) -> Repository:
    return Repository(store, Scope(T, users=frozenset({"u1", "u2"})), THINGS)


async def page(
    things: Repository, cursor: str | None, *, request: str = "m", order: Order = "desc"
) -> tuple[list[str], str | None]:
    docs, following = await things.page(Eq("group", "g"), Listing(order=order, limit=2, cursor=cursor), request=request)
    return [document.doc["thing_id"] for document in docs], following


async def test_pages_follow_their_cursors_to_the_end(things: Repository) -> None:
    seen, cursor = await page(things, None)
    while cursor is not None:
        more, cursor = await page(things, cursor)
        seen += more
    assert seen == ["t4", "t3", "t2", "t1", "t0"]


async def test_a_full_last_page_has_no_cursor(things: Repository) -> None:
    docs, cursor = await things.page(EVERYTHING, Listing(order="asc", limit=5, cursor=None), request="m")
    assert (len(docs), cursor) == (5, None)


async def test_a_cursor_is_good_for_its_own_list_only(things: Repository, store: Store) -> None:
    _, cursor = await page(things, None)
    with pytest.raises(InvalidCursor):
        await page(things, cursor, request="other filter")
    with pytest.raises(InvalidCursor):
        await page(things, cursor, order="asc")
    with pytest.raises(InvalidCursor):
        await page(Repository(store, Scope(OTHER), THINGS), cursor)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "AAAAAAAAAAA", "ключ", "=" * 9, "A" * 500, "W10="])
async def test_what_is_no_cursor_is_refused(things: Repository, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        await page(things, cursor)


async def test_a_tampered_cursor_is_refused(things: Repository) -> None:
    _, cursor = await page(things, None)
    assert cursor is not None
    raw = bytearray(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    for i in range(len(raw)):
        forged = bytes(raw[:i] + bytes([raw[i] ^ 1]) + raw[i + 1 :])
        with pytest.raises(InvalidCursor):
            await page(things, urlsafe_b64encode(forged).decode().rstrip("="))


async def test_a_bound_caller_sees_its_own_and_no_others(things: Repository, store: Store) -> None:
    repository = bound(store)
    assert [doc["thing_id"] for doc in await repository.find(EVERYTHING, order="asc")] == ["t1", "t2"]
    assert await repository.count(EVERYTHING) == 2
    assert set(await repository.get_many(["t0", "t1", "t1", "none"])) == {"t1"}
    assert await repository.find_one("t0") is None
    with pytest.raises(NotFound):
        await repository.get("t0")


async def test_a_bound_caller_changes_nothing_outside(things: Repository, store: Store) -> None:
    doc = await things.get("t0")
    repository = bound(store)
    for attempt in (lambda: repository.update(doc, {}, now=at(0)), lambda: repository.delete(doc)):
        with pytest.raises(Forbidden):
            attempt()
    with pytest.raises(Forbidden):
        repository.insert({"thing_id": "new", "user_id": None})


async def test_changes_carry_the_tenant_and_expect_the_version_that_was_read(things: Repository) -> None:
    doc = await things.get("t0")
    insert = things.insert({"thing_id": "new"})
    assert isinstance(insert, Insert)
    assert insert.doc["tenant_id"] == T
    update = things.update(doc, {"name": "n"}, now=at(9))
    assert (update.tenant, update.set, update.inc, update.expect) == (
        T,
        {"name": "n", "updated_at": at(9)},
        {"version": 1},
        {"version": 1},
    )
    assert things.delete(doc) == Delete(THINGS, T, "t0", {"version": 1, "created_at": doc["created_at"]})
