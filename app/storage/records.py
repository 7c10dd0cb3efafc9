"""What may be read of a store: documents that are whole. One that is not is named in the log, counted, and left out, so
that it makes no list an error and ends no job."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

import orjson

from app.metrics import RECORDS_LEFT_OUT
from app.storage.schema import Collection, Doc

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""What reading a document raises that is not as this service stores it."""
Read: TypeAlias = Sequence[Doc | None]
"""Documents, and None for each that cannot be read."""

log = logging.getLogger(__name__)


def left_out(collection: Collection, doc_id: object, error: str) -> None:
    """Counts and names a stored document that cannot be shown. `error`: a class of errors, never what the document
    says."""
    RECORDS_LEFT_OUT.labels(collection.noun).inc()
    log.warning("record left out", extra={"kind": collection.noun, "id": str(doc_id), "error": error})


def whole(collection: Collection, doc_id: object, doc: Doc) -> Doc | None:
    """Returns the document if it has an id, a tenant and a place in lists, and None otherwise. Collections without
    fields are never listed, and their documents need no place."""
    placed = type(doc.get(collection.order)) is collection.place or not collection.fields
    if placed and type(doc.get(collection.id_field)) is str and type(doc.get("tenant_id")) is str:
        return doc
    left_out(collection, doc_id, KeyError.__name__)
    return None


def parsed(collection: Collection, texts: Iterable[tuple[str, str]]) -> Read:
    """Returns documents that are stored as JSON text, given with their ids."""
    docs = ((doc_id, parsed_one(collection, doc_id, text)) for doc_id, text in texts)
    return [None if doc is None else whole(collection, doc_id, doc) for doc_id, doc in docs]


def parsed_one(collection: Collection, doc_id: str, text: str) -> Doc | None:
    """Returns a document that is stored as JSON text, or None if it is none."""
    try:
        doc = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        left_out(collection, doc_id, type(error).__name__)
        return None
    if isinstance(doc, dict):
        return doc
    left_out(collection, doc_id, type(doc).__name__)
    return None


async def first_whole(limit: int, read: Callable[[int], Awaitable[Read]]) -> list[Doc]:
    """Returns the first `limit` documents that can be read. `read(n)` returns the first n: it is called again, with so
    many more, where some cannot."""
    wanted = limit
    while True:
        found = await read(wanted)
        docs = [doc for doc in found if doc is not None]
        if len(found) < wanted or len(docs) >= limit:
            return docs[:limit]
        wanted = limit + len(found) - len(docs)
