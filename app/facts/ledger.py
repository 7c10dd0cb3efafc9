"""The ledger: the facts of one scope, subject and predicate while a request changes them.

Takes records and returns changed records, without access to the store. A closed fact gets a `known_until` and never
changes again; what remains of it is a new record of the same lineage. All statements of one request become known at
one moment, at least a millisecond after the previous change. So no two changes of a group share a moment, even if a
clock is behind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

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
    contend,
    contenders,
    decide,
    minus,
    settle,
)
from app.facts.models import FactGroupRecord, FactRecord

_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Shared:
    """What aliases add to a ledger. Its own group is that of the entity's main name, whose id is `main`; `others` are
    the groups of the other names, as far as they exist. `object_of` returns the key by which an object is compared."""

    main: str
    others: Sequence[FactGroupRecord]
    object_of: Callable[[FactRecord], str]


class Ledger:
    """The facts of a group. `group` is its record or None; `facts` are its live facts, as far as they matter.

    The groups of the names of one entity share a ledger; `shared` then describes the others. Without aliases it is
    None.
    """

    def __init__(
        self, group: FactGroupRecord | None, facts: Sequence[FactRecord], now: str, shared: Shared | None = None
    ) -> None:
        self.group, self.shared = group, shared
        self.live = {fact["fact_id"]: fact for fact in facts}
        groups = [*([] if group is None else [group]), *(shared.others if shared else ())]
        latest = max(groups, key=lambda group: group["known"], default=None)
        known = latest["known"] if latest is not None else ""
        self.now = now if known < now else rfc3339(parse_rfc3339(known) + _TICK)
        self.usual: Cardinality = latest["usual"] if latest is not None else "one"
        self.closed: dict[str, FactRecord] = {}
        """Stored facts that this request closes, by id."""
        self.written: dict[str, FactRecord] = {}
        """New facts by id, in order of creation."""
        self.like: dict[str, str] = {}
        """For each new fact that repeats a stored one: the id of the stored fact."""
        self.ended: dict[str, list[FactRecord]] = {}
        """Facts of other objects that gave way to a new fact, as they were, by its id."""

    def assert_fact(self, draft: FactRecord, assertion: Assertion) -> tuple[str, bool]:
        """Asserts `draft`. Returns the id of the fact that now represents it, and whether that fact is new."""
        assertion = replace(assertion, usual=self.usual)
        # once many, always many: who says "allergic_to kiwi" without a cardinality does not end "allergic_to walnuts"
        stated = assertion.cardinality or ("many" if assertion.policy == "keep_both" else "one")
        self.usual = "many" if "many" in (stated, self.usual) else "one"
        return self._carry_out(decide(self._statements(), assertion, self.now), draft)

    def retract(self, fact_id: str) -> None:
        """Closes a fact as retracted, without a successor."""
        self._close(fact_id, "retracted", ())

    def keep(self, fact_id: str, *, beside: bool = False) -> str:
        """Settles a dispute in favour of the disputed fact. Returns the id of the fact that now represents it."""
        disputed = self.live[fact_id]
        self.usual = "many" if beside else self.usual
        changes = settle(self._statements(), self._statement(disputed), self.now, beside=beside)
        representing, _ = self._carry_out(changes, disputed)
        for added in self.written:
            self.like.setdefault(added, fact_id)
        return representing

    def bring_back(self, old: FactRecord, left: Sequence[FactRecord]) -> None:
        """States again what a closed fact lost to one that is deleted, for the time that nothing else holds.
        `left`: what remained of it then."""
        whole = self._statement(old)
        held = [
            other.span
            for other in self._statements()
            if not other.disputed and (other.object == whole.object or contend(other, whole))
        ]
        for piece in minus(whole.span, [*(statement(rest).span for rest in left), *held]):
            assumed = whole.assumed and piece.start == whole.span.start
            assertion = Assertion(whole.object, piece.start, piece.end, whole.trust, whole.cardinality, assumed=assumed)
            before = {*self.written}
            self._carry_out(decide(self._statements(), assertion, self.now), old)
            self.like |= {added: old["fact_id"] for added in self.written if added not in before}

    def contenders(self, fact_id: str) -> list[str]:
        """Returns the ids of the facts that a disputed fact contends with now."""
        return [rival.id for rival in contenders(self._statements(), self._statement(self.live[fact_id]))]

    def holding(self) -> list[FactRecord]:
        """Returns the facts that are held and valid now, as this request leaves them and as far as it has read them."""
        here = ValidSpan(self.now, f"{self.now}~")
        undisputed = [fact for fact in self.live.values() if fact["standing"] == "held"]
        return [fact for fact in undisputed if statement(fact).span.overlaps(here)]

    def latest(self, fact_id: str) -> FactRecord:
        """Returns a fact as this request leaves it."""
        return self.written.get(fact_id) or self.closed.get(fact_id) or self.live[fact_id]

    # --- Applying changes ---------------------------------------------------------------------------------------------

    def _carry_out(self, changes: Sequence[LedgerChange], draft: FactRecord) -> tuple[str, bool]:
        """Applies the changes. Of several inserted facts, the last one represents the statement, since it may be
        open-ended."""
        cuts = [change for change in changes if isinstance(change, Cut)]
        old = {cut.id: self.live[cut.id] for cut in cuts}
        stands = [change.id for change in changes if isinstance(change, Confirm)]
        added: list[str] = []
        for change in changes:
            if isinstance(change, NewSpan | Dispute):
                new = _new(draft, change, old, added, self.now)
                added.append(self._add({**new, "supersedes": list(old)}))
        for cut in cuts:
            remains = [self._remain(old[cut.id], span) for span in cut.left]
            self._close(cut.id, "superseded", (*remains, *stands, *added))
        if added:
            stated = self._statement(self.live[added[-1]]).object
            self.ended[added[-1]] = [fact for fact in old.values() if self._statement(fact).object != stated]
        return (*stands, *added)[-1], bool(added)

    def _add(self, fact: FactRecord) -> str:
        fact_id = fact["fact_id"]
        self.live[fact_id] = self.written[fact_id] = fact
        return fact_id

    def _remain(self, old: FactRecord, span: ValidSpan) -> str:
        """Adds the remainder of a cut fact, which was stored or is new itself. Returns its id."""
        whole = statement(old)
        assumed = whole.assumed and whole.span.start == span.start
        rest: FactRecord = {**old, "supersedes": [old["fact_id"]], "start_assumed": assumed}
        left = self._add(_stated(rest, new_id("fact"), span, self.now))
        stored = self.like.get(old["fact_id"]) or (None if old["fact_id"] in self.written else old["fact_id"])
        if stored is not None:
            self.like[left] = stored
        return left

    def _close(self, fact_id: str, status: Literal["superseded", "retracted"], by: Iterable[str]) -> None:
        fact = self.live.pop(fact_id)
        gone = self.written if fact_id in self.written else self.closed
        gone[fact_id] = {
            **fact,
            "status": status,
            "known_until": self.now,
            "superseded_by": list(by),
            "updated_at": self.now,
            "version": fact["version"] + 1,
        }

    def _statements(self) -> list[Statement]:
        return [self._statement(fact) for fact in self.live.values()]

    def _statement(self, fact: FactRecord) -> Statement:
        return statement(fact, self.shared.object_of(fact) if self.shared else None)


def statement(fact: FactRecord, object_key: str | None = None) -> Statement:
    """Returns the parts of a fact that the rules need. `object_key`: by which its object is compared, if not by its own
    key."""
    span = ValidSpan(fact["valid_from"] or OPEN_START, fact["valid_until"] or OPEN_END)
    return Statement(
        fact["fact_id"],
        (object_key or fact["object_key"], fact["object_type"]),
        span,
        fact["trust"],
        fact["cardinality"],
        disputed=fact["standing"] == "disputed",
        assumed=fact["start_assumed"],
    )


def _new(
    draft: FactRecord,
    change: NewSpan | Dispute,
    old: Mapping[str, FactRecord],
    before: Sequence[str],
    now: str,
) -> FactRecord:
    """Returns a new fact for an assertion. It continues facts that say the same, or is disputed."""
    fact_id = new_id("fact")
    holds = isinstance(change, NewSpan)
    continued = [old[earlier] for earlier in change.continues] if isinstance(change, NewSpan) else []
    first = min(continued, key=lambda fact: fact["known_from"], default=None)
    new: FactRecord = {
        **draft,
        "lineage_id": first["lineage_id"] if first else draft.get("lineage_id") or (before[0] if before else fact_id),
        "confidence": max([draft["confidence"], *(fact["confidence"] for fact in continued)]),
        "trust": change.trust if isinstance(change, NewSpan) else draft["trust"],
        "cardinality": change.cardinality,
        "standing": "held" if holds else "disputed",
        "status": "active" if holds else "disputed",
        "disputes": [] if isinstance(change, NewSpan) else list(change.against),
        "start_assumed": change.assumed,
    }
    return _stated(new, fact_id, change.span, now)


def _stated(fact: FactRecord, fact_id: str, span: ValidSpan, now: str) -> FactRecord:
    """Returns a copy of the fact that becomes known now."""
    return {
        **fact,
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
