"""The ledger: the facts of one scope, subject and predicate while a request changes them; and the rules for conflicts
between them. Nothing here reads the store. docs/contributing/facts.md explains the rules in words.

A statement is valid for a span of time that excludes its end. Stored statements never change: a statement that gives
way is *cut* (it is closed, and the rest of its span is stated again), and the new one is *inserted*.

1. Statements with the same object never contend. They are joined if trust and cardinality are equal; otherwise the one
   of higher trust wins where both apply.
2. Two objects contend if their spans overlap and both have cardinality `one`.
3. `temporal`: the statement that begins later wins from its beginning on. A start that nobody gave says only that the
   statement had begun when it was told, so a later assertion with a start of its own goes before it.
   `last_write_wins`: only the new one remains. `keep_both`: the new one gets cardinality `many` and contends with
   nothing.
4. A statement of lower trust never displaces one of higher trust: it is stored as disputed and changes nothing.

The ledger takes records and returns changed records. A closed fact gets a `known_until` and never changes again; what
remains of it is a new record of the same lineage. All statements of one request become known at one moment, at least a
millisecond after the previous change. So no two changes of a group share a moment, even if a clock is behind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, TypeAlias

from app.core.clock import new_id, parse_rfc3339, rfc3339
from app.facts.schemas import Cardinality, ConflictPolicy, FactGroupRecord, FactRecord

OPEN_START = ""
OPEN_END = "~"
"""Sorts after every RFC 3339 time, as OPEN_START sorts before them."""


@dataclass(frozen=True, slots=True, order=True)
class ValidSpan:
    """The time from `start` up to, but excluding, `end`: RFC 3339 times as stored, or open."""

    start: str
    end: str

    def overlaps(self, other: "ValidSpan") -> bool:
        """Returns True if the spans have time in common."""
        return self.start < other.end and other.start < self.end

    def touches(self, other: "ValidSpan") -> bool:
        """Returns True if the spans overlap, or if one begins where the other ends."""
        return self.start <= other.end and other.start <= self.end

    def covers(self, other: "ValidSpan") -> bool:
        """Returns True if the other span lies within this one."""
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Statement:
    """The parts of a currently known fact that the rules need. `object` is its normalised text and its type."""

    id: str
    object: tuple[str, str]
    span: ValidSpan
    trust: float
    cardinality: Cardinality
    disputed: bool = False
    assumed: bool = False
    """True if nobody said when it began: its start is the time when it was told, the latest that it can be."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """A new statement as it was made. `start` or `cardinality` is None if it was not given. The cardinality is then
    that of a statement of the same object, or else `usual`."""

    object: tuple[str, str]
    start: str | None
    end: str
    trust: float
    cardinality: Cardinality | None = None
    policy: ConflictPolicy = "temporal"
    usual: Cardinality = "one"
    assumed: bool = False
    """True if `start` is the time when it was told first, as with a start that was not given."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """The statement was known already; nothing changes."""

    id: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Closes a statement. It is stated again for each span of `left`: none (replaced), one (bounded) or two (split)."""

    id: str
    left: tuple[ValidSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class NewSpan:
    """Inserts the new statement for one span. It continues the statements `continues`, which say the
    same and are cut."""

    span: ValidSpan
    trust: float
    cardinality: Cardinality
    continues: tuple[str, ...] = ()
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Dispute:
    """Stores the new statement as disputed, since the statements `against` which it contends have more trust."""

    span: ValidSpan
    cardinality: Cardinality
    against: tuple[str, ...]
    assumed: bool = False


LedgerChange: TypeAlias = Confirm | Cut | NewSpan | Dispute


def decide(live: Sequence[Statement], assertion: Assertion, now: str) -> list[LedgerChange]:
    """Returns the changes that an assertion makes to the live statements. Statements that neither overlap nor touch it
    may be left out.

    The result is a single `Confirm` or `Dispute`, or cuts followed by one or more `NewSpan` in order of valid time.
    """
    undisputed = [statement for statement in live if not statement.disputed]
    same = [statement for statement in undisputed if statement.object == assertion.object]
    claim = _claim(assertion, same, now)
    rivals = [rival for rival in undisputed if rival.object != assertion.object and contend(rival, claim)]
    ended = [like for like in same if _ends(claim, like)]
    joined = [
        like
        for like in same
        if like not in ended
        and like.trust == claim.trust
        and like.cardinality == claim.cardinality
        and like.span.touches(claim.span)
    ]
    statements = [claim, *joined]
    span = ValidSpan(
        min(statement.span.start for statement in statements), max(statement.span.end for statement in statements)
    )
    above = [like for like in same if like.trust > claim.trust]
    pieces = minus(span, [statement.span for statement in (*above, *_later(rivals, claim, assertion.policy))])
    stronger = [like for like in above if _ends(replace(claim, trust=like.trust), like)]
    stronger += [rival for rival in rivals if rival.trust > claim.trust and _meets(rival, pieces)]
    if stronger:
        return [_disputed(claim, live, stronger)]
    if not ended and sorted(pieces) == sorted(like.span for like in joined):
        return [Confirm((joined or [like for like in above if like.span.touches(claim.span)])[0].id)]
    weaker = [like for like in same if like not in (*above, *ended, *joined)]
    met = [rival for rival in rivals if _meets(rival, pieces)]
    replaced = met if assertion.policy == "last_write_wins" else []
    cut = [rival for rival in met if rival not in replaced] + [like for like in weaker if _meets(like, pieces)]
    disputed = [like for like in live if like.disputed and like.object == assertion.object]
    settled = [like for like in disputed if claim.span.covers(like.span) and not minus(like.span, pieces)]
    continues = tuple(statement.id for statement in (*ended, *joined))
    return [
        *(Cut(statement.id) for statement in (*ended, *joined, *replaced, *settled)),
        *(Cut(statement.id, tuple(minus(statement.span, pieces))) for statement in cut),
        *(
            NewSpan(piece, claim.trust, claim.cardinality, continues, _is_assumed(piece, [claim, *joined]))
            for piece in pieces
        ),
    ]


def settle(live: Sequence[Statement], disputed: Statement, now: str, *, beside: bool = False) -> list[LedgerChange]:
    """Settles a dispute in favour of the disputed statement: cuts it and asserts it again with the trust of the
    statements that it contends with or, with `beside`, next to them with cardinality `many`."""
    others = [statement for statement in live if statement.id != disputed.id]
    replaced = [
        statement for statement in contenders(others, disputed) if not beside or statement.object == disputed.object
    ]
    trust = max(statement.trust for statement in (disputed, *replaced))
    cardinality: Cardinality = "many" if beside else disputed.cardinality
    span = disputed.span
    assertion = Assertion(disputed.object, span.start, span.end, trust, cardinality, assumed=disputed.assumed)
    return [
        Cut(disputed.id),
        *(
            replace(change, continues=(disputed.id, *change.continues)) if isinstance(change, NewSpan) else change
            for change in decide(others, assertion, now)
        ),
    ]


def contend(statement: Statement, other: Statement) -> bool:
    """Returns True if two statements with different objects cannot be true at the same time."""
    return statement.cardinality == other.cardinality == "one"


def contenders(live: Iterable[Statement], disputed: Statement) -> list[Statement]:
    """Returns the statements that a disputed statement contends with now."""
    undisputed = [statement for statement in live if not statement.disputed and statement.span.overlaps(disputed.span)]
    return [
        statement
        for statement in undisputed
        if (statement.object != disputed.object and contend(statement, disputed))
        or (statement.object == disputed.object and _ends(replace(disputed, trust=statement.trust), statement))
    ]


def minus(span: ValidSpan, cuts: Iterable[ValidSpan]) -> list[ValidSpan]:
    """Returns what remains of the span without the cuts, in order."""
    left, start = [], span.start
    for cut in sorted(cuts):
        if cut.end <= start or cut.start >= span.end:
            continue
        if cut.start > start:
            left.append(ValidSpan(start, cut.start))
        start = cut.end
    if start < span.end:
        left.append(ValidSpan(start, span.end))
    return left


def _claim(assertion: Assertion, same: Sequence[Statement], now: str) -> Statement:
    """Returns the assertion as a statement, with defaults filled in."""
    span = ValidSpan(_start(assertion, same, now), assertion.end)
    alike = [statement for statement in same if statement.span.touches(span)]
    best = max(alike, key=lambda statement: (statement.trust, statement.span), default=None)
    cardinality = assertion.cardinality or (best.cardinality if best else assertion.usual)
    cardinality = "many" if assertion.policy == "keep_both" else cardinality
    assumed = assertion.assumed or (assertion.start is None and span.start == now)
    return Statement("", assertion.object, span, assertion.trust, cardinality, assumed=assumed)


def _start(assertion: Assertion, same: Sequence[Statement], now: str) -> str:
    """Returns the given start, or else now. With an end alone, the start is that of the statement it ends; if the end
    is past and no such statement is known, the start is open."""
    if assertion.start is not None:
        return assertion.start
    if assertion.end == OPEN_END:
        return now
    begun = [
        statement.span.start
        for statement in same
        if statement.span.end == OPEN_END and statement.span.start < assertion.end
    ]
    return max(begun, default=OPEN_START if assertion.end <= now else now)


def _ends(claim: Statement, statement: Statement) -> bool:
    """Returns True if the claim gives an end to a statement with an open end. An open end means that none is known."""
    open_ended = statement.span.end == OPEN_END != claim.span.end
    return open_ended and claim.span.start <= statement.span.start < claim.span.end and statement.trust <= claim.trust


def _later(rivals: Sequence[Statement], claim: Statement, policy: ConflictPolicy) -> list[Statement]:
    """Returns the rivals that begin after an open-ended claim, which arrived out of order: they keep their time.

    A rival with an assumed start did not arrive out of order where the claim has a start of its own. "She lives in
    Montreal" was told in June, and then "she moved to Toronto in May": Montreal is what was before.
    """
    if policy != "temporal" or claim.span.end != OPEN_END:
        return []
    dated = not claim.assumed and claim.span.start != OPEN_START
    return [
        statement
        for statement in rivals
        if statement.span.start > claim.span.start
        and (statement.trust > claim.trust or (statement.trust == claim.trust and not (dated and statement.assumed)))
    ]


def _is_assumed(piece: ValidSpan, stated: Iterable[Statement]) -> bool:
    """Returns True if nobody gave the start of the piece: it is that of statements with an assumed start alone."""
    begun = [statement for statement in stated if statement.span.start == piece.start]
    return bool(begun) and all(statement.assumed for statement in begun)


def _meets(statement: Statement, pieces: Iterable[ValidSpan]) -> bool:
    return any(statement.span.overlaps(piece) for piece in pieces)


def _disputed(claim: Statement, live: Iterable[Statement], stronger: Sequence[Statement]) -> Confirm | Dispute:
    for statement in live:
        if (
            statement.disputed
            and statement.object == claim.object
            and statement.trust >= claim.trust
            and statement.span.covers(claim.span)
        ):
            return Confirm(statement.id)
    return Dispute(claim.span, claim.cardinality, tuple(statement.id for statement in stronger), claim.assumed)


# --- The ledger -------------------------------------------------------------------------------------------------------

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

    def end(self, fact_id: str, at: str) -> None:
        """Ends a fact at a time: it is stated again for what lies before. Without that it is retracted."""
        fact = self.live[fact_id]
        before = [self._remain(fact, span) for span in minus(statement(fact).span, [ValidSpan(at, OPEN_END)])]
        self._close(fact_id, "superseded" if before else "retracted", before)

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
        "always": draft.get("always") or next((kind for fact in continued if (kind := fact.get("always"))), None),
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
