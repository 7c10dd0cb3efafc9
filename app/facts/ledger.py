"""What we know of one scope, subject and predicate, while a request changes it: documents in, changed documents out.

Pure. A fact leaves the books by its `known_until` and is never written again; what remains of it is a new document of
the same lineage. What one request says becomes known at one moment, a millisecond at least after the change before it:
no two changes of a group are known at the same moment, whoever's clock is behind.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from app.core.clock import parse_rfc3339, rfc3339
from app.core.ids import new_id
from app.facts.conflict_resolution import (
    OPEN_END,
    OPEN_START,
    Assertion,
    Cardinality,
    Confirm,
    Cut,
    Dispute,
    LedgerChange,
    NewSpan,
    Statement,
    ValidSpan,
    contenders,
    decide,
    mark_migrated,
)
from app.storage.schema import Doc

_TICK = timedelta(milliseconds=1)


class Ledger:
    """`group`: its document, None where there is none yet; `docs`: its live facts, as many as matter."""

    def __init__(self, group: Doc | None, docs: Sequence[Doc], now: str) -> None:
        self.group = group
        self.live = {doc["fact_id"]: doc for doc in docs}
        self.now = _moment(now, group["known"] if group is not None else "")
        self.usual: Cardinality = group["usual"] if group is not None else "one"
        self.closed: dict[str, Doc] = {}
        """Stored facts as they leave, by id."""
        self.written: dict[str, Doc] = {}
        """New facts, by id, in the order of their making."""
        self.like: dict[str, str] = {}
        """Of new facts that say again what a stored one says, that one's id."""

    def assert_fact(self, draft: Doc, said: Assertion) -> tuple[str, bool]:
        """Asserts what `draft` says: the id of the fact that stands for it, and whether it is new."""
        said = replace(said, usual=self.usual)
        self.usual = said.cardinality or self.usual
        return self._carry_out(decide(self._statements(), said, self.now), draft)

    def retract(self, fact_id: str) -> None:
        self._close(fact_id, "retracted", ())

    def keep(self, fact_id: str, *, beside: bool = False) -> str:
        """Settles a dispute for the disputed fact: the id of what stands for it now."""
        doc = self.live[fact_id]
        kept, _ = self._carry_out(mark_migrated(self._statements(), statement(doc), self.now, beside=beside), doc)
        for one in self.written:
            self.like.setdefault(one, fact_id)
        return kept

    def contenders(self, fact_id: str) -> list[str]:
        """Ids of what a disputed fact contends with now."""
        return [one.id for one in contenders(self._statements(), statement(self.live[fact_id]))]

    def latest(self, fact_id: str) -> Doc:
        """A fact as this request leaves it."""
        known = self.written.get(fact_id) or self.closed.get(fact_id)
        return known or self.live[fact_id]

    # --- Carrying out -------------------------------------------------------------------------------------------------

    def _carry_out(self, changes: Sequence[LedgerChange], draft: Doc) -> tuple[str, bool]:
        """The last of what is inserted stands for all of it: it is the one that may go on."""
        cuts = [change for change in changes if isinstance(change, Cut)]
        old = {cut.id: self.live[cut.id] for cut in cuts}
        stands = [change.id for change in changes if isinstance(change, Confirm)]
        added: list[str] = []
        for change in changes:
            if isinstance(change, NewSpan | Dispute):
                new = _new(draft, change, old, added, self.now)
                added.append(self._add(new | {"supersedes": list(old)}))
        for cut in cuts:
            remains = [self._remain(old[cut.id], span) for span in cut.left]
            self._close(cut.id, "superseded", (*remains, *stands, *added))
        return (*stands, *added)[-1], bool(added)

    def _add(self, doc: Doc) -> str:
        fact_id: str = doc["fact_id"]
        self.live[fact_id] = self.written[fact_id] = doc
        return fact_id

    def _remain(self, old: Doc, span: ValidSpan) -> str:
        """What is left of a fact that was stored, or of one that is new itself."""
        left = self._add(_remainder(old, span, self.now))
        stored = self.like.get(old["fact_id"]) or (None if old["fact_id"] in self.written else old["fact_id"])
        if stored is not None:
            self.like[left] = stored
        return left

    def _close(self, fact_id: str, status: str, by: Iterable[str]) -> None:
        doc = self.live.pop(fact_id)
        fields = {"status": status, "known_until": self.now, "superseded_by": list(by), "updated_at": self.now}
        gone = self.written if fact_id in self.written else self.closed
        gone[fact_id] = doc | fields | {"version": doc["version"] + 1}

    def _statements(self) -> list[Statement]:
        return [statement(doc) for doc in self.live.values()]


def _moment(now: str, known: str) -> str:
    return now if known < now else rfc3339(parse_rfc3339(known) + _TICK)


def statement(doc: Mapping[str, Any]) -> Statement:
    span = ValidSpan(doc["valid_from"] or OPEN_START, doc["valid_until"] or OPEN_END)
    identity = doc["object_key"], doc["object_type"]
    return Statement(
        doc["fact_id"], identity, span, doc["trust"], doc["cardinality"], disputed=doc["standing"] == "disputed"
    )


def _new(draft: Doc, change: NewSpan | Dispute, old: Mapping[str, Doc], before: Sequence[str], now: str) -> Doc:
    """A fact of what was asserted, which goes on from what says the same, or is disputed."""
    fact_id = new_id("fact")
    goes_on = [old[one] for one in change.continues] if isinstance(change, NewSpan) else []
    first = min(goes_on, key=lambda doc: doc["known_from"], default=None)
    lineage = first["lineage_id"] if first else before[0] if before else fact_id
    holds = isinstance(change, NewSpan)
    fields = {
        "lineage_id": lineage,
        "confidence": max([draft["confidence"], *(doc["confidence"] for doc in goes_on)]),
        "trust": change.trust if isinstance(change, NewSpan) else draft["trust"],
        "cardinality": change.cardinality,
        "standing": "held" if holds else "disputed",
        "status": "active" if holds else "disputed",
        "disputes": [] if isinstance(change, NewSpan) else list(change.against),
    }
    return _stated(draft | fields, fact_id, change.span, now)


def _remainder(old: Doc, span: ValidSpan, now: str) -> Doc:
    return _stated(old | {"supersedes": [old["fact_id"]]}, new_id("fact"), span, now)


def _stated(doc: Doc, fact_id: str, span: ValidSpan, now: str) -> Doc:
    """A document that begins to be known."""
    return doc | {
        "fact_id": fact_id,
        "valid_from": span.start or None,
        "valid_until": None if span.end == OPEN_END else span.end,
        "known_from": now,
        "known_until": None,
        "superseded_by": [],
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }
