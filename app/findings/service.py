"""Findings and their evidence. Findings are built, listed and settled. Evidence names records by kind and id, and shows
them as they stand now.

Methods that write return a `WriteResult` and commit nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson

from app.actions.schemas import ACTIONS
from app.core.clock import Clock, rfc3339
from app.core.language import sentence_spans
from app.errors import Conflict
from app.facts.keys import USERS, sentence
from app.facts.repository import FactRepository
from app.findings.schemas import FINDINGS, ReflectionFinding, evidence_names
from app.memories.models import LINKS, MEMORIES
from app.memories.repository import MemoryRepository
from app.procedures.schemas import PROCEDURES
from app.storage.changes import Change, Update
from app.storage.protocol import Store
from app.storage.repository import Listing, Repository, expired, having, pages, render_items
from app.storage.schema import Doc, Eq, Filter, both
from app.storage.scope import Scope
from app.writes.executor import IfMatch, WriteResult, etag

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


def facts_of_one_group(one: "EvidenceRecord", other: "EvidenceRecord") -> bool:
    """Returns True for two facts of one group: the rules of facts have settled them."""
    return one.kind == other.kind == "fact" and bool(one.doc["group_id"] == other.doc["group_id"])


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


def quoted(named: Doc, text: str) -> str:
    """Returns the sentences of a text that a finding is about. `named`: its record, as the finding stores it."""
    start, end = named.get("span") or (0, len(text))
    return text[start:end]


def says_more(named: Doc, text: str) -> bool:
    """Returns whether a record's text has sentences that the finding is not about."""
    start, end = named.get("span") or (0, len(text))
    return any(first < start or last > end for first, last in sentence_spans(text))


GONE = "Its evidence was changed or is gone."
"""The reason that a finding shows once its evidence no longer stands."""
PAGE = 100


def new_finding(  # noqa: PLR0913 (fields of the record)
    agent_id: str | None,
    user_id: str | None,
    kind: str,
    reason: str,
    evidence: Sequence[EvidenceRecord],
    proposal: Doc,
    confidence: float,
    now: str,
    spans: Mapping[Name, tuple[int, int]] | None = None,
) -> Doc:
    """Returns an open finding, its evidence oldest first. `spans`: where the sentences stand in a record's text that
    the finding is about, if it is not about all of it.

    Its id is derived from the owners, the kind and the evidence with its marks. So the same finding always has the
    same id.
    """
    return {
        "finding_id": finding_id(agent_id, user_id, kind, [one.named() for one in evidence]),
        "agent_id": agent_id,
        "user_id": user_id,
        "kind": kind,
        "status": "open",
        "reason": reason,
        "evidence": [
            one.named() if (span := (spans or {}).get(one.name)) is None else {**one.named(), "span": [*span]}
            for one in sorted(evidence, key=lambda one: (one.said_at, one.id))
        ],
        "proposal": proposal,
        "confidence": confidence,
        "trust": min((one.trust for one in evidence), default=1.0),
        "operation_id": None,
        "settled_by": None,
        "settled_at": None,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def finding_id(agent_id: str | None, user_id: str | None, kind: str, evidence: Sequence[Doc]) -> str:
    """Returns the id of a finding of these owners, this kind and this evidence, as a finding stores it. What sentences
    it is about makes no difference."""
    names = [{name: one[name] for name in ("kind", "id", "mark")} for one in evidence]
    named = sorted(names, key=lambda one: (one["kind"], one["id"]))
    key = orjson.dumps([agent_id, user_id, kind, named], option=orjson.OPT_SORT_KEYS)
    return f"find_{blake2b(key, digest_size=16).hexdigest()}"


class FindingRepository(Repository):
    """The findings that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, FINDINGS)

    async def open_of(self, where: Filter) -> list[Doc]:
        """Returns all open findings that match, oldest first."""
        wanted = both(Eq("status", "open"), where)
        return [doc async for docs in pages(partial(self.find, wanted), FINDINGS, PAGE) for doc in docs]

    def settle(self, doc: Doc, status: str, by: str | None, now: str, operation_id: str | None = None) -> Update:
        """Returns the change that settles an open finding. It expects that nobody has settled it meanwhile."""
        fields: Doc = {"status": status, "settled_by": by, "settled_at": now}
        if operation_id is not None:
            fields["operation_id"] = operation_id
        if status == "settled":  # what a model wrote of evidence that is gone goes with it
            fields |= {"reason": GONE, "proposal": {**doc["proposal"], "details": {}}}
        return self.update(doc, fields, now=now)

    async def render(self, docs: Sequence[Doc], now: str) -> list[Doc]:
        """Returns findings with the texts of their evidence. An open finding whose evidence no longer stands is shown
        as settled."""
        reader = EvidenceReader(self.store, self.scope, now)
        records = await reader.read(name for doc in docs for name in evidence_names(doc))
        return [rendered(doc, records) for doc in docs]


def rendered(doc: Doc, records: Mapping[Name, EvidenceRecord]) -> Doc:
    """Returns a finding with the texts of its evidence, as far as it stands."""
    there = whole(doc, dict(records))
    shown = FINDINGS.public(doc)
    if not there:
        # A reason of a model and the details of a proposal may repeat what was deleted.
        shown |= {"reason": GONE, "proposal": {**doc["proposal"], "details": {}}}
        shown["status"] = "settled" if doc["status"] == "open" else doc["status"]
    evidence = []
    for one in doc["evidence"]:
        record = records.get((one["kind"], one["id"]))
        stands = record is not None and record.mark == one["mark"]
        evidence.append(
            {
                "kind": one["kind"],
                "id": one["id"],
                "text": record.text if record and stands else None,
                "said_at": record.said_at if record and stands else None,
                "trust": record.trust if record and stands else None,
                "quote": quoted(one, record.text) if record and stands and says_more(one, record.text) else None,
            }
        )
    return shown | {"evidence": evidence}


class FindingService:
    """The operations on findings within a caller's scope."""

    def __init__(self, findings: FindingRepository, clock: Clock) -> None:
        self._findings, self._clock = findings, clock

    async def get(self, finding_id: str) -> Doc:
        """Returns a finding with its evidence. Raises NotFound."""
        return await self._shown(await self._findings.get(finding_id))

    async def page(self, filters: Mapping[str, Any], listing: Listing) -> Doc:
        """Returns a page of findings that match the filters. A page of open findings may have fewer items than its
        limit: those whose evidence no longer stands are left out."""
        where = both(
            having(filters, "agent_id", "user_id", "kind"),
            None if filters["status"] == "any" else Eq("status", filters["status"]),
        )
        docs, cursor = await self._findings.page(where, listing, mark=repr(sorted(filters.items())))
        items = await render_items(FINDINGS, docs, self._shown, ReflectionFinding)
        if filters["status"] == "open":
            items = [one for one in items if one["status"] == "open"]
        return {"items": items, "next_cursor": cursor}

    async def open_one(self, finding_id: str, precondition: IfMatch) -> Doc:
        """Returns an open finding as it is stored, for a caller that settles it. Raises NotFound, Forbidden, and
        Conflict if it is settled or its evidence no longer stands."""
        doc = await self._findings.get(finding_id)
        self._findings.require_write(doc)
        precondition.check(doc)
        finding = await self._shown(doc)
        if finding["status"] != "open":
            raise Conflict(f"This finding is not open: it is {finding['status']}.")
        return doc

    async def dismiss(self, finding_id: str, precondition: IfMatch) -> WriteResult:
        """Settles a finding, and removes the link that it made between its statements (`replacing.py`). Nothing else
        changes. It is not found again as long as its evidence stays as it is."""
        doc, now = await self.open_one(finding_id, precondition), rfc3339(self._clock.now())
        change = self._findings.settle(doc, "dismissed", self._findings.scope.key_id, now)
        after = doc | change.set | {"version": doc["version"] + 1}
        changes = [change, *await self._unlinking(doc, now)]
        return WriteResult(await self._shown(after), changes, headers={"ETag": etag(after)})

    async def _unlinking(self, finding: Doc, now: str) -> list[Change]:
        """Returns the changes that remove the links of a finding from its memories."""
        memories, changes = MemoryRepository(self._findings.store, self._findings.scope), list[Change]()
        for one in finding["evidence"]:
            for memory in await memories.saying(one["id"]) if one["kind"] == "memory" else ():
                links = memory.get(LINKS) or ()
                others = [link for link in links if link["finding_id"] != finding["finding_id"]]
                if len(others) < len(links):
                    changes += memories.revise(memory, {LINKS: others}, now)
        return changes

    async def _shown(self, doc: Doc) -> Doc:
        (finding,) = await self._findings.render([doc], rfc3339(self._clock.now()))
        return finding
