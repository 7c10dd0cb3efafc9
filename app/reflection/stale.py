"""What is stale by itself: plans whose time is past or that were called off, and learned memories of little trust that
nothing ever confirmed. Pure functions.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.core.clock import parse_rfc3339, rfc3339, to_ms
from app.findings.service import EvidenceRecord
from app.learning.evidence import term_share
from app.learning.words import fold
from app.reflection.comparing import Contradiction
from app.reflection.sentences import Sentence, people, sentences, stems, table
from app.retrieval.time_expressions import read_interval
from app.storage.schema import Doc, Eq, Filter, In, Range, both

GRACE = timedelta(days=1)
"""How long after its time a plan may still be reported on."""
REMARK = 3
"""A sentence with no more words names no plan: "Maybe tomorrow"."""
_DAY = re.compile(r"\b\d{1,2}(?:st|nd|rd|th)?\b")
_MY = frozenset("my our mein meine meinen meinem meiner unser unsere mi mis nuestro nuestra".split())
_YEARLY = frozenset(
    "birthday anniversary born birthdays every geburtstag hochzeitstag jubilaum geboren jeden jedes cumpleanos cumple "
    "aniversario naci nacio cada since seit desde".split()
)
_YEAR = re.compile(r"\b\d{4}\b")
_NAME = re.compile(r"(?<=\s)[A-Z\u00c0-\u00de][\w-]+")


@dataclass(frozen=True, slots=True)
class PastPlan:
    """A plan whose time ended at `until` and of which nothing was heard since."""

    record: EvidenceRecord
    until: str
    alone: bool = True
    """Whether the record says nothing else."""


def plans(records: Sequence[EvidenceRecord], now: datetime) -> Iterator[PastPlan | Contradiction]:
    """Yields plans that are past, and each plan with the later record that calls it off."""
    ordered = sorted((one for one in records if one.kind == "memory"), key=lambda one: (one.said_at, one.id))
    for at, record in enumerate(ordered):
        planned = [one for one in sentences(record.text) if _is_plan(one)]
        alone = len(planned) == 1 and planned[0].text.rstrip(".!") == record.text.strip().rstrip(".!")
        dated = [one for one in sentences(record.text) if one not in planned and _is_dated(one)]
        until = _end(record, dated[0].text) if len(dated) == 1 and not planned else None
        if until is not None and until + GRACE < now and not heard_of(dated[0], record, ordered[at + 1 :]):
            yield PastPlan(record, rfc3339(until), alone=dated[0].text.rstrip(".!") == record.text.strip().rstrip(".!"))
        if not alone or len(planned[0].tokens) <= REMARK:
            continue
        heard = heard_of(planned[0], record, ordered[at + 1 :])
        off = next((later for later in heard if any(one.has("cancelled") for one in sentences(later.text))), None)
        if off is not None:
            yield Contradiction(record, off, "plan", "The later one says that the plan was called off.", 0.85, True)
            continue
        until = _end(record, record.text)
        if until is not None and until + GRACE < now and not heard:
            yield PastPlan(record, rfc3339(until))


def _is_plan(sentence: Sentence) -> bool:
    return sentence.has("intended") and not (sentence.past or sentence.negative or sentence.text.endswith("?"))


def _is_dated(sentence: Sentence) -> bool:
    """Returns whether a sentence says what the user does on a day of a month, as in "On 3 May I start my training".
    What comes again each year is no plan."""
    if sentence.past or sentence.negative or sentence.has("corrected") or not sentence.holds:
        return False
    words = {token.word for token in sentence.tokens}
    own = words & table("self") if words & people().keys() else words & (table("self") | _MY)
    return bool(own and words & table("months") and _DAY.search(sentence.text)) and words.isdisjoint(_YEARLY)


def heard_of(plan: Sentence, record: EvidenceRecord, later: Sequence[EvidenceRecord]) -> list[EvidenceRecord]:
    """Returns the records after a plan that speak of the same."""
    return [one for one in later if one.said_at > record.said_at and _touches(plan, one)]


def _touches(plan: Sentence, later: EvidenceRecord) -> bool:
    """Returns True if a later record speaks of the same: it shares a name or two words with the plan."""
    names = {fold(name) for name in _NAME.findall(plan.text)} - table("months")
    for sentence in sentences(later.text):
        words = {token.word for token in sentence.tokens}
        shared = [len(one & other) for one, other in zip(_about(plan), _about(sentence), strict=True)]
        cancelled = sentence.has("cancelled")
        if names & words or max(shared) >= (1 if cancelled else 2):
            return True
    return False


def _about(sentence: Sentence) -> tuple[frozenset[str], ...]:
    return stems(token.word for token in sentence.tokens)


def _end(record: EvidenceRecord, text: str) -> datetime | None:
    """Returns the end of the time that a plan names, or None if it names none after it was said."""
    said_at = parse_rfc3339(record.said_at)
    interval = read_interval(text, said_at)
    if interval is not None and interval.end <= to_ms(said_at) and not _YEAR.search(text):
        # A date without a year is read as one that is past, as in a question. A plan's lies ahead.
        interval = read_interval(text, said_at + timedelta(days=365))
    if interval is None:
        return None
    until = datetime.fromtimestamp(interval.end / 1000, UTC)
    return (
        until
        if until > said_at and interval.end - interval.start < timedelta(days=366) / timedelta(milliseconds=1)
        else None
    )


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
    for one in records:
        if one.kind == "memory" and _unconfirmed(one.doc, since) and not _repeated(one, recent):
            yield one


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
    return any(one.id != record.id and term_share(record.text, one.text) == 1 for one in recent)
