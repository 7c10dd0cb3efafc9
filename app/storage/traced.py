"""A store whose calls are spans. It stands around the real one only where the service is traced."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from app.core.tracing import Attributes, TraceSpan, span, tracing
from app.storage.changes import Allocate, Change, Committed, WithinQuota
from app.storage.protocol import Fetched, Store
from app.storage.schema import Collection
from app.storage.search import Columns, Ints, Partition, ScopeFacts, SearchQuery

S = TypeVar("S", bound=Store)
_SYSTEMS = {"embedded": "sqlite"}
"""Engines that OpenTelemetry's conventions call otherwise."""


def traced(store: S) -> S:
    """Returns a store that makes a span of each call below an open span, or the store itself where nothing is traced.
    Filters, ids and documents are not told."""
    return cast(S, _Traced(store)) if tracing() else store


class _Traced:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._system = _SYSTEMS.get(store.name, store.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _span(self, operation: str, collection: str, more: Attributes) -> TraceSpan:
        named: Attributes = {"db.collection.name": collection} if collection else {}
        attributes = {"db.system.name": self._system, "db.operation.name": operation, **named, **more}
        return span(f"{operation} {collection}".rstrip(), attributes, "client")

    async def commit(self, changes: Sequence[Change]) -> Committed:
        names = sorted({one.collection.name for one in changes if not isinstance(one, Allocate | WithinQuota)})
        alone = names[0] if len(names) == 1 else ""
        with self._span("commit", alone, {"db.operation.batch.size": len(changes), "recalld.collections": names}):
            return await self._store.commit(changes)

    async def scope_facts(self, collection: Collection, tenant: str, pairs: Sequence[Partition]) -> ScopeFacts:
        with self._span("scope_facts", collection.name, {"recalld.partitions": len(pairs)}) as open_span:
            facts = await self._store.scope_facts(collection, tenant, pairs)
            open_span.set({"recalld.scope.records": facts.count})
            return facts

    async def search(self, collection: Collection, query: SearchQuery) -> Columns:
        with self._span("search", collection.name, {"recalld.partitions": len(query.pairs)}):
            return await self._store.search(collection, query)

    async def fetch(self, collection: Collection, tenant: str, rows: Ints) -> list[Fetched | None]:
        with self._span("fetch", collection.name, {"db.response.returned_rows": len(rows)}):
            return await self._store.fetch(collection, tenant, rows)

    async def find(self, collection: Collection, *given: Any, **named: Any) -> Any:
        with self._span("find", collection.name, {}):
            return await self._store.find(collection, *given, **named)

    async def count(self, collection: Collection, *given: Any, **named: Any) -> Any:
        with self._span("count", collection.name, {}):
            return await self._store.count(collection, *given, **named)

    async def tally(self, collection: Collection, *given: Any, **named: Any) -> Any:
        with self._span("tally", collection.name, {}):
            return await self._store.tally(collection, *given, **named)

    async def get(self, collection: Collection, tenant: str, doc_id: str) -> Any:
        with self._span("get", collection.name, {}):
            return await self._store.get(collection, tenant, doc_id)
