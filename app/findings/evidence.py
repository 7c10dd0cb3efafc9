"""The evidence of findings: records by kind and id, as they stand now."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from app.actions.schemas import ACTIONS
from app.facts.keys import USERS, sentence
from app.facts.repository import FactRepository
from app.memories.models import MEMORIES
from app.procedures.schemas import PROCEDURES
from app.storage.protocol import Store
from app.storage.repository import Repository, expired
from app.storage.schema import Doc
from app.storage.search import Scope

Name = tuple[str, str]
"""Kind and id of a record. The id of an entry of the profile is `user_id`, a slash and the field."""


@dataclass(frozen=True, slots=True)
class EvidenceRecord:
    """A record as evidence shows it."""

    kind: str
    id: str
    text: str
    said_at: str
    trust: float
    agent_id: str | None
    user_id: str | None
    mark: str
    """A digest of its text. It changes when somebody rewrites the record."""
    doc: Doc = field(compare=False, repr=False)

    @property
    def name(self) -> Name:
        """Kind and id."""
        return self.kind, self.id

    def named(self) -> Doc:
        """Returns the record as a finding stores it: without its text."""
        return {"kind": self.kind, "id": self.id, "mark": self.mark}


def mark_of(text: str) -> str:
    """Returns a digest of a text."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


def of_memory(doc: Doc) -> EvidenceRecord:
    """Returns a memory as evidence."""
    said_at = doc["event_at"] or doc["created_at"]
    return _record("memory", doc["memory_id"], doc["content"], said_at, doc["trust"], doc)


def of_fact(doc: Doc) -> EvidenceRecord:
    """Returns a fact as evidence. It was said when it became true, or else when it became known."""
    said_at = doc["valid_from"] or doc["known_from"]
    return _record("fact", doc["fact_id"], sentence(doc), said_at, doc["trust"], doc)


def of_profile(doc: Doc, name: str) -> EvidenceRecord:
    """Returns a field of a profile that an earlier version stored, and no fact states, as evidence."""
    text = f"{name}: {doc['profile'][name]}"
    return _record("profile", f"{doc['user_id']}/{name}", text, doc["updated_at"], 1.0, doc)


def of_procedure(doc: Doc) -> EvidenceRecord:
    """Returns a procedure as evidence. Its mark covers its steps, so that a revised procedure is another one."""
    steps = orjson.dumps([doc["name"], *doc["steps"]]).decode()
    record = _record("procedure", doc["procedure_id"], doc["name"], doc["updated_at"], doc["trust"], doc)
    return EvidenceRecord(**{**_fields(record), "mark": mark_of(steps)})


def of_action(doc: Doc) -> EvidenceRecord:
    """Returns an action as evidence."""
    return _record("action", doc["action_id"], doc["content"], doc["timestamp"], 1.0, doc)


def _fields(record: EvidenceRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in EvidenceRecord.__slots__}


def _record(kind: str, doc_id: str, text: str, said_at: str, trust: float, doc: Doc) -> EvidenceRecord:
    return EvidenceRecord(
        kind, doc_id, text, said_at, trust, doc.get("agent_id"), doc.get("user_id"), mark_of(text), doc
    )


class EvidenceReader:
    """Reads evidence within a caller's scope. Records that no longer stand are left out."""

    def __init__(self, store: Store, scope: Scope, now: str) -> None:
        self._store, self._scope, self._now = store, scope, now

    async def read(self, names: Iterable[Name]) -> dict[Name, EvidenceRecord]:
        """Returns the records that stand: active memories, facts that are not closed, values of profiles, active
        procedures, and actions."""
        wanted: dict[str, list[str]] = {}
        for kind, doc_id in dict.fromkeys(names):
            wanted.setdefault(kind, []).append(doc_id)
        found: list[EvidenceRecord] = []
        for kind, ids in wanted.items():
            found += await self._of_kind(kind, ids)
        return {record.name: record for record in found}

    async def _of_kind(self, kind: str, ids: list[str]) -> list[EvidenceRecord]:
        if kind == "memory":
            memories = (await Repository(self._store, self._scope, MEMORIES).get_many(ids)).values()
            return [of_memory(doc) for doc in memories if doc["status"] == "active" and not expired(doc, self._now)]
        if kind == "fact":
            facts = (await FactRepository(self._store, self._scope).get_many(ids)).values()
            return [of_fact(doc) for doc in facts if doc["known_until"] is None]
        if kind == "procedure":
            procedures = (await Repository(self._store, self._scope, PROCEDURES).get_many(ids)).values()
            return [of_procedure(doc) for doc in procedures if doc["status"] == "active"]
        if kind == "action":
            return [
                of_action(doc) for doc in (await Repository(self._store, self._scope, ACTIONS).get_many(ids)).values()
            ]
        fields = [(user, name) for user, _, name in (each.rpartition("/") for each in ids)]
        users = await Repository(self._store, self._scope, USERS).get_many([user for user, _ in fields])
        return [
            of_profile(users[user], name)
            for user, name in fields
            if user in users and users[user]["profile"].get(name) is not None
        ]


def whole(finding: Doc, records: dict[Name, EvidenceRecord]) -> bool:
    """Returns True if all evidence of a finding still stands as it was found."""
    found = [(records.get((one["kind"], one["id"])), one["mark"]) for one in finding["evidence"]]
    return all(record is not None and record.mark == mark for record, mark in found)
