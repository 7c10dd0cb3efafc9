"""Entries of the audit trail: made of the changes that they are committed with."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.audit.models import AUDIT
from app.ids import new_id
from app.storage.collection import Change, Collection, Delete, Insert, Update

MAX_RECORDS = 1_000
"""Named in one entry; `changes` counts all."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks, and for what: the operation's id in the API, or the command."""

    tenant: str
    key_id: str
    action: str


@dataclass(slots=True)
class _Touched:
    records: list[str] = field(default_factory=list)
    changes: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, collection: Collection, kind: str, record: str) -> None:
        counts = self.changes.setdefault(collection.name, {})
        counts[kind] = counts.get(kind, 0) + 1
        if len(self.records) < MAX_RECORDS and record not in self.records[-1:]:
            self.records.append(record)


def entries(actor: Actor, changes: Sequence[Change], now: str) -> list[Change]:
    """One for each user whose records are touched, and one for those that are no user's."""
    touched: defaultdict[str | None, _Touched] = defaultdict(_Touched)
    for change in changes:
        match change:
            case Insert(collection, doc) if collection.audited:
                touched[doc.get("user_id")].add(collection, "insert", str(doc[collection.id_field]))
            case Update() | Delete() if change.collection.audited:
                kind = "update" if isinstance(change, Update) else "delete"
                touched[change.user].add(change.collection, kind, change.id)
            case _:
                pass
    return [entry(actor, now, user, one.records, one.changes) for user, one in touched.items()]


def entry(
    actor: Actor,
    now: str,
    user: str | None,
    records: Sequence[str],
    changes: dict[str, dict[str, int]],
    user_hash: str | None = None,
) -> Insert:
    return Insert(
        AUDIT,
        {
            "tenant_id": actor.tenant,
            "audit_id": new_id("aud"),
            "key_id": actor.key_id,
            "action": actor.action,
            "user_id": user,
            "user_hash": user_hash,
            "records": list(records),
            "changes": changes,
            "created_at": now,
        },
    )
