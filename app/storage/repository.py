"""A repository: the documents of one collection as one caller may see them. Every query includes the caller's scope."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from hashlib import blake2b
from itertools import compress
from typing import Any, Generic, Literal

import orjson
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypeAliasType, TypeVar

from app.core.metadata_filter import ANY_ID
from app.core.schemas import Page
from app.core.work import MOST_ENCODED, characters, in_turn, taken_by
from app.errors import Forbidden, InvalidCursor, RecalldError, RecordDamaged, invalid, no_such
from app.storage.changes import Delete, IndexEntry, Insert, Update
from app.storage.protocol import Fetched, Order, Store, Tallied
from app.storage.records import damage_warnings, left_out, remember
from app.storage.schema import Absent, After, Collection, Eq, Filter, In, Not, Or, R, Range, both
from app.storage.scope import Partition, Scope

FILTERED_AT_ONCE = 500
"""Documents that a list reads at once, where it has to look into them to know which it shows."""


ListOrder = TypeAliasType("ListOrder", Literal["asc", "desc"])


class Listing(BaseModel):
    """The page size, cursor and order of a list request."""

    limit: int = Field(20, ge=1, le=100, description="Most items on a page.")
    cursor: str | None = Field(None, max_length=512, description="`next_cursor` of the page before.")
    order: ListOrder = Field("desc", description="By creation; of actions by `timestamp`, of users by id.")


_NO_EXPIRY = Absent("expires_at")


def unexpired(now: str) -> Filter:
    """Returns a filter for documents that have not expired at `now`. Reads apply it, so expiry does not wait for the
    purge."""
    return Or((_NO_EXPIRY, Range("expires_at", gt=now)))


def expired(doc: Mapping[str, Any], now: str) -> bool:
    """Returns whether the document has expired at `now` (RFC 3339)."""
    return doc["expires_at"] is not None and doc["expires_at"] <= now


def having(values: Mapping[str, Any], *names: str) -> Filter:
    """Returns a filter for documents that have exactly these values. A name whose value is absent or None filters
    nothing, and `ANY_ID` stands for any."""
    named = ((name, values[name]) for name in names if values.get(name) is not None)
    return both(*(Not(Absent(name)) if value == ANY_ID else Eq(name, value) for name, value in named))


def between(field: str, since: str | None, until: str | None) -> Filter | None:
    """Returns a filter for times from `since` on and before `until` (RFC 3339), or None if neither is given."""
    return None if since is None and until is None else Range(field, ge=since, lt=until)


async def anything(store: Store, wanted: Iterable[tuple[Collection, Filter]]) -> bool:
    """Returns whether any of the filters matches a document of any tenant. Stops at the first match."""
    for collection, where in wanted:
        if await store.find(collection, None, where, limit=1):
            return True
    return False


async def pages(
    find: Callable[..., Awaitable[list[R]]], collection: Collection[R], size: int, order: Order = "asc"
) -> AsyncIterator[list[R]]:
    """Yields all documents of `find` (`Store.find` or `Repository.find` with its filter bound) in pages of `size`, by
    keyset."""
    after = None
    while docs := await find(order=order, after=after, limit=size):
        after = collection.after(docs[-1])
        yield docs
        if len(docs) < size:
            break


MOST_PARTITIONS, MOST_RECORDS = 1_000, 100_000
"""Of a search over any owner, which loads them all."""


async def partitions_of(
    store: Store,
    scope: Scope,
    collection: Collection,
    agent: str | None,
    user: str | None,
    *,
    include_shared: bool,
    everyone: bool = False,
) -> tuple[Partition, ...]:
    """Returns the partitions that a search of a collection reads. With `ANY_ID` for the agent or the user they are
    those that have records and that the scope sees: for any agent and "ada", of a key that is bound to the agents a and
    b, ("a", "ada") and ("b", "ada"). Of `everyone`, all of the tenant. Raises Forbidden unless the key is
    bound for `ANY_ID`, and unbound for `everyone`, and Invalid if there are too many."""
    if not everyone and ANY_ID not in (agent, user):
        return scope.partitions(agent, user, include_shared)
    if everyone and scope.is_bound:
        raise Forbidden("A key that is bound to agents or users does not search everyone's memory.")
    if not everyone and not scope.is_bound:
        raise Forbidden(
            'A search by "*" needs a key that is bound to agents or users; `everyone` searches all memories.'
        )
    where = both(scope.visible(), having({"agent_id": agent, "user_id": user}, "agent_id", "user_id"))
    # by owners, such as 812 of ("support", "ada")
    tallied = await store.tally(collection, scope.tenant, ("agent_id", "user_id"), where)
    if len(tallied) > MOST_PARTITIONS or sum(tallied.values()) > MOST_RECORDS:
        raise invalid(
            "/everyone" if everyone else "/filters",
            f"goes over {MOST_PARTITIONS:,} pairs of agent and user and {MOST_RECORDS:,} records at most; there are "
            f"{len(tallied):,} and {sum(tallied.values()):,}: name a user_id or an agent_id",
        )
    partitions = [Partition(*owner) for owner in tallied]
    if include_shared and agent is not None and user is not None:  # what one agent, or one user, shares with all
        partitions += [shared for owner in tallied for shared in scope.partitions(owner[0], owner[1], True)]
    return tuple(dict.fromkeys(partitions))


A = TypeVar("A", bound=Mapping[str, Any])
"""What responses show of a record."""


async def render_items(
    collection: Collection[R], documents: Iterable[Fetched[R]], render: Callable[[R], A | Awaitable[A]], shape: Any
) -> list[A]:
    """Returns documents as a list shows them. A stored document that cannot be rendered, or that has a value of a wrong
    type, is named in the log, counted, and left out.

    Raises errors of the service that `render` raises: they are not about the document.
    """
    items, length = list[A](), 0
    for document in documents:
        try:
            item = render(document.doc)
            shown: A = await item if isinstance(item, Awaitable) else item
            check = partial(document.memo.once, "fault", partial(_fault, shape), shown)  # the same for the same text
            length += characters(shown, most=MOST_ENCODED)
            fault = check() if length <= MOST_ENCODED else await in_turn(check)
            length = 0 if length > MOST_ENCODED else length
        except RecalldError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it is about one document)
            left_out(collection, document.doc[collection.id_field], type(error).__name__)
            continue
        if fault is None:
            items.append(shown)
        else:
            left_out(collection, document.doc[collection.id_field], fault)
    return items


def is_shown(collection: Collection[R], document: Fetched[R], render: Callable[[R], A], shape: Any) -> bool:
    """Returns whether a list shows a document, as `render_items` does."""

    def fault_of(doc: R) -> str | None:
        try:
            return _fault(shape, render(doc))
        except Exception as error:  # noqa: BLE001 (as above)
            return type(error).__name__

    fault = document.memo.once("fault", fault_of, document.doc)
    if fault is not None:
        left_out(collection, document.doc[collection.id_field], fault)
    return fault is None


def _fault(shape: Any, item: Mapping[str, Any]) -> str | None:
    """Returns the error of a rendered document that has a value of a wrong type, or None."""
    try:
        require_fit(item, shape)
    except ValueError as error:
        return type(error).__name__
    return None


def page_of(items: list[A], cursor: str | None) -> Page[A]:
    """Returns a page of a list, with a warning for each record that it goes without since it is damaged."""
    page: Page[A] = {"items": items, "next_cursor": cursor}
    warnings = damage_warnings()
    if warnings:
        page["warnings"] = warnings
    return page


FORGIVEN = ("missing", "extra_forbidden")
"""Faults that documents of other versions have."""


_validator = cache(TypeAdapter[Any])


def require_fit(item: Mapping[str, Any], shape: Any) -> None:
    """Raises ValueError where a value of a rendered record has a wrong type. `shape`: what answers show of it."""
    try:
        _validator(shape).validate_python(item)
    except ValueError as error:
        faults: Any = getattr(error, "errors", None)
        if faults is None or any(fault["type"] not in FORGIVEN for fault in faults()):
            raise


class Repository(Generic[R]):
    """Reads and prepares changes of one collection within one scope. Changes are returned, not committed."""

    def __init__(self, store: Store, scope: Scope, collection: Collection[R]) -> None:
        self.store, self.scope, self.collection = store, scope, collection

    async def find_one(self, doc_id: str) -> R | None:
        """Returns the document, or None if it does not exist or is outside the scope; callers cannot tell which."""
        try:
            doc = await self.store.get(self.collection, self.scope.tenant, doc_id)
        except RecordDamaged as error:
            if self.scope.sees(error.known):
                raise
            return None
        if doc is None or not self.scope.sees(doc):
            return None
        remember(self.collection, [doc])
        return doc

    async def get(self, doc_id: str) -> R:
        """Returns the document. Raises NotFound if it does not exist or is outside the scope."""
        doc = await self.find_one(doc_id)
        if doc is None:
            raise no_such(self.collection.noun)
        return doc

    async def get_unexpired(self, doc_id: str, now: str) -> R:
        """Returns the document. Raises NotFound, also if it has expired but was not purged yet."""
        doc = await self.get(doc_id)
        if expired(doc, now):
            raise no_such(self.collection.noun)
        return doc

    async def get_to_delete(self, doc_id: str, now: str | None = None) -> R:
        """Returns the document; of one that cannot be read what the store knows of it beside its text, so that it can
        be deleted: `{"memory_id": …, "agent_id": …, "user_id": …, "created_at": …}`. Raises NotFound, with `now` also
        for one that has expired."""
        try:
            return await (self.get(doc_id) if now is None else self.get_unexpired(doc_id, now))
        except RecordDamaged as error:
            return self.collection.as_record(error.known)

    async def get_any_owner(self, doc_id: str) -> R | None:
        """Returns the tenant's document with that id, also outside the bindings: ids are unique within a tenant."""
        return await self.store.get(self.collection, self.scope.tenant, doc_id)

    async def holder(self, doc_id: str) -> R | None:
        """Returns the document that has an id which a caller has chosen, or None if the id is free. Raises NotFound, as
        every other request for that id does, if the document is outside the bindings: a conflict would tell of it."""
        try:
            doc = await self.get_any_owner(doc_id)
        except RecordDamaged as error:
            if self.scope.sees(error.known):
                raise
            raise no_such(self.collection.noun) from None
        if doc is not None and not self.scope.sees(doc):
            raise no_such(self.collection.noun)
        return doc

    async def get_many(self, doc_ids: Sequence[str]) -> dict[str, R]:
        """Returns the documents of `doc_ids` that exist and are visible, by id."""
        wanted = In(self.collection.id_field, tuple(dict.fromkeys(doc_ids)))
        docs = await self.find(wanted, limit=len(wanted.values)) if wanted.values else []
        return {doc[self.collection.id_field]: doc for doc in docs}

    async def find(
        self, where: Filter, *, order: Order = "desc", after: After | None = None, limit: int = 100
    ) -> list[R]:
        """Returns the visible documents that match. See `Store.find`."""
        seen = both(where, self.scope.visible())
        docs = await self.store.find(self.collection, self.scope.tenant, seen, order=order, after=after, limit=limit)
        remember(self.collection, docs)
        return docs

    async def count(self, where: Filter) -> int:
        """Counts the visible documents that match."""
        return await self.store.count(self.collection, self.scope.tenant, both(where, self.scope.visible()))

    async def values(
        self, field: str, where: Filter, *, order: Order, after: str | None = None, limit: int = 100
    ) -> list[str]:
        """Returns the distinct values of a text field among the visible documents that match, starting after `after`.
        See `Store.values`."""
        beyond = Range(field, lt=after) if order == "desc" else Range(field, gt=after)
        seen = both(where, beyond, self.scope.visible())
        return await self.store.values(self.collection, self.scope.tenant, field, seen, order=order, limit=limit)

    async def tally(self, fields: Sequence[str], where: Filter, *, first: int | None = None) -> Tallied:
        """Counts the visible documents that match by their values of the fields. See `Store.tally`."""
        seen = both(where, self.scope.visible())
        return await self.store.tally(self.collection, self.scope.tenant, fields, seen, first=first)

    async def listed(
        self,
        where: Filter,
        listing: Listing,
        render: Callable[[R], A | Awaitable[A]],
        shape: Any,
        *,
        request: object,
        keep: Callable[[R], bool] | None = None,
    ) -> Page[A]:
        """Returns one page as `page` reads it and `render_items` shows it. `request`: a value or the filters."""
        named = sorted(request.items()) if isinstance(request, Mapping) else request
        documents, cursor = await self.page(where, listing, request=repr(named), keep=keep)
        return page_of(await render_items(self.collection, documents, render, shape), cursor)

    async def page(
        self, where: Filter, listing: Listing, *, request: str, keep: Callable[[R], bool] | None = None
    ) -> tuple[list[Fetched[R]], str | None]:
        """Returns one page, to be shown, and the cursor of the next, or None on the last page.

        A cursor is valid only for the same `request`, which says what was asked for. `keep` says what belongs to the
        list where the filter cannot. Raises InvalidCursor.
        """
        request = repr((self.scope.tenant, self.collection.name, listing.order, request))
        after = open_cursor(listing.cursor, request, self.collection.place) if listing.cursor is not None else None
        wanted = listing.limit + 1  # whether there is a next page shows in one document more
        step = wanted if keep is None else max(wanted, FILTERED_AT_ONCE)
        found, kept = both(where, self.scope.visible()), list[Fetched[R]]()
        while True:
            read = await self.store.find_fetched(
                self.collection, self.scope.tenant, found, order=listing.order, after=after, limit=step
            )
            docs = [document.doc for document in read]
            remember(self.collection, docs)
            kept += read if keep is None else compress(read, await taken_by(keep, docs))
            if len(kept) >= wanted or len(read) < step:
                break
            after = self.collection.after(docs[-1])
        if len(kept) <= listing.limit:
            return kept, None
        del kept[listing.limit :]
        return kept, seal_cursor(self.collection.after(kept[-1].doc), request)

    # --- Changes, for `commit` ----------------------------------------------------------------------------------------

    def insert(self, doc: R, entry: IndexEntry | None = None) -> Insert[R]:
        """Returns an insert of `doc`. Raises Forbidden if the caller may not write for its owners."""
        self.require_write(doc)
        return Insert(self.collection, self.collection.as_record({"tenant_id": self.scope.tenant, **doc}), entry)

    def require_write(self, doc: R) -> None:
        """Raises Forbidden if the caller may not change `doc`."""
        self.scope.require_write(doc.get("agent_id"), doc.get("user_id"))

    def update(
        self, doc: R, fields: R, *, now: str, expect: R | None = None, entry: IndexEntry | None = None
    ) -> Update[R]:
        """Returns an update that increments the version. By default it expects the version that was read.

        Raises Forbidden if the caller may not change `doc`.
        """
        self.require_write(doc)
        self.require_write(self.collection.as_record({**doc, **fields}))
        return Update(
            self.collection,
            self.scope.tenant,
            doc[self.collection.id_field],
            set=self.collection.as_record({**fields, "updated_at": now}),
            inc={"version": 1},
            expect={"version": doc["version"]} if expect is None else expect,
            entry=entry,
            user=doc.get("user_id"),
        )

    def as_updated(self, doc: R, fields: R, *, now: str) -> R:
        """Returns the record as `update` leaves it."""
        return self.collection.as_record({**doc, **fields, "version": doc["version"] + 1, "updated_at": now})

    def append(self, doc: R, fields: R, *, expect: R, inc: dict[str, int] | None = None) -> Update[R]:
        """Returns an update that adds to or counts in a record without incrementing its version.

        Raises Forbidden if the caller may not change `doc`.
        """
        self.require_write(doc)
        return Update(
            self.collection,
            self.scope.tenant,
            doc[self.collection.id_field],
            set=fields,
            inc=inc or {},
            expect=expect,
            user=doc.get("user_id"),
        )

    def delete(self, doc: R) -> Delete:
        """Returns a deletion of `doc`, which must not have changed. A damaged one can be deleted, too. Raises Forbidden
        if the caller may not delete it."""
        self.require_write(doc)
        expect = {name: doc.get(name) for name in ("version", "created_at")}  # the id may have been reused since
        return Delete(self.collection, self.scope.tenant, doc[self.collection.id_field], expect, doc.get("user_id"))


def seal_cursor(after: After, request: str) -> str:
    """Encodes a position in a list as a cursor, which is bound to `request`."""
    place = orjson.dumps([after.value, after.id])
    return _spelled(_seal(place, request) + place)


def open_cursor(cursor: str, request: str, place: type[str] | type[int]) -> After:
    """Decodes a cursor whose position is of the type `place`. Raises InvalidCursor if it is malformed or was made for
    another `request`. The seal is no secret: whoever knows the request can seal anything, so the content is checked.
    """
    try:
        raw = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        content: Any = orjson.loads(raw[8:])
    except (Base64Error, UnicodeEncodeError, ValueError) as error:
        raise InvalidCursor() from error
    if raw[:8] != _seal(raw[8:], request) or cursor != _spelled(raw):  # base64 has several spellings of the same bytes
        raise InvalidCursor()
    if not (isinstance(content, list) and len(content) == 2 and type(content[0]) is place and type(content[1]) is str):
        raise InvalidCursor()
    if isinstance(content[0], int) and not -(2**63) <= content[0] < 2**63:  # engines store 64 bits
        raise InvalidCursor()
    return After(*content)


def _spelled(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _seal(place: bytes, request: str) -> bytes:
    return blake2b(place, digest_size=8, key=blake2b(request.encode(), digest_size=32).digest()).digest()
