"""Learned memories of little trust that nothing ever confirmed. Pure functions: they read trust, times and use, and of
the texts only whether one has all words of another."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from app.core.clock import rfc3339
from app.core.language import STOP_WORDS, words
from app.findings.service import EvidenceRecord, MemoryEvidence
from app.memories.schemas import MemoryRecord
from app.storage.schema import Eq, Filter, In, Range, both

LITTLE_TRUST = 0.8
"""The service's own conclusions with less trust need a confirmation: what an assistant said has 0.7."""
DERIVED = ("extraction", "consolidation")
AGEING = ("fact", "preference")
"""Types that stop being true with time. What happened, and rules that somebody gave, stay as they are."""


def unconfirmed(records: Sequence[EvidenceRecord], now: datetime, days: float) -> Iterator[MemoryEvidence]:
    """Yields learned memories of little trust that for `days` days nobody said again, served, changed or called
    helpful. What is pinned or has a key was wanted by somebody."""
    since = rfc3339(now - timedelta(days=days))
    recent = [record for record in records if record.said_at > since]
    for record in records:
        if isinstance(record, MemoryEvidence) and _unconfirmed(record.memory, since) and not _repeated(record, recent):
            yield record


def crossed(earlier: datetime | None, now: datetime, days: float) -> Filter:
    """Returns the filter of memories that may have become unconfirmed between two runs."""
    span = timedelta(days=days)
    begin = None if earlier is None else rfc3339(earlier - span)
    unused = Range("anchored_at", ge=begin, le=rfc3339(now - span))
    learned = In("source.origin", DERIVED), In("memory_type", AGEING), Range("trust", lt=LITTLE_TRUST)
    return both(Eq("status", "active"), unused, *learned)


def _unconfirmed(memory: MemoryRecord, since: str) -> bool:
    learned = memory["source"]["origin"] in DERIVED and memory["memory_type"] in AGEING
    if not learned or memory["trust"] >= LITTLE_TRUST or memory["pinned"] or memory["key"] is not None:
        return False
    changed = memory["updated_at"] if memory["version"] > 1 else ""
    is_recent = max(memory["created_at"], memory["last_accessed"] or "", changed) > since
    return not is_recent and not memory.get("helpful_count")


def _repeated(record: EvidenceRecord, recent: Sequence[EvidenceRecord]) -> bool:
    """Returns whether a later record of these days has all its words."""
    record_words = {*words(record.text)} - STOP_WORDS
    return any(later.id != record.id and record_words <= {*words(later.text)} for later in recent)
