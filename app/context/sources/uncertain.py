"""The context source of open findings: what two records say differently, until somebody settles it."""

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.searched import search, visible
from app.core.clock import rfc3339
from app.facts.repository import of_pairs
from app.findings.evidence import EvidenceReader, EvidenceRecord, whole
from app.findings.repository import FindingRepository
from app.findings.schemas import evidence_names
from app.memories.models import MEMORIES, STANDING
from app.storage.filters import Eq, In, Or, both
from app.storage.schema import Doc
from app.storage.text import content_hash, text_ids

MOST_OPEN = 100
"""The number of open findings that are looked at, the latest ones."""
NEAR = 10
"""The number of memories nearest to the query whose findings are shown."""
SHOWN_CHARACTERS = 200
"""Longer texts are cut, and their memories may stand in their own section, too."""


async def gather_uncertain(request: SourceRequest) -> list[Candidate]:
    """Returns the open findings that touch the query: by a word of their evidence, or because a memory of theirs is
    among the nearest ones. Without open findings nothing is searched."""
    body, store = request.body, request.resources.store
    findings = FindingRepository(store, request.scope)
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    where = both(Eq("status", "open"), In("kind", ("contradiction", "stale")), Or(tuple(of_pairs(pairs))))
    latest = await findings.find(where, limit=MOST_OPEN) if pairs else []
    found = [doc for doc in latest if doc["trust"] >= (body.min_trust or 0)]
    if not found:
        return []
    now = body.as_of or rfc3339(request.now)
    reader = EvidenceReader(store, request.scope, rfc3339(request.now))
    records = await reader.read(name for doc in found for name in evidence_names(doc))
    nearest = {hit.doc["memory_id"] for hit in (await search(request, MEMORIES, visible(request), NEAR)).hits}
    terms = set(text_ids(body.query).tolist())
    items = list[tuple[int, Candidate]]()
    for doc in found:
        said = [records[name] for name in evidence_names(doc) if name in records]
        if not whole(doc, records) or any(one.said_at > now for one in said):
            continue
        shared = sum(len(terms & set(text_ids(one.text).tolist())) for one in said)
        near = any(one.id in nearest for one in said)
        if shared or near:
            items.append((-shared, _item(doc, said)))
    return [item for _, item in sorted(items, key=lambda pair: pair[0])]


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
