"""What may be read of a store: documents that are whole. One that is not is named in the log, counted, and left out, so
that it makes no list an error and ends no job."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar, cast

import orjson

from app.core.clock import parse_rfc3339
from app.core.schemas import PageWarning
from app.errors import RecordDamaged
from app.metrics import RECORDS_LEFT_OUT
from app.storage.schema import Collection, R, value_at

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""What reading a document raises that is not as this service stores it."""
T = TypeVar("T")
Read: TypeAlias = Sequence[R | None]
"""Documents, and None for each that cannot be read."""

MAX_WARNINGS = 20

log = logging.getLogger(__name__)
_LEFT_OUT: ContextVar[dict[tuple[str, str], None] | None] = ContextVar("left_out", default=None)


def left_out(collection: Collection, doc_id: object, error: str) -> None:
    """Counts and names a stored document that cannot be shown. `error`: a class of errors or a field at fault, never
    what the document says."""
    RECORDS_LEFT_OUT.labels(collection.noun).inc()
    log.warning("record left out", extra={"kind": collection.noun, "id": str(doc_id), "error": error})
    told = _LEFT_OUT.get()
    if told is not None:
        told[collection.noun, str(doc_id)] = None


def damage_warnings() -> list[PageWarning]:
    """Returns a warning for each record that the answer to this request goes without, such as `The stored memory m1 is
    damaged and left out.`"""
    return [
        {"code": RecordDamaged.code, "detail": f"The stored {noun} {doc_id} is damaged and left out."}
        for noun, doc_id in islice(_LEFT_OUT.get() or (), MAX_WARNINGS)
    ]


def unreadable(collection: Collection, doc_id: str, known: Mapping[str, object]) -> RecordDamaged:
    """Returns the error about a document that was asked for by its id and cannot be read. `known`: what the store has
    of it beside its text."""
    detail = f"The stored {collection.noun} {doc_id} is damaged: it cannot be read."
    error = RecordDamaged(f"{detail} `recalld doctor` names all such records.", retry_after=60)
    error.known = known
    return error


def whole(collection: Collection[R], doc_id: object, doc: R) -> R | None:
    """Returns the document if it has an id, a tenant and a place in lists, and None otherwise. Collections without
    fields are never listed, and their documents need no place."""
    placed = type(doc.get(collection.order)) is collection.place or not collection.fields
    if placed and type(doc.get(collection.id_field)) is str and type(doc.get("tenant_id")) is str:
        return doc
    left_out(collection, doc_id, KeyError.__name__)
    return None


def parsed(collection: Collection[R], texts: Iterable[tuple[str, str]]) -> Read[R]:
    """Returns documents that are stored as JSON text, given with their ids."""
    docs = ((doc_id, parsed_one(collection, doc_id, text)) for doc_id, text in texts)
    return [None if doc is None else whole(collection, doc_id, doc) for doc_id, doc in docs]


def parsed_one(collection: Collection[R], doc_id: str, text: str) -> R | None:
    """Returns a document that is stored as JSON text, or None if it is none."""
    try:
        doc: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        left_out(collection, doc_id, type(error).__name__)
        return None
    if is_of(collection, doc_id, doc):
        return cast(R, doc)
    left_out(collection, doc_id, type(doc).__name__)
    return None


def is_of(collection: Collection, doc_id: str, doc: object) -> bool:
    """Returns whether what was read is a document of that id."""
    return isinstance(doc, dict) and doc.get(collection.id_field, doc_id) == doc_id


def damage(collection: Collection[R], doc: R) -> str | None:
    """Returns why a document cannot be read, such as `version is missing`, or None. It names a field, never what the
    document says."""
    for name, kind in collection.needs.items():
        if not _IS[kind](doc.get(name)):
            return f"{name} is missing" if doc.get(name) is None else f"{name} is no {kind}"
    for name, declared in collection.fields.items():
        if declared == "time" and (value := value_at(doc, name)) is not None and not _is_time(value):
            return f"{name} is no time"
    owners = ("agent_id", "user_id") if collection.needs else ()
    return next((f"{name} is missing" for name in owners if name not in doc), None)


def is_readable(collection: Collection[R], doc: R) -> bool:
    """Returns whether a document can be read. One that cannot is named in the log and counted."""
    fault = damage(collection, doc)
    if fault is not None:
        left_out(collection, doc.get(collection.id_field), fault)
    return fault is None


def _is_time(value: object, *, zoned: bool = False) -> bool:
    """Returns whether a value is a time or, without `zoned`, a day."""
    try:
        return isinstance(value, str) and (parse_rfc3339(value).tzinfo is not None or not zoned)
    except ValueError:
        return False


_IS: Mapping[str, Callable[[object], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "flag": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "time": partial(_is_time, zoned=True),
}


# --- What a request has read ------------------------------------------------------------------------------------------

LAST_READ = 1_000
"""Documents that a request remembers."""
ReadDocs: TypeAlias = deque[tuple[Collection, Mapping[str, Any]]]

_DOCS_READ: ContextVar[ReadDocs | None] = ContextVar("docs_read", default=None)


@contextmanager
def remembering() -> Iterator[ReadDocs]:
    """Remembers the documents that are read inside the block, the last ones: where one of them is damaged, an error
    that nobody expected is about it. Also remembers what is left out, for `damage_warnings`."""
    read: ReadDocs = deque(maxlen=LAST_READ)
    token, told = _DOCS_READ.set(read), _LEFT_OUT.set({})
    try:
        yield read
    finally:
        _DOCS_READ.reset(token)
        _LEFT_OUT.reset(told)
        read.clear()  # tasks that were started inside may live on, with this context


def remember(collection: Collection[R], docs: Iterable[R]) -> None:
    """Notes that the caller of this request reads these documents. They are documents that it may see."""
    read = _DOCS_READ.get()
    if read is not None:
        read.extend((collection, doc) for doc in docs)


# --- Reading ----------------------------------------------------------------------------------------------------------


async def first_whole(limit: int, read: Callable[[int], Awaitable[Sequence[T | None]]]) -> list[T]:
    """Returns the first `limit` documents that can be read. `read(n)` returns the first n: it is called again, with so
    many more, where some cannot."""
    wanted = limit
    while True:
        documents = await read(wanted)
        docs = [doc for doc in documents if doc is not None]
        if len(documents) < wanted or len(docs) >= limit:
            return docs[:limit]
        wanted = limit + len(documents) - len(docs)
