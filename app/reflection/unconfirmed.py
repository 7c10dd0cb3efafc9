"""Learned memories of little trust that nothing ever confirmed. Pure functions: they read trust, times and use, and of
the texts only whether one has all words of another."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from app.core.clock import rfc3339
from app.core.language import STOP_WORDS, words
from app.findings.service import EvidenceRecord
from app.storage.schema import Doc, Eq, Filter, In, Range, both

LITTLE_TRUST = 0.8
"""The service's own conclusions with less trust need a confirmation: what an assistant said has 0.7."""
DERIVED = ("extraction", "consolidation")
AGEING = ("fact", "preference")
"""Types that stop being true with time. What happened, and rules that somebody gave, stay as they are."""


def unconfirmed(records: Sequence[EvidenceRecord], now: datetime, days: float) -> Iterator[EvidenceRecord]:
    """Yields learned memories of little trust that for `days` days nobody said again, served, changed or called
    helpful. What is pinned or has a key was wanted by somebody."""
    since = rfc3339(now - timedelta(days=days))
    recent = [one for one in records if one.said_at > since]
    for record in records:
        if record.kind == "memory" and _unconfirmed(record.doc, since) and not _repeated(record, recent):
            yield record


def crossed(earlier: datetime | None, now: datetime, days: float) -> Filter:
    """Returns the filter of memories that may have become unconfirmed between two runs."""
    span = timedelta(days=days)
    begin = None if earlier is None else rfc3339(earlier - span)
    unused = Range("anchored_at", ge=begin, le=rfc3339(now - span))
    learned = In("source.origin", DERIVED), In("memory_type", AGEING), Range("trust", lt=LITTLE_TRUST)
    return both(Eq("status", "active"), unused, *learned)


def _unconfirmed(doc: Doc, since: str) -> bool:
    learned = doc["source"]["origin"] in DERIVED and doc["memory_type"] in AGEING and doc["trust"] < LITTLE_TRUST
    if not learned or doc["pinned"] or doc["key"] is not None or doc.get("helpful_count"):
        return False
    changed = doc["updated_at"] if doc["version"] > 1 else ""
    return max(str(doc["created_at"]), str(doc["last_accessed"] or ""), str(changed)) <= since


def _repeated(record: EvidenceRecord, recent: Sequence[EvidenceRecord]) -> bool:
    """Returns whether a later record of these days has all its words."""
    told = {*words(record.text)} - STOP_WORDS
    return any(one.id != record.id and told <= {*words(one.text)} for one in recent)
