"""The context source of open findings: what two records say differently, until somebody settles it."""

from dataclasses import replace

from app.context.candidates import Candidate, ContextSource, Doubt, SourceRequest
from app.context.sources.searched import search, visible
from app.core.clock import rfc3339
from app.facts.repository import of_pairs
from app.findings.evidence import EvidenceReader, EvidenceRecord, whole
from app.findings.repository import FindingRepository
from app.findings.schemas import evidence_names
from app.memories.models import MEMORIES, STANDING
from app.memories.repository import MemoryRepository
from app.storage.filters import In, Or, both
from app.storage.schema import Doc
from app.storage.text import content_hash, text_ids

MOST_OPEN = 100
"""The number of findings that are looked at, the latest ones."""
NEAR = 10
"""The number of memories nearest to the query whose findings are shown."""
BY_WORDS = 0.75
"""The least confidence of a finding that one word of the query brings into a prompt. A less sure one must be near."""
SHOWN_CHARACTERS = 200
"""Longer texts are cut, and their memories may stand in their own section, too."""


async def gather_uncertain(request: SourceRequest) -> list[Candidate]:
    """Returns the open findings that touch the query: by a word of their evidence, or because a memory of theirs is
    among the nearest ones. Without open findings nothing is searched."""
    body, store = request.body, request.resources.store
    findings = FindingRepository(store, request.scope)
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    status = In("status", ("open", "accepted"))
    where = both(status, In("kind", ("contradiction", "stale")), Or(tuple(of_pairs(pairs))))
    latest = await findings.find(where, limit=MOST_OPEN) if pairs else []
    now = body.as_of or rfc3339(request.now)
    request.doubts += await _settled(request, [doc for doc in latest if doc["status"] == "accepted"], now)
    found = [doc for doc in latest if doc["status"] == "open" and doc["trust"] >= (body.min_trust or 0)]
    if not found:
        return []
    reader = EvidenceReader(store, request.scope, rfc3339(request.now))
    records = await reader.read(name for doc in found for name in evidence_names(doc))
    nearest = {hit.doc["memory_id"] for hit in (await search(request, MEMORIES, visible(request), NEAR)).hits}
    terms = set(text_ids(body.query).tolist())
    items = list[tuple[int, Candidate]]()
    for doc in found:
        said = [records[name] for name in evidence_names(doc) if name in records]
        if not whole(doc, records) or any(one.said_at > now for one in said):
            continue
        request.doubts += _doubts(said)
        shared = sum(len(terms & set(text_ids(one.text).tolist())) for one in said)
        near = any(one.id in nearest for one in said)
        if near or (shared and doc["confidence"] >= BY_WORDS):
            items.append((-shared, _item(doc, said)))
    return [item for _, item in sorted(items, key=lambda pair: pair[0])]


def _doubts(said: list[EvidenceRecord]) -> list[Doubt]:
    """Returns each statement of an open finding with the other one."""
    if len(said) == 1:
        return [_doubt(said[0].id, said[0].text, said[0].doc, "", said[0].said_at, later=False)]
    (one, *_, other) = said
    return [
        _doubt(one.id, one.text, one.doc, other.text, other.said_at, later=True),
        _doubt(other.id, other.text, other.doc, one.text, one.said_at, later=False),
    ]


async def _settled(request: SourceRequest, accepted: list[Doc], now: str) -> list[Doubt]:
    """Returns the memories that accepted findings replaced. Texts such as summaries may still repeat them."""
    replaced = [
        (doc["proposal"]["keep"]["id"], one["id"])
        for doc in accepted
        if doc["proposal"]["action"] == "supersede" and doc["proposal"]["keep"]["kind"] == "memory"
        for one in doc["proposal"]["retire"]
        if one["kind"] == "memory"
    ]
    if not replaced:
        return []
    memories = MemoryRepository(request.resources.store, request.scope)
    docs = await memories.get_many([each for pair in replaced for each in pair])
    found = []
    for kept, retired in replaced:
        keep, retire = docs.get(kept), docs.get(retired)
        if keep is not None and retire is not None and retire["superseded_by"]:
            at = str(keep["event_at"] or keep["created_at"])
            if at <= now:
                doubt = _doubt(retired, retire["content"], retire, keep["content"], at, later=True)
                found.append(replace(doubt, settled=True))
    return found


def _doubt(record_id: str, text: str, doc: Doc, other: str, other_at: str, *, later: bool) -> Doubt:
    source = doc.get("source") or {}
    session, seq = source.get("session_id"), source.get("message_seq")
    return Doubt(record_id, text, other, other_at, later, session=session, seq=seq)


def _item(finding: Doc, said: list[EvidenceRecord]) -> Candidate:
    parts = [f"{_short(one.text)} ({one.said_at[:10]})" for one in said]
    text = " or, later: ".join(parts) if len(said) > 1 else f"{parts[0]}: {finding['reason']}"
    same = frozenset(part for one in said for part in _same(one))
    return Candidate(finding["finding_id"], "finding", text, prefix="uncertain: ", same=same)


def _same(record: EvidenceRecord) -> tuple[str, ...]:
    """Returns the marks by which a memory or fact that is shown here is not shown again. Rules and long texts keep
    their own place."""
    if record.kind == "memory" and len(record.text) <= SHOWN_CHARACTERS and record.doc.get("standing") != STANDING:
        return (f"memory:{record.id}",)
    return (f"text:{content_hash(record.text)}",) if record.kind == "fact" else ()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"


UNCERTAIN = ContextSource("uncertain", "Uncertain", gather_uncertain, default_limit=10, share=0.1)
