"""The ledger: the facts of one scope, subject and predicate while a request changes them.

Takes documents and returns changed documents, without access to the store. A closed fact gets a `known_until` and never
changes again; what remains of it is a new document of the same lineage. All statements of one request become known at
one moment, at least a millisecond after the previous change. So no two changes of a group share a moment, even if a
clock is behind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import itemgetter
from typing import Any

from app.core.clock import new_id, parse_rfc3339, rfc3339
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
    settle,
)
from app.storage.schema import Doc

_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Shared:
    """What aliases add to a ledger. Its own group is that of the entity's main name, whose id is `main`; `others` are
    the groups of the other names, as far as they exist. `object_of` returns the key by which an object is compared."""

    main: str
    others: Sequence[Doc]
    object_of: Callable[[Doc], str]


class Ledger:
    """The facts of a group. `group` is its document or None; `docs` are its live facts, as far as they matter.

    The groups of the names of one entity share a ledger; `shared` then describes the others. Without aliases it is
    None.
    """

    def __init__(self, group: Doc | None, docs: Sequence[Doc], now: str, shared: Shared | None = None) -> None:
        self.group, self.shared = group, shared
        self.live = {doc["fact_id"]: doc for doc in docs}
        groups = [group, *(shared.others if shared else ())]
        latest = max((one for one in groups if one is not None), key=itemgetter("known"), default=None)
        self.now = _moment(now, latest["known"] if latest is not None else "")
        self.usual: Cardinality = latest["usual"] if latest is not None else "one"
        self.closed: dict[str, Doc] = {}
        """Stored facts that this request closes, by id."""
        self.written: dict[str, Doc] = {}
        """New facts by id, in order of creation."""
        self.like: dict[str, str] = {}
        """For each new fact that repeats a stored one: the id of the stored fact."""

    def assert_fact(self, draft: Doc, said: Assertion) -> tuple[str, bool]:
        """Asserts `draft`. Returns the id of the fact that now represents it, and whether that fact is new."""
        said = replace(said, usual=self.usual)
        self.usual = "many" if said.policy == "keep_both" else said.cardinality or self.usual
        return self._carry_out(decide(self._statements(), said, self.now), draft)

    def retract(self, fact_id: str) -> None:
        """Closes a fact as retracted, without a successor."""
        self._close(fact_id, "retracted", ())

    def keep(self, fact_id: str, *, beside: bool = False) -> str:
        """Settles a dispute in favour of the disputed fact. Returns the id of the fact that now represents it."""
        doc = self.live[fact_id]
        self.usual = "many" if beside else self.usual
        kept, _ = self._carry_out(settle(self._statements(), self._statement(doc), self.now, beside=beside), doc)
        for one in self.written:
            self.like.setdefault(one, fact_id)
        return kept

    def take_in(self, doc: Doc) -> None:
        """Adds a live fact that stood in another group. It stays as it is unless the rules say otherwise."""
        fact_id, one = doc["fact_id"], self._statement(doc)
        if one.disputed:
            self.live[fact_id] = doc
            return
        said = Assertion(one.object, one.span.start, one.span.end, one.trust, one.cardinality, assumed=one.assumed)
        # only an assumed start that was told before gives way to a given one
        known = [
            replace(other, assumed=other.assumed and self.live[other.id]["known_from"] <= doc["known_from"])
            for other in self._statements()
        ]
        changes = decide(known, said, self.now)
        self.live[fact_id] = doc
        stated = [change for change in changes if not isinstance(change, Cut)]
        if stated == [NewSpan(one.span, one.trust, one.cardinality, assumed=one.assumed)]:
            stands: list[LedgerChange] = [change for change in changes if isinstance(change, Cut)]
            self._carry_out([*stands, Confirm(fact_id)], doc)
            return
        continued = [replace(c, continues=(fact_id, *c.continues)) if isinstance(c, NewSpan) else c for c in changes]
        self._carry_out([Cut(fact_id), *continued], doc)

    def contenders(self, fact_id: str) -> list[str]:
        """Returns the ids of the facts that a disputed fact contends with now."""
        return [one.id for one in contenders(self._statements(), self._statement(self.live[fact_id]))]

    def holding(self) -> list[Doc]:
        """Returns the facts that are held and valid now, as this request leaves them and as far as it has read them."""
        here = ValidSpan(self.now, f"{self.now}~")
        return [doc for doc in self.live.values() if doc["standing"] == "held" and statement(doc).span.overlaps(here)]

    def latest(self, fact_id: str) -> Doc:
        """Returns a fact as this request leaves it."""
        known = self.written.get(fact_id) or self.closed.get(fact_id)
        return known or self.live[fact_id]

    # --- Applying changes ---------------------------------------------------------------------------------------------

    def _carry_out(self, changes: Sequence[LedgerChange], draft: Doc) -> tuple[str, bool]:
        """Applies the changes. Of several inserted facts, the last one represents the statement, since it may be
        open-ended."""
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
        """Adds the remainder of a cut fact, which was stored or is new itself. Returns its id."""
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
        return [self._statement(doc) for doc in self.live.values()]

    def _statement(self, doc: Doc) -> Statement:
        return statement(doc, self.shared.object_of(doc) if self.shared else None)


def _moment(now: str, known: str) -> str:
    return now if known < now else rfc3339(parse_rfc3339(known) + _TICK)


def statement(doc: Mapping[str, Any], object_key: str | None = None) -> Statement:
    """Returns the parts of a fact's document that the rules need. `object_key`: by which its object is compared, if not
    by its own key."""
    span = ValidSpan(doc["valid_from"] or OPEN_START, doc["valid_until"] or OPEN_END)
    identity = object_key or doc["object_key"], doc["object_type"]
    assumed = doc.get("start_assumed")
    if not isinstance(assumed, bool):  # facts of earlier versions do not say whether their start was given
        assumed = doc["valid_from"] == doc["known_from"]
    return Statement(
        doc["fact_id"],
        identity,
        span,
        doc["trust"],
        doc["cardinality"],
        disputed=doc["standing"] == "disputed",
        assumed=assumed,
    )


def _new(draft: Doc, change: NewSpan | Dispute, old: Mapping[str, Doc], before: Sequence[str], now: str) -> Doc:
    """Returns a new fact for an assertion. It continues facts that say the same, or is disputed."""
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
        "start_assumed": change.assumed,
    }
    return _stated(draft | fields, fact_id, change.span, now)


def _remainder(old: Doc, span: ValidSpan, now: str) -> Doc:
    one = statement(old)
    assumed = one.assumed and one.span.start == span.start
    return _stated(old | {"supersedes": [old["fact_id"]], "start_assumed": assumed}, new_id("fact"), span, now)


def _stated(doc: Doc, fact_id: str, span: ValidSpan, now: str) -> Doc:
    """Returns a copy of the document that becomes known now."""
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
