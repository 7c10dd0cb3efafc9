"""Rules for conflicts between facts of one scope, subject and predicate, as pure functions. docs/concepts/facts.md
explains them in words.

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
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from typing_extensions import TypeAliasType

Cardinality = TypeAliasType("Cardinality", Literal["one", "many"])
ConflictPolicy = TypeAliasType("ConflictPolicy", Literal["temporal", "last_write_wins", "keep_both"])

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


def decide(live: Sequence[Statement], said: Assertion, now: str) -> list[LedgerChange]:
    """Returns the changes that an assertion makes to the live statements. Statements that neither overlap nor touch it
    may be left out.

    The result is a single `Confirm` or `Dispute`, or cuts followed by one or more `NewSpan` in order of valid time.
    """
    undisputed = [one for one in live if not one.disputed]
    same = [one for one in undisputed if one.object == said.object]
    claim = _claim(said, same, now)
    rivals = [one for one in undisputed if one.object != said.object and contend(one, claim)]
    ended = [one for one in same if _ends(claim, one)]
    joined = [one for one in same if one not in ended and _equal(one, claim) and one.span.touches(claim.span)]
    span = _union([claim, *joined])
    above = [one for one in same if one.trust > claim.trust]
    pieces = minus(span, [one.span for one in (*above, *_later(rivals, claim, said.policy))])
    stronger = [one for one in above if _ends(replace(claim, trust=one.trust), one)]
    stronger += [one for one in rivals if one.trust > claim.trust and _meets(one, pieces)]
    if stronger:
        return [_disputed(claim, live, stronger)]
    if not ended and sorted(pieces) == sorted(one.span for one in joined):
        return [Confirm((joined or [one for one in above if one.span.touches(claim.span)])[0].id)]
    weaker = [one for one in same if one not in (*above, *ended, *joined)]
    replaced = [one for one in rivals if _meets(one, pieces)] if said.policy == "last_write_wins" else []
    cut = [one for one in (*rivals, *weaker) if one not in replaced and _meets(one, pieces)]
    settled = [one for one in live if one.disputed and one.object == said.object and _says(claim, pieces, one.span)]
    continues = tuple(one.id for one in (*ended, *joined))
    return [
        *(Cut(one.id) for one in (*ended, *joined, *replaced, *settled)),
        *(Cut(one.id, tuple(minus(one.span, pieces))) for one in cut),
        *(
            NewSpan(piece, claim.trust, claim.cardinality, continues, _is_assumed(piece, [claim, *joined]))
            for piece in pieces
        ),
    ]


def settle(live: Sequence[Statement], disputed: Statement, now: str, *, beside: bool = False) -> list[LedgerChange]:
    """Settles a dispute in favour of the disputed statement: cuts it and asserts it again with the trust of the
    statements that it contends with or, with `beside`, next to them with cardinality `many`."""
    others = [one for one in live if one.id != disputed.id]
    replaced = [one for one in contenders(others, disputed) if not beside or one.object == disputed.object]
    trust = max(one.trust for one in (disputed, *replaced))
    cardinality: Cardinality = "many" if beside else disputed.cardinality
    span = disputed.span
    said = Assertion(disputed.object, span.start, span.end, trust, cardinality, assumed=disputed.assumed)
    return [
        Cut(disputed.id),
        *(
            replace(change, continues=(disputed.id, *change.continues)) if isinstance(change, NewSpan) else change
            for change in decide(others, said, now)
        ),
    ]


def contend(one: Statement, other: Statement) -> bool:
    """Returns True if two statements with different objects cannot be true at the same time."""
    return one.cardinality == other.cardinality == "one"


def contenders(live: Iterable[Statement], disputed: Statement) -> list[Statement]:
    """Returns the statements that a disputed statement contends with now."""
    undisputed = [one for one in live if not one.disputed and one.span.overlaps(disputed.span)]
    return [
        one
        for one in undisputed
        if (one.object != disputed.object and contend(one, disputed))
        or (one.object == disputed.object and _ends(replace(disputed, trust=one.trust), one))
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


# --- Helpers of `decide` ----------------------------------------------------------------------------------------------


def _claim(said: Assertion, same: Sequence[Statement], now: str) -> Statement:
    """Returns the assertion as a statement, with defaults filled in."""
    span = ValidSpan(_start(said, same, now), said.end)
    alike = [one for one in same if one.span.touches(span)]
    best = max(alike, key=lambda one: (one.trust, one.span), default=None)
    cardinality = said.cardinality or (best.cardinality if best else said.usual)
    cardinality = "many" if said.policy == "keep_both" else cardinality
    assumed = said.assumed or (said.start is None and span.start == now)
    return Statement("", said.object, span, said.trust, cardinality, assumed=assumed)


def _start(said: Assertion, same: Sequence[Statement], now: str) -> str:
    """Returns the given start, or else now. With an end alone, the start is that of the statement it ends; if the end
    is past and no such statement is known, the start is open."""
    if said.start is not None:
        return said.start
    if said.end == OPEN_END:
        return now
    begun = [one.span.start for one in same if one.span.end == OPEN_END and one.span.start < said.end]
    return max(begun, default=OPEN_START if said.end <= now else now)


def _ends(claim: Statement, one: Statement) -> bool:
    """Returns True if the claim gives an end to a statement with an open end. An open end means that none is known."""
    open_ended = one.span.end == OPEN_END != claim.span.end
    return open_ended and claim.span.start <= one.span.start < claim.span.end and one.trust <= claim.trust


def _equal(one: Statement, claim: Statement) -> bool:
    return one.trust == claim.trust and one.cardinality == claim.cardinality


def _union(statements: Sequence[Statement]) -> ValidSpan:
    return ValidSpan(min(one.span.start for one in statements), max(one.span.end for one in statements))


def _later(rivals: Sequence[Statement], claim: Statement, policy: ConflictPolicy) -> list[Statement]:
    """Returns the rivals that begin after an open-ended claim, which arrived out of order: they keep their time.

    A rival with an assumed start did not arrive out of order where the claim has a start of its own. "She lives in
    Montreal" was told in June, and then "she moved to Toronto in May": Montreal is what was before.
    """
    if policy != "temporal" or claim.span.end != OPEN_END:
        return []
    dated = not claim.assumed and claim.span.start != OPEN_START
    return [
        one
        for one in rivals
        if one.span.start > claim.span.start
        and (one.trust > claim.trust or (one.trust == claim.trust and not (dated and one.assumed)))
    ]


def _is_assumed(piece: ValidSpan, stated: Iterable[Statement]) -> bool:
    """Returns True if nobody gave the start of the piece: it is that of statements with an assumed start alone."""
    begun = [one for one in stated if one.span.start == piece.start]
    return bool(begun) and all(one.assumed for one in begun)


def _meets(one: Statement, pieces: Iterable[ValidSpan]) -> bool:
    return any(one.span.overlaps(piece) for piece in pieces)


def _says(claim: Statement, pieces: Sequence[ValidSpan], span: ValidSpan) -> bool:
    """Returns True if this claim covers the whole span."""
    return claim.span.covers(span) and not minus(span, pieces)


def _disputed(claim: Statement, live: Iterable[Statement], stronger: Sequence[Statement]) -> Confirm | Dispute:
    for one in live:
        if one.disputed and one.object == claim.object and one.trust >= claim.trust and one.span.covers(claim.span):
            return Confirm(one.id)
    return Dispute(claim.span, claim.cardinality, tuple(one.id for one in stronger), claim.assumed)
