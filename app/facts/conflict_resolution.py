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
    span = _union([claim, *joined])
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
    settled = [like for like in disputed if _says(claim, pieces, like.span)]
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


# --- Helpers of `decide` ----------------------------------------------------------------------------------------------


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


def _union(statements: Sequence[Statement]) -> ValidSpan:
    return ValidSpan(
        min(statement.span.start for statement in statements), max(statement.span.end for statement in statements)
    )


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


def _says(claim: Statement, pieces: Sequence[ValidSpan], span: ValidSpan) -> bool:
    """Returns True if this claim covers the whole span."""
    return claim.span.covers(span) and not minus(span, pieces)


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
