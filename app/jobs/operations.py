"""Operations that callers asked for. Their status is `queued → running → succeeded
partial
failed`, then possibly `undone`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.core.clock import rfc3339
from app.core.ids import new_id
from app.jobs.models import OPERATIONS
from app.jobs.queue import Job
from app.storage.changes import Change, Insert, Update
from app.storage.schema import Doc
from app.storage.scope import Scope

HIDDEN = ("tenant_id", "undo", "undoing")
"""Fields of an operation that callers do not see."""
ENDED = ("succeeded", "partial", "failed", "undone")


def begin(scope: Scope, kind: str, now: datetime, **owner: str | None) -> tuple[Doc, Insert]:
    """Returns a queued operation and the change that inserts it."""
    doc: Doc = {
        "tenant_id": scope.tenant,
        "operation_id": new_id("op"),
        "agent_id": owner.get("agent_id"),
        "user_id": owner.get("user_id"),
        "kind": kind,
        "status": "queued",
        "progress": {"done": 0, "total": None},
        "result": None,
        "error": None,
        "undo": None,
        "undoing": None,
        "created_at": rfc3339(now),
        "updated_at": rfc3339(now),
    }
    return doc, Insert(OPERATIONS, doc)


def start(scope: Scope, kind: str, payload: Doc, now: datetime, **owner: str | None) -> tuple[Doc, list[Change]]:
    """Returns an operation and the changes that queue it together with its job."""
    operation, noted = begin(scope, kind, now, **owner)
    job = Job(kind, scope.tenant, payload, operation["operation_id"])
    return render(operation, now), [noted, job.enqueue(now)]


def report(tenant: str, operation_id: str, now: datetime, fields: Mapping[str, Any]) -> Update:
    """Returns an update of the operation's status, progress or result."""
    return Update(OPERATIONS, tenant, operation_id, set={**fields, "updated_at": rfc3339(now)})


def render(doc: Doc, now: datetime) -> Doc:
    """Returns an operation as callers see it."""
    shown = {name: value for name, value in doc.items() if name not in HIDDEN}
    return shown | {"can_undo": can_undo(doc, now) and doc.get("undoing") is None}


def can_undo(doc: Doc, now: datetime) -> bool:
    """Returns True if the operation succeeded at least partly and can still be undone. `undo["until"]` is the end of
    that time."""
    undo = doc["undo"]
    return undo is not None and doc["status"] in ("succeeded", "partial") and undo["until"] > rfc3339(now)
