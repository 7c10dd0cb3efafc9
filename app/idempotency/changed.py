"""What most changes of one record are: some fields become others, and the version moves."""

from collections.abc import Callable

from app.idempotency.precondition import etag
from app.idempotency.write import Outcome
from app.storage.collection import Doc
from app.storage.repository import Repository


def changed(repository: Repository, doc: Doc, fields: Doc, render: Callable[[Doc], Doc], now: str) -> Outcome:
    """The record as `fields` leave it, with its ETag. Without any, nothing is written; a key that may not write it is
    refused all the same."""
    repository.require_write(doc)
    if not fields:
        return Outcome(render(doc), headers={"ETag": etag(doc)})
    new = doc | fields | {"version": doc["version"] + 1, "updated_at": now}
    return Outcome(render(new), [repository.update(doc, fields, now=now)], headers={"ETag": etag(new)})
