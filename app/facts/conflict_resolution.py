"""How facts of one scope, subject and predicate meet: pure. docs/concepts/facts.md says the same in words.

A statement holds for a span of valid time, closed-open. Nothing that is stored is changed: a statement that has to
give way is *cut* (it leaves, and what remains of its span is stated again), and what is new is *inserted*.

1. Statements of the same object never contend. They are joined where trust and cardinality are the same; else the one
   of higher trust stands where both speak.
2. Two objects contend where their spans overlap and both are of cardinality `one`.
3. `temporal`: what begins later stands from its beginning on. `last_write_wins`: the new one alone stays.
   `keep_both`: the new one is one of many, and contends with nothing.
4. What has less trust never takes anything from what has more: it is stored as disputed, and changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Cardinality: TypeAlias = Literal["one", "many"]
ConflictPolicy: TypeAlias = Literal["temporal", "last_write_wins", "keep_both"]

OPEN_START = ""
OPEN_END = "~"
"""They sort before and after every RFC 3339 time."""


@dataclass(frozen=True, slots=True, order=True)
class ValidSpan:
    """From `start` until `end`, that moment excluded: RFC 3339 times as they are stored, or open."""

    start: str
    end: str

    def overlaps(self, other: "ValidSpan") -> bool:
        return self.start < other.end and other.start < self.end

    def touches(self, other: "ValidSpan") -> bool:
        """They overlap, or one begins where the other ends."""
        return self.start <= other.end and other.start <= self.end

    def covers(self, other: "ValidSpan") -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Statement:
    """What the rules look at of a fact that we know now. `object` is its normalised text and its type."""

    id: str
    object: tuple[str, str]
    span: ValidSpan
    trust: float
    cardinality: Cardinality
    disputed: bool = False


@dataclass(frozen=True, slots=True)
class Assertion:
    """What is said. `start` or `cardinality` None: it was not said; `usual` is what the cardinality is then, unless the
    same object has one already."""

    object: tuple[str, str]
    start: str | None
    end: str
    trust: float
    cardinality: Cardinality | None = None
    policy: ConflictPolicy = "temporal"
    usual: Cardinality = "one"


@dataclass(frozen=True, slots=True)
class Confirm:
    """The statement says it already."""

    id: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The statement leaves; it is stated again for each of `left`: none (replaced), one (bounded) or two (split)."""

    id: str
    left: tuple[ValidSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class NewSpan:
    """The new statement, for one span. It goes on from `continues`, which say the same and are cut."""

    span: ValidSpan
    trust: float
    cardinality: Cardinality
    continues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dispute:
    """The new statement is kept apart: those it contends with have more trust."""

    span: ValidSpan
    cardinality: Cardinality
    against: tuple[str, ...]


LedgerChange: TypeAlias = Confirm | Cut | NewSpan | Dispute


def decide(live: Sequence[Statement], said: Assertion, now: str) -> list[LedgerChange]:
    """What an assertion does to the statements that we know; those that neither overlap nor touch it may be left out.

    Either a single `Confirm` or `Dispute`; or cuts, and then one `NewSpan` or more, in the order of valid time.
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
        *(NewSpan(piece, claim.trust, claim.cardinality, continues) for piece in pieces),
    ]


def mark_migrated(
    live: Sequence[Statement], disputed: Statement, now: str, *, beside: bool = False
) -> list[LedgerChange]:
    """Takes a disputed statement's part: it is cut, and asserted again with the trust of those that it contends with,
    or, `beside` them, as one of many."""
    others = [one for one in live if one.id != disputed.id]
    replaced = [one for one in contenders(others, disputed) if not beside or one.object == disputed.object]
    trust = max(one.trust for one in (disputed, *replaced))
    cardinality: Cardinality = "many" if beside else disputed.cardinality
    said = Assertion(disputed.object, disputed.span.start, disputed.span.end, trust, cardinality)
    return [
        Cut(disputed.id),
        *(
            replace(change, continues=(disputed.id, *change.continues)) if isinstance(change, NewSpan) else change
            for change in decide(others, said, now)
        ),
    ]


def contend(one: Statement, other: Statement) -> bool:
    """Whether they cannot both be true at the same time. Their objects differ."""
    return one.cardinality == other.cardinality == "one"


def contenders(live: Iterable[Statement], disputed: Statement) -> list[Statement]:
    """What a disputed statement contends with now."""
    undisputed = [one for one in live if not one.disputed and one.span.overlaps(disputed.span)]
    return [
        one
        for one in undisputed
        if (one.object != disputed.object and contend(one, disputed))
        or (one.object == disputed.object and _ends(replace(disputed, trust=one.trust), one))
    ]


def minus(span: ValidSpan, cuts: Iterable[ValidSpan]) -> list[ValidSpan]:
    """What is left of the span without the cuts, in order."""
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


# --- Parts of a decision ----------------------------------------------------------------------------------------------


def _claim(said: Assertion, same: Sequence[Statement], now: str) -> Statement:
    """What is said, with its defaults."""
    span = ValidSpan(_start(said, same, now), said.end)
    alike = [one for one in same if one.span.touches(span)]
    best = max(alike, key=lambda one: (one.trust, one.span), default=None)
    cardinality = said.cardinality or (best.cardinality if best else said.usual)
    return Statement("", said.object, span, said.trust, "many" if said.policy == "keep_both" else cardinality)


def _start(said: Assertion, same: Sequence[Statement], now: str) -> str:
    """Now, where none is said. With an end alone it is that of the statement it ends; what has ended began we know not
    when."""
    if said.start is not None:
        return said.start
    if said.end == OPEN_END:
        return now
    begun = [one.span.start for one in same if one.span.end == OPEN_END and one.span.start < said.end]
    return max(begun, default=OPEN_START if said.end <= now else now)


def _ends(claim: Statement, one: Statement) -> bool:
    """An open end means that none is known: who says the whole span says where it ends."""
    open_ended = one.span.end == OPEN_END != claim.span.end
    return open_ended and claim.span.start <= one.span.start < claim.span.end and one.trust <= claim.trust


def _equal(one: Statement, claim: Statement) -> bool:
    return one.trust == claim.trust and one.cardinality == claim.cardinality


def _union(statements: Sequence[Statement]) -> ValidSpan:
    return ValidSpan(min(one.span.start for one in statements), max(one.span.end for one in statements))


def _later(rivals: Sequence[Statement], claim: Statement, policy: ConflictPolicy) -> list[Statement]:
    """Those that an open-ended statement leaves their time to: they begin after it. It came late, out of order."""
    if policy != "temporal" or claim.span.end != OPEN_END:
        return []
    return [one for one in rivals if one.span.start > claim.span.start and one.trust >= claim.trust]


def _meets(one: Statement, pieces: Iterable[ValidSpan]) -> bool:
    return any(one.span.overlaps(piece) for piece in pieces)


def _says(claim: Statement, pieces: Sequence[ValidSpan], span: ValidSpan) -> bool:
    """Whether it is this claim that says so of all of the span."""
    return claim.span.covers(span) and not minus(span, pieces)


def _disputed(claim: Statement, live: Iterable[Statement], stronger: Sequence[Statement]) -> Confirm | Dispute:
    for one in live:
        if one.disputed and one.object == claim.object and one.trust >= claim.trust and one.span.covers(claim.span):
            return Confirm(one.id)
    return Dispute(claim.span, claim.cardinality, tuple(one.id for one in stronger))
