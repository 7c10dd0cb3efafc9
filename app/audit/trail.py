"""The audit trail. Its entries are committed together with the changes that they describe."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from app.core.clock import new_id
from app.core.schemas import shown
from app.storage.changes import Change, Delete, Insert, Update
from app.storage.schema import BaseRecord, Collection


@shown
class AuditEntry(TypedDict, total=False):
    """Who did what to which records of whom, when; never what is in them."""

    audit_id: str
    key_id: Annotated[
        str,
        Field(
            description="Of the API key; `oidc:…`: a token; `anonymous`, `unauthenticated` or `cli` where "
            "there was none."
        ),
    ]
    action: Annotated[str, Field(description="The operation's id in this document.", examples=["create_memory"])]
    user_id: str | None
    user_hash: Annotated[str | None, Field(description="In place of the id of a user who was erased.")]
    records: Annotated[list[str], Field(description="Ids, at most 1,000.")]
    changes: Annotated[dict[str, dict[str, Any]], Field(description="Counts by collection and kind.")]
    fields: Annotated[
        dict[str, list[str]], Field(description="Which fields of updated records were set, by collection.")
    ]
    created_at: str


class AuditRecord(AuditEntry, BaseRecord, total=False):
    """A document of the collection `audit`. `changes` are such as `{"agent_memories": {"insert": 2}}`."""


class TombstoneRecord(BaseRecord, total=False):
    """A document of the collection `erased_users`: a tombstone, or the tenant's key with `KEY` as its id."""

    erased_id: str
    status: Literal["begun", "erased"]
    times: int
    """How often the erasure was asked for."""
    begun_at: str
    erased_at: str | None
    operation_id: str
    job_id: str
    sealed: str
    check: str


AUDIT: Collection[AuditRecord] = Collection(
    name="audit",
    id_field="audit_id",
    fields={
        "user_id": "text",
        "user_hash": "text",
        "key_id": "text",
        "action": "text",
        "records": "list",
        "created_at": "time",
    },
    indexes=(("user_id",),),
    global_indexes=("created_at",),
    opaque=("changes", "fields"),
    audited=False,
)
"""One entry for each user that a commit touched. Entries contain ids and counts, no content. For an erased user,
`user_hash` replaces the id, and hashes replace the ids that callers chose."""

ERASED: Collection[TombstoneRecord] = Collection(name="erased_users", id_field="erased_id", fields={}, audited=False)
"""Tombstones by the keyed hash of the user's id; `status` is begun or erased. One more document contains the tenant's
key, sealed with the erasure key, which is not in the store."""


def owned(collections: Sequence[Collection]) -> list[Collection]:
    """Returns the collections whose records belong to users. The audit trail is about users, but stays."""
    return [collection for collection in collections if "user_id" in collection.fields and collection is not AUDIT]


MAX_RECORDS = 1_000
"""The limit of record ids in one entry; `changes` counts all of them."""


_BOOKKEEPING = {"version", "updated_at"}
"""Fields that each update sets."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a change. `action` is the operation id of the API, or the command."""

    tenant: str
    key_id: str
    action: str


@dataclass(slots=True)
class _Touched:
    """The records of one user that a commit changes, and counts of the changes by collection and kind."""

    ids: list[str] = field(default_factory=list)
    changes: dict[str, dict[str, int]] = field(default_factory=dict)
    fields: dict[str, set[str]] = field(default_factory=dict)

    def add(self, collection: Collection, kind: str, record: str) -> None:
        """Counts a change of a record."""
        counts = self.changes.setdefault(collection.name, {})
        counts[kind] = counts.get(kind, 0) + 1
        if len(self.ids) < MAX_RECORDS and record not in self.ids[-1:]:
            self.ids.append(record)


def audit_entries(actor: Actor, changes: Sequence[Change], now: str) -> list[Change]:
    """Returns audit entries: one for each user whose records change, and one for records without a user."""
    touched: defaultdict[str | None, _Touched] = defaultdict(_Touched)
    for change in changes:
        match change:
            case Insert(collection, doc) if collection.audited:
                touched[doc.get("user_id")].add(collection, "insert", str(doc[collection.id_field]))
            case Update() | Delete() if change.collection.audited:
                kind = "update" if isinstance(change, Update) else "delete"
                touched[change.user].add(change.collection, kind, change.id)
                if isinstance(change, Update):  # {"agent_memories": {"importance", "tags"}}
                    touched[change.user].fields.setdefault(change.collection.name, set()).update(
                        change.collection.public(change.set)
                    )
            case _:
                pass
    return [
        entry(
            actor,
            now,
            user,
            of.ids,
            of.changes,
            fields={name: sorted(fields - _BOOKKEEPING) for name, fields in of.fields.items()},
        )
        for user, of in touched.items()
    ]


def entry(
    actor: Actor,
    now: str,
    user: str | None,
    records: Sequence[str],
    changes: dict[str, dict[str, int]],
    user_hash: str | None = None,
    fields: dict[str, list[str]] | None = None,
) -> Insert[AuditRecord]:
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
            "fields": fields or {},
            "created_at": now,
        },
    )
