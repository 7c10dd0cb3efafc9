"""Skips records that a job cannot handle, so that one of them does not end the run for all others.

`with skipping(MEMORIES, doc["memory_id"]): read(doc)` leaves the block where the content is at fault; the operation
then ends `partial` and names the record. An error of the store, a model, the lease or the machine is not about the
record: it is raised, and the job is tried again.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

from app.errors import Invalid, RecalldError, RecordDamaged
from app.jobs.models import SkippedRecord, SkippedRecords
from app.storage.records import left_out
from app.storage.schema import Collection, R

T = TypeVar("T")

SkippedById: TypeAlias = dict[tuple[str, str], str]
"""The class of the error, by kind and id of each record that a run has skipped."""
SHOWN = 100
"""The number of skipped records that a result names."""

_OF_RUN: ContextVar[SkippedById | None] = ContextVar("skipped", default=None)


@contextmanager
def collecting() -> Iterator[SkippedById]:
    """Collects what is skipped inside the block, also in the tasks and threads that are started there."""
    skipped: SkippedById = {}
    token = _OF_RUN.set(skipped)
    try:
        yield skipped
    finally:
        _OF_RUN.reset(token)


@contextmanager
def skipping(collection: Collection, doc_id: object) -> Iterator[None]:
    """Ends the block where the content of a record cannot be handled, and notes the record. Outside a job the error is
    raised."""
    try:
        yield
    except Exception as error:
        if _OF_RUN.get() is None or not of_content(error):
            raise
        note(collection, doc_id, type(error).__name__)  # the error's text may hold what the record says


def note(collection: Collection, doc_id: object, error: str) -> None:
    """Notes a record that the job skips. `error`: the class of the error."""
    skipped, named_as = _OF_RUN.get(), (collection.noun, str(doc_id))
    if skipped is not None and named_as not in skipped:
        skipped[named_as] = error
        left_out(collection, doc_id, error)


def handled(collection: Collection[R], records: Iterable[R], handle: Callable[[R], T]) -> list[tuple[R, T]]:
    """Returns each record with what `handle` makes of it. Those that it cannot handle are skipped."""
    result: list[tuple[R, T]] = []
    for record in records:
        with skipping(collection, record.get(collection.id_field)):
            result.append((record, handle(record)))
    return result


def of_content(error: Exception) -> bool:
    """Returns whether an error may be about the content of a record: errors of the service (`app/errors.py`), of files
    and the network, and a lack of memory are not, but a value that is refused is."""
    return isinstance(error, Invalid | RecordDamaged) or not isinstance(error, RecalldError | OSError | MemoryError)


def named(skipped: SkippedById) -> SkippedRecords:
    """Returns the number and the first names of skipped records, as an operation's result has them."""
    items: list[SkippedRecord] = [
        {"kind": kind, "id": record_id, "error": error} for (kind, record_id), error in skipped.items()
    ]
    return {"count": len(items), "items": items[:SHOWN]}
