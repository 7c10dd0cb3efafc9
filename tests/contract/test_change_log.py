"""The change log: what a commit tells, in which order, for how long, and of whom no longer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.errors import ChangesLost
from app.settings import Settings
from app.storage.change_log import LogEntry, LogOptions, Position
from app.storage.changes import CommitConflict, Delete, DeleteWhere, Insert, Update
from app.storage.factory import open_store, where_of
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Collection, Eq, Filter, In
from tests.conftest import TurnedClock
from tests.support.declared import DIM, OTHER, THINGS, T, at, fresh, thing
from tests.support.stores import closed_in_the_end

pytestmark = pytest.mark.anyio

LOGGED = replace(THINGS, kind="thing")
SAID = Collection(
    name="said",
    kind="word",
    counted=True,
    id_field="said_id",
    fields={"agent_id": "text", "user_id": "text", "parent": "text", "deleted_at": "time"},
    indexes=(("parent",),),
)
"""Without versions, as messages are."""
QUIET = replace(THINGS, name="quiet_things")

SCANNED = 40

OpenLogged = Callable[..., Awaitable[Store]]


@pytest.fixture
async def opened(settings: Settings, clock: TurnedClock, anyio_backend: str) -> AsyncIterator[OpenLogged]:
    """Opens the test's store with a log of so many hours."""

    async def opener(hours: float = 72.0) -> Store:
        log = LogOptions(hours, clock, scanned=SCANNED)
        return await open_store(where_of(settings), (LOGGED, SAID, QUIET), dim=DIM, log=log)

    async with closed_in_the_end(opener) as one:
        yield one


@pytest.fixture
async def store(opened: OpenLogged) -> Store:
    return await opened()


def insert(thing_id: str | None = None, *, tenant: str = T, user: str | None = "u", agent: str | None = "a") -> Insert:
    made = thing(thing_id, tenant=tenant, user_id=user, agent_id=agent)
    return Insert(LOGGED, made.doc)


def raised(change: Insert, **fields: Any) -> Update:
    return Update(LOGGED, change.doc["tenant_id"], change.doc["thing_id"], set=fields, inc={"version": 1})


async def entries(
    store: Store, tenant: str = T, where: Filter = EVERYTHING, after: Position | None = None, limit: int = 1_000
) -> list[LogEntry]:
    return (await store.change_log.page(tenant, after, where, limit=limit)).entries


def told(found: list[LogEntry]) -> list[tuple[str | None, str, int | None]]:
    return [(one.id, one.type, one.version) for one in found]


async def test_a_commit_tells_what_it_created_updated_and_deleted(store: Store) -> None:
    one, two = insert("one"), insert("two", user=None)
    await store.commit([one, two])
    await store.commit([raised(one, state="done")])
    await store.commit([Delete(LOGGED, T, "two")])
    found = await entries(store)
    assert told(found) == [("one", "created", 1), ("two", "created", 1), ("one", "updated", 2), ("two", "deleted", 1)]
    assert [(one.kind, one.agent_id, one.user_id) for one in found[:2]] == [("thing", "a", "u"), ("thing", "a", None)]
    assert [one.seq for one in found] == sorted(one.seq for one in found)
    assert [one.at for one in found] == sorted(one.at for one in found)


async def test_what_leaves_the_version_and_what_is_not_declared_is_not_told(store: Store) -> None:
    one = insert("one")
    await store.commit([one])
    await store.commit([Update(LOGGED, T, "one", set={"score": 2})])
    await store.commit([Update(LOGGED, T, "one", inc={"score": 1}, expect={"version": 1})])
    await store.commit([Insert(QUIET, one.doc), numbered_away()])
    await store.commit([Update(QUIET, T, "one", set={"state": "x"}, inc={"version": 1})])
    assert told(await entries(store)) == [("one", "created", 1)]


def numbered_away() -> Insert:
    return Insert(QUIET, {"tenant_id": T, "thing_id": fresh(), "version": 1, "created_at": at(1)})


async def test_a_deletion_by_filter_tells_each_record(store: Store) -> None:
    made = [insert(name) for name in ("a", "b", "c")]
    await store.commit(made)
    await store.commit([raised(made[1], state="kept")])
    before = await store.change_log.end(T)
    await store.commit([DeleteWhere(LOGGED, T, In("thing_id", ("a", "b")))])
    found = await entries(store, after=before)
    assert sorted(told(found)) == [("a", "deleted", 1), ("b", "deleted", 2)]
    assert {one.user_id for one in found} == {"u"}


async def test_records_without_a_version_tell_each_update_and_their_tombstone(store: Store) -> None:
    doc = {"tenant_id": T, "said_id": "m", "agent_id": "a", "user_id": "u", "parent": "s", "created_at": at(0)}
    await store.commit([Insert(SAID, {**doc, "deleted_at": None})])
    await store.commit([Update(SAID, T, "m", set={"parent": "s", "deleted_at": None})])
    await store.commit([Update(SAID, T, "m", expect={"parent": "s"})])
    await store.commit([Update(SAID, T, "m", set={"deleted_at": at(9)})])
    await store.commit([DeleteWhere(SAID, T, Eq("parent", "s"))])
    assert told(await entries(store)) == [
        ("m", "created", None),
        ("m", "updated", None),
        ("m", "deleted", None),
        ("m", "deleted", None),
    ]


async def test_one_commit_tells_a_record_once(store: Store) -> None:
    one, two, three = insert("one"), insert("two"), insert("three")
    await store.commit([three])
    before = await store.change_log.end(T)
    await store.commit(
        [one, raised(one), raised(one), two, Delete(LOGGED, T, "two"), raised(three), Delete(LOGGED, T, "three")]
    )
    assert told(await entries(store, after=before)) == [("one", "created", 3), ("three", "deleted", 2)]
    before = await store.change_log.end(T)
    await store.commit([Delete(LOGGED, T, "one"), insert("one")])
    assert told(await entries(store, after=before)) == [("one", "updated", 1)]


async def test_a_refused_commit_tells_nothing(store: Store) -> None:
    one = insert("one")
    await store.commit([one])
    with pytest.raises(CommitConflict):
        await store.commit([raised(one), insert("new"), Update(LOGGED, T, "one", expect={"version": 7})])
    assert told(await entries(store)) == [("one", "created", 1)]


async def test_tenants_have_logs_of_their_own(store: Store) -> None:
    await store.commit([insert("one"), insert("theirs", tenant=OTHER)])
    await store.commit([insert("two")])
    assert [one.id for one in await entries(store)] == ["one", "two"]
    assert [(one.id, one.seq) for one in await entries(store, OTHER)] == [("theirs", 1)]
    position = await store.change_log.end(T)
    with pytest.raises(ChangesLost):
        await store.change_log.page(OTHER, position)


async def test_pages_follow_each_other_and_filters_advance(store: Store) -> None:
    made = [insert(f"t{n}", user="u" if n % 10 == 0 else "v") for n in range(25)]
    for at_ in range(0, 25, 5):
        await store.commit(made[at_ : at_ + 5])
    seen: list[str | None] = []
    after = None
    while True:
        page = await store.change_log.page(T, after, Eq("user_id", "v"), limit=7)
        seen += [one.id for one in page.entries]
        after = page.position
        if not page.more:
            break
    assert seen == [f"t{n}" for n in range(25) if n % 10]
    none = await store.change_log.page(T, None, Eq("user_id", "nobody"), limit=7)
    assert (none.entries, none.more, none.position) == ([], False, await store.change_log.end(T))
    assert (await store.change_log.page(T, after)).entries == []


async def test_a_page_looks_at_a_bounded_number_of_entries(store: Store) -> None:
    await store.commit([insert(user="v") for _ in range(SCANNED + 1)])
    page = await store.change_log.page(T, None, Eq("user_id", "nobody"))
    assert (page.entries, page.more, page.position.seq) == ([], True, SCANNED)
    rest = await store.change_log.page(T, page.position, Eq("user_id", "nobody"))
    assert (rest.entries, rest.more) == ([], False)


async def test_what_is_older_than_the_retention_is_dropped_and_a_position_in_it_is_lost(
    opened: OpenLogged, clock: TurnedClock
) -> None:
    store = await opened(2.0)
    await store.commit([insert("old")])
    old = await store.change_log.end(T)
    assert not await store.change_log.has_expired()
    clock.move(hours=1)
    await store.commit([insert("middle"), insert("theirs", tenant=OTHER)])
    middle = await store.change_log.end(T)
    clock.move(hours=1.5)
    await store.commit([insert("new")])
    assert await store.change_log.has_expired()
    assert await store.change_log.prune() == 1
    assert not await store.change_log.has_expired()
    assert [one.id for one in await entries(store)] == ["middle", "new"]
    assert [one.id for one in await entries(store, after=old)] == ["middle", "new"]
    with pytest.raises(ChangesLost):
        await store.change_log.page(T, Position(old.log, 0))
    clock.move(hours=1)
    assert await store.change_log.prune() == 2
    assert [one.id for one in await entries(store, after=middle)] == ["new"]
    with pytest.raises(ChangesLost):
        await store.change_log.page(T, old)
    clock.move(hours=9)
    assert await store.change_log.prune() == 1
    assert (await entries(store), await entries(store, OTHER)) == ([], [])
    end = await store.change_log.end(T)
    await store.commit([insert("last")])
    assert [one.id for one in await entries(store, after=end)] == ["last"]


@pytest.mark.parametrize("wrong", [Position("another", 1), Position("", 2)])
async def test_a_position_of_another_log_is_lost(store: Store, wrong: Position) -> None:
    await store.commit([insert("one")])
    with pytest.raises(ChangesLost):
        await store.change_log.page(T, wrong)


async def test_the_position_of_an_empty_log_is_its_beginning(store: Store) -> None:
    empty = await store.change_log.end(T)
    assert await entries(store, after=empty) == []
    await store.commit([insert("one")])
    assert [one.id for one in await entries(store, after=empty)] == ["one"]


async def test_a_forgotten_user_leaves_a_mark_that_names_nobody(store: Store) -> None:
    await store.commit([insert("one"), insert("two", user="v"), insert("three")])
    before = await store.change_log.end(T)
    assert await store.change_log.names(T, "u")
    await store.change_log.forget(T, "u")
    await store.change_log.forget(T, "u")
    assert not await store.change_log.names(T, "u")
    found = await entries(store)
    assert [(one.id, one.type, one.user_id) for one in found] == [("two", "created", "v"), (None, "erased", None)]
    assert [one.type for one in await entries(store, after=before)] == ["erased"]


async def test_without_a_log_nothing_is_told_and_old_positions_are_lost(opened: OpenLogged) -> None:
    first = await opened()
    await first.commit([insert("one")])
    position = await first.change_log.end(T)
    await first.close()
    silent = await opened(0)
    await silent.commit([insert("two")])
    assert await entries(silent) == []
    await silent.close()
    again = await opened()
    with pytest.raises(ChangesLost):
        await again.change_log.page(T, position)
    await again.commit([insert("three")])
    assert [one.id for one in await entries(again)] == ["three"]


# --- Several writers and readers --------------------------------------------------------------------------------------


async def test_what_was_acknowledged_first_comes_first_whoever_wrote_it(store: Store, opened: OpenLogged) -> None:
    other, names = await opened(), []
    for number in range(12):
        names.append(f"t{number}")
        await (store, other)[number % 2].commit([insert(names[-1])])
    assert [one.id for one in await entries(other)] == names
    assert await entries(store) == await entries(other)


async def test_writers_and_readers_at_once_lose_and_double_nothing(store: Store, opened: OpenLogged) -> None:
    """Each writer changes a record of its own and one that all share; the readers follow meanwhile."""
    stores = (store, await opened())
    await store.commit([shared := insert("shared")])
    acknowledged: list[tuple[str, int]] = []

    async def write(number: int) -> None:
        own, through = insert(f"own{number}"), stores[number % 2]
        await through.commit([own])
        for version in range(2, 8):
            await through.commit([raised(own), raised(shared)])
            acknowledged.append((f"own{number}", version))

    async def follow(through: Store, until: asyncio.Event) -> list[LogEntry]:
        found: list[LogEntry] = []
        after, last = None, False
        while True:
            last = until.is_set()
            page = await through.change_log.page(T, after, limit=5)
            found, after = found + page.entries, page.position
            if last and not page.more:
                return found
            await asyncio.sleep(0)

    done = asyncio.Event()
    readers = [asyncio.create_task(follow(one, done)) for one in stores]
    await asyncio.gather(*(write(number) for number in range(4)))
    done.set()
    first, second = [await one for one in readers]
    assert first == second
    assert [one.seq for one in first] == list(range(1, len(first) + 1))
    versions: dict[str | None, list[int | None]] = {}
    for one in first:
        versions.setdefault(one.id, []).append(one.version)
    assert versions == {f"own{n}": list(range(1, 8)) for n in range(4)} | {"shared": list(range(1, 26))}
    own = [(one.id, one.version) for one in first if one.id != "shared" and one.type == "updated"]
    assert sorted(own) == sorted(acknowledged)


async def test_a_reader_is_woken_by_this_process_and_by_another(store: Store, opened: OpenLogged) -> None:
    other = await opened()
    with store.change_log.watch.reading(T) as changed:
        for through, tenant in ((store, T), (other, T)):
            changed.clear()
            await through.commit([insert(tenant=tenant)])
            async with asyncio.timeout(30):
                await changed.wait()
        assert store.change_log.watch.readers(T) == 1
    assert store.change_log.watch.readers(T) == 0
