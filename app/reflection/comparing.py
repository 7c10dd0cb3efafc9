"""Compares records without a model: which of them cannot both hold. Pure functions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from typing import NamedTuple

from app.core.clock import parse_rfc3339
from app.facts.keys import predicate_key
from app.findings.service import EvidenceRecord, facts_of_one_group
from app.learning.words import fold
from app.reflection.claims import claims_of
from app.reflection.sentences import USER, PlainStatement, Sentence, people, sentences, statements_of, table

MAX_RECORDS_PER_KEY = 50
"""The limit of records that are compared for one subject and aspect, the latest ones."""
_ASPECTS = {
    "lives in": "home",
    "live in": "home",
    "home": "home",
    "residence": "home",
    "wohnt in": "home",
    "vive en": "home",
    "works at": "employer",
    "works for": "employer",
    "employer": "employer",
    "employed by": "employer",
    "works as": "occupation",
    "occupation": "occupation",
    "job": "occupation",
    "profession": "occupation",
}
"""Predicates of facts and fields of the profile, by the aspect that they say."""
_OPPOSITE = [
    frozenset(kinds.split())
    for kinds in (
        *("dark light", "short long", "short longer", "brief long", "brief detailed", "short detailed"),
        *("window aisle", "hot cold", "hot iced", "formal informal", "formal casual", "early late", "red white"),
        *("morning evening", "morning afternoon", "sweet salty", "sweet savoury"),
    )
]
"""Kinds of one thing of which somebody prefers at most one."""
_SELF = frozenset({"user", "@user", "the user", "me", "i"})


class _Said(NamedTuple):
    """What a record says of one subject and aspect."""

    record: EvidenceRecord
    value: str
    denied: bool = False
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two records that cannot both hold. `earlier` was said first."""

    earlier: EvidenceRecord
    later: EvidenceRecord
    aspect: str
    reason: str
    confidence: float
    changed: bool
    """Whether the later one says that it was otherwise before."""

    @property
    def keep(self) -> EvidenceRecord:
        """The record that should stand: the later one, unless it is trusted less."""
        return self.later if self.later.trust >= self.earlier.trust else self.earlier

    @property
    def retire(self) -> EvidenceRecord:
        """The record that gives way."""
        return self.earlier if self.keep is self.later else self.later

    @property
    def decided(self) -> bool:
        """Whether time and trust decide: the later statement is trusted at least as much, and was said later."""
        return self.keep is self.later and self.later.said_at > self.earlier.said_at


def conflicts(records: Sequence[EvidenceRecord], user_names: frozenset[str]) -> list[Contradiction]:
    """Returns the pairs of records that cannot both hold. `user_names`: folded names of the user."""
    ordered = sorted(records, key=lambda one: (one.said_at, one.id))
    found: dict[tuple[str, str], Contradiction] = {}
    for conflict in (*_of_claims(ordered, user_names), *_of_statements(ordered)):
        found.setdefault((conflict.earlier.id, conflict.later.id), conflict)
    return list(found.values())


# --- Claims: one subject, one aspect, two values ----------------------------------------------------------------------


def _of_claims(records: Sequence[EvidenceRecord], user_names: frozenset[str]) -> Iterator[Contradiction]:
    shared = shared_names([record.text for record in records if record.kind == "memory"])
    by_key: dict[tuple[str, str], list[_Said]] = defaultdict(list)
    for record in records:
        for subject, aspect, said in _claimed(record, user_names):
            if subject.lstrip("@") not in shared:
                by_key[subject, aspect].append(said)
    for (_, aspect), claims in by_key.items():
        for one, other in combinations(claims[-MAX_RECORDS_PER_KEY:], 2):
            if one.denied or one.record.name == other.record.name or facts_of_one_group(one.record, other.record):
                continue
            if not (_alike(one.value, other.value) if other.denied else differ(aspect, one.value, other.value)):
                continue
            if aspect == "age" and _aged(one, other):
                continue
            if _replaced_before(claims, one.record, other.record):
                continue
            says = "The later one denies what the earlier one says" if other.denied else "They give different values"
            sure = 0.9 if aspect in _ASPECTS.values() else 0.8
            changed = other.changed or other.denied
            yield Contradiction(one.record, other.record, aspect, f"{says} ({aspect}).", sure, changed)


def _aged(one: _Said, other: _Said) -> bool:
    """Returns True if the second age follows from the first and the time between the two."""
    years = (parse_rfc3339(other.record.said_at) - parse_rfc3339(one.record.said_at)) / timedelta(days=365.25)
    return abs(float(other.value) - float(one.value) - years) <= 1


def _replaced_before(claims: Sequence[_Said], earlier: EvidenceRecord, later: EvidenceRecord) -> bool:
    """Returns True if a memory between the two says something of the same, too: only neighbours are compared."""
    times = [said.record.said_at for said in claims if said.record.kind == "memory"]
    both = earlier.kind == later.kind == "memory"
    return both and any(earlier.said_at < time < later.said_at for time in times)


def _claimed(record: EvidenceRecord, user_names: frozenset[str]) -> Iterator[tuple[str, str, _Said]]:
    """Yields (subject, aspect, what is said of it) of a record."""
    if record.kind == "fact":
        aspect = _ASPECTS.get(predicate_key(record.doc["predicate"]))
        if aspect is not None:
            subject = fold(record.doc["subject"])
            known = subject in _SELF or subject in user_names
            yield USER if known else f"@{subject}", aspect, _Said(record, fold(record.doc["object"]))
    elif record.kind == "profile":
        name = record.id.rpartition("/")[2]
        if name in _ASPECTS:
            yield USER, _ASPECTS[name], _Said(record, fold(str(record.doc["profile"][name])))
    else:
        for claim in claims_of(record.text, user_names):
            yield claim.subject, claim.aspect, _Said(record, claim.value, claim.negative, claim.changed)


def value_of(record: EvidenceRecord, aspect: str) -> str | None:
    """Returns the value of an aspect of the user that a record states, as it spells it; None if it states none."""
    if record.kind == "fact":
        return str(record.doc["object"])
    for subject, about, said in _claimed(record, frozenset()):
        if (subject, about) == (USER, aspect) and not said.denied:
            plain = fold(record.text)
            at = plain.find(said.value) if len(plain) == len(record.text) else -1
            return record.text[at : at + len(said.value)] if at >= 0 else said.value
    return None


def differ(aspect: str, one: str, other: str) -> bool:
    """Returns whether two values of an aspect exclude each other. A place excludes no country, and a short form no long
    one."""
    if _alike(one, other):
        return False
    if aspect.startswith("kind of "):
        return any({one, other} <= kinds and one != other for kinds in _OPPOSITE)
    if aspect == "home":
        lands = [bool(set(value.split()) & table("countries")) for value in (one, other)]
        return lands[0] == lands[1]
    return True


def _alike(one: str, other: str) -> bool:
    words = [set(fold(value).replace(".", " ").split()) for value in (one, other)]
    return words[0] <= words[1] or words[1] <= words[0]


def shared_names(texts: Sequence[str]) -> frozenset[str]:
    """Returns the names that several people have: those that are told apart in one of the texts, or that stand beside
    different relations or different surnames. Without more words nobody can say whom they mean."""
    beside: dict[str, set[str]] = defaultdict(set)
    shared: set[str] = set()
    for text in texts:
        for sentence in sentences(text):
            words = _words(sentence)
            for at, (word, plain) in enumerate(words):
                if not word[0].isupper() or (at == 0 and len(words) == 1):
                    continue
                before = [each for _, each in words[max(0, at - 2) : at]]
                shared |= {plain} if before and before[-1] in _APART else set()
                beside[plain] |= {people()[each] for each in before if each in people()}
                after = words[at + 1 : at + 2]
                if after and after[0][0][0].isupper() and at > 0:
                    beside[plain].add(f"+{after[0][1]}")
                following = [each for _, each in words[at + 1 : at + 4]]
                if len(following) > 1 and following[0] in _FROM:
                    beside[plain].add(f"from {following[1]} {following[2] if len(following) > 2 else ''}")
    return frozenset(shared | {name for name, marks in beside.items() if len(marks) > 1})


_APART = frozenset(
    "other another different second andere anderer anderen zweite zweiter otra otro segunda zwei two dos".split()
)
_FROM = frozenset({"from", "aus", "von", "vom", "del", "de"})


def _words(sentence: Sentence) -> list[tuple[str, str]]:
    return [(sentence.text[token.start : token.end] or token.word, token.word) for token in sentence.tokens]


# --- Statements: the same said with another sign, or with other numbers and dates -------------------------------------


def _of_statements(records: Sequence[EvidenceRecord]) -> Iterator[Contradiction]:
    by_stem: dict[str, list[tuple[EvidenceRecord, PlainStatement]]] = defaultdict(list)
    for record in records:
        if record.kind != "memory":
            continue
        for statement in statements_of(record.text):
            for stem in statement.about[0] | statement.about[1] | statement.about[2]:
                by_stem[stem].append((record, statement))
    seen: set[tuple[str, str, str, str]] = set()
    for said in by_stem.values():
        for (earlier, one), (later, other) in combinations(said[-MAX_RECORDS_PER_KEY:], 2):
            key = (earlier.id, later.id, one.sentence.text, other.sentence.text)
            if earlier.id == later.id or key in seen:
                continue
            seen.add(key)
            reason = _excludes(one, other)
            if reason is not None:
                yield Contradiction(earlier, later, "statement", reason, 0.8, other.changed)


def _excludes(one: PlainStatement, other: PlainStatement) -> str | None:
    """Returns why two statements cannot both hold, or None."""
    if one.by_user != other.by_user:
        return None
    people_of = [
        {people()[token.word] for token in each.sentence.tokens if token.word in people()} for each in (one, other)
    ]
    if people_of[0] != people_of[1]:
        return None
    pairs = list(zip(one.about, other.about, strict=True))
    same = any(first == second and first for first, second in pairs)
    if one.sentiment * other.sentiment < 0 and same:
        return "One says that it is liked, the other that it is not."
    if one.negative != other.negative and not (one.sentiment or other.sentiment):
        positive, negative = (other, one) if one.negative else (one, other)
        narrower = any(denied and denied <= said for denied, said in zip(negative.about, positive.about, strict=True))
        if narrower and not negative.slots and (same or negative.ended or _wide(negative)):
            return "One denies what the other says."
    if same and not one.negative and not other.negative and one.scheduled and other.scheduled:
        for (kind, values), (_, others) in _shared_slots(one, other):
            if not values & others and (kind == "numbers" or (one.dated and other.dated)):
                return f"They are alike but for their {kind}."
    return None


def _wide(statement: PlainStatement) -> bool:
    """Returns True if a denial names a verb and what it is about, so that it denies narrower statements, too."""
    return all(len(stems) >= 2 for stems in statement.about)


def _shared_slots(
    one: PlainStatement, other: PlainStatement
) -> Iterator[tuple[tuple[str, frozenset[str]], tuple[str, frozenset[str]]]]:
    mine: Mapping[str, frozenset[str]] = dict(one.slots)
    for kind, values in other.slots:
        if kind in mine:
            yield (kind, mine[kind]), (kind, values)
