"""Documents as nobody writes them through the API: planted below the store, as a fault of a disk or of another program
leaves them."""

from typing import Any

import apsw
import orjson

from app.storage.mongo.codec import encode, key
from app.storage.mongo.store import MongoStore
from app.storage.protocol import Store
from app.storage.schema import Collection, Doc
from app.storage.sqlite import sql
from app.storage.sqlite.connections import sum_of
from app.storage.sqlite.store import EmbeddedStore


async def plant(
    store: Store,
    collection: Collection,
    doc_id: str,
    *,
    tenant: str = "default",
    without: tuple[str, ...] = (),
    **fields: Any,
) -> None:
    """Sets fields of a stored document to any value, or takes them away. Its entry in the search index stays."""
    if isinstance(store, EmbeddedStore):
        doc = await store.get(collection, tenant, doc_id)
        assert doc is not None
        spoilt = {name: value for name, value in (doc | fields).items() if name not in without}
        columns = dict(zip(collection.columns, sql.values_of(spoilt, collection.columns), strict=True))
        await _overwrite(store, collection, tenant, doc_id, orjson.dumps(spoilt).decode(), columns)
    elif isinstance(store, MongoStore):
        change: Doc = {"$set": encode(collection, fields)} if fields else {}
        change |= {"$unset": dict.fromkeys(without, "")} if without else {}
        documents = store._database[collection.name]
        assert (await documents.update_one({"_id": key(tenant, doc_id)}, change)).matched_count == 1
    else:
        raise TypeError(store)


async def plant_text(store: Store, collection: Collection, doc_id: str, *, tenant: str = "default") -> None:
    """Makes a document unreadable: no JSON in the embedded store, an opaque field that is none in MongoDB."""
    if isinstance(store, EmbeddedStore):
        await _overwrite(store, collection, tenant, doc_id, '{"cut short')
    elif isinstance(store, MongoStore):
        documents = store._database[collection.name]
        (name, *_) = collection.opaque
        await documents.update_one({"_id": key(tenant, doc_id)}, {"$set": {name: {"json": '{"cut short'}}})
    else:
        raise TypeError(store)


async def _overwrite(
    store: EmbeddedStore, collection: Collection, tenant: str, doc_id: str, text: str, columns: Doc | None = None
) -> None:
    changed: Doc = {"doc": text, "doc_sum": sum_of(text.encode()), **(columns or {})}
    changed = {
        name: orjson.dumps(value).decode() if isinstance(value, dict) else value for name, value in changed.items()
    }
    fields = ", ".join(f"{sql.quoted(name)} = ?" for name in changed)
    statement = f"UPDATE {sql.quoted(collection.name)} SET {fields} WHERE tenant = ? AND id = ?"

    def write(connection: apsw.Connection) -> None:
        connection.execute(statement, (*changed.values(), tenant, doc_id)).fetchall()
        assert connection.changes() == 1

    await store.writer.submit(write)
