"""Queries over facts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from app.facts.models import FACT_GROUPS, FACTS
from app.facts.rules import OPEN_END, OPEN_START, Cardinality, Span
from app.memories.pending import note
from app.storage.collection import Change, Delete, DeleteWhere, Doc, Insert, SearchEntry, Store, Update
from app.storage.filters import Absent, Eq, Filter, In, Not, Or, Range, both
from app.storage.repository import Listing, Repository, pages
from app.storage.scope import Scope

AT_ONCE = 500


class FactRepository(Repository):
    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, FACTS)

    async def group(self, group_id: str) -> Doc | None:
        return await self.store.get(FACT_GROUPS, self.scope.tenant, group_id)

    async def groups(self, group_ids: Sequence[str]) -> dict[str, Doc]:
        """Those that are there already."""
        if len(group_ids) == 1:
            one = await self.group(group_ids[0])
            return {} if one is None else {one["group_id"]: one}
        wanted = In("group_id", tuple(group_ids))
        found = await self.store.find(FACT_GROUPS, self.scope.tenant, wanted, limit=len(group_ids))
        return {group["group_id"]: group for group in found}

    async def near(self, group_ids: Sequence[str], span: Span, objects: Sequence[str]) -> list[Doc]:
        """Of the facts that we know now in these groups, those that touch the span: all that the rules look at for
        these objects."""
        return await self._all(
            both(
                In("group_id", tuple(group_ids)),
                Absent("known_until"),
                None if span.start == OPEN_START else Or((Absent("valid_until"), Range("valid_until", ge=span.start))),
                None if span.end == OPEN_END else Or((Absent("valid_from"), Range("valid_from", le=span.end))),
                Or((Eq("cardinality", "one"), In("object_key", tuple(dict.fromkeys(objects))))),
            )
        )

    async def lineage_page(self, lineage_id: str, listing: Listing) -> tuple[list[Doc], str | None]:
        return await self.page(Eq("lineage_id", lineage_id), listing, mark=lineage_id)

    async def stands_alone(self, fact: Doc) -> bool:
        """Whether its group holds its lineage and nothing else."""
        others = both(Eq("group_id", fact["group_id"]), Not(Eq("lineage_id", fact["lineage_id"])))
        return not await self.store.find(FACTS, self.scope.tenant, others, limit=1)

    async def _all(self, where: Filter) -> list[Doc]:
        return [doc async for docs in pages(partial(self.find, where), FACTS, AT_ONCE) for doc in docs]

    # --- Changes ------------------------------------------------------------------------------------------------------

    def add(self, doc: Doc, entry: SearchEntry) -> list[Change]:
        pending = entry.vector is None
        return [self.insert(doc | {"pending": pending}, entry), *self._noted(doc, pending)]

    def add_like(self, doc: Doc, stored: str) -> list[Change]:
        """`stored`: the fact of which it is what remains, and whose vector it takes; if that is there already."""
        inserted = self.insert(doc)
        return [replace(inserted, like=stored), *self._noted(doc, doc.get("pending", False))]

    def _noted(self, doc: Doc, pending: bool) -> list[Change]:
        return [note(FACTS, self.scope.tenant, doc["fact_id"], doc["created_at"])] if pending else []

    def close(self, doc: Doc) -> Update:
        """A fact leaves the books, as `doc` has it; nothing else of it ever changes."""
        gone = {name: doc[name] for name in ("status", "known_until", "superseded_by")}
        return self.update(doc, gone, now=doc["updated_at"], expect={"version": doc["version"] - 1})

    def turn(self, group: Doc | None, fact: Doc, now: str, usual: Cardinality) -> Change:
        """The next version of a fact's group: whoever read the same one must plan again."""
        self.scope.require_write(fact["agent_id"], fact["user_id"])
        said = {"known": now, "usual": usual, "updated_at": now}
        if group is not None:
            expect = {"version": group["version"]}
            return Update(FACT_GROUPS, self.scope.tenant, group["group_id"], said, {"version": 1}, expect)
        named = {name: fact[name] for name in ("group_id", "agent_id", "user_id")}
        return Insert(FACT_GROUPS, {"tenant_id": self.scope.tenant, **named, **said, "version": 1, "created_at": now})

    def remove(self, fact: Doc, group: Doc, *, last: bool) -> list[Change]:
        """A whole lineage; with the group where it is the last of it."""
        self.scope.require_write(fact["agent_id"], fact["user_id"])
        tenant, expect = self.scope.tenant, {"version": group["version"]}
        named = Delete(FACTS, tenant, fact["fact_id"], user=fact["user_id"])
        gone: list[Change] = [named, DeleteWhere(FACTS, tenant, Eq("lineage_id", fact["lineage_id"]))]
        if last:
            return [Delete(FACT_GROUPS, tenant, group["group_id"], expect), *gone]
        return [Update(FACT_GROUPS, tenant, group["group_id"], inc={"version": 1}, expect=expect), *gone]
