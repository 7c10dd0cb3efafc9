"""Marks the candidates of a prompt that state another value of a single-valued fact than the one that holds, and those
that a finding doubts.

"I live in Rome" beside a home in Oslo becomes "I live in Rome (earlier; since 2026-10-01: Oslo)". A text states another
value if a sentence of it names a value that the fact had earlier, says the predicate, and is about the subject. Of the
user's home, other names of places count, too.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from app.context.candidates import Candidate, Doubt, SourceRequest
from app.core.clock import rfc3339
from app.core.work import off_loop
from app.facts.keys import PREDICATES, USER, field_of, group_of_field, spoken
from app.facts.repository import FactRepository, View, of_pairs
from app.learning import evidence
from app.learning.prompts import TranscriptLine
from app.learning.quotes import Quote, sentences
from app.learning.words import said_by, table, tokens
from app.storage.schema import Doc, Eq, In, Or, both

SHOWN_CHARS = 60
"""The maximum length of a value in a mark."""
STEM = 4
"""The number of characters of a value by which texts without it are passed over."""
_PLACE = re.compile(
    r"\b(?:[Ii]n|[Tt]o|[Nn]ear|[Nn]ach|[Aa]us|[Ee]n|[Aa]|\u00e0|[Aa]u|[Dd]e|[Nn]aar|[Hh]ome:)\s+"
    r"((?:the\s+)?[A-Z\u00c0-\u00de\u0410-\u042f][\w'-]+(?:\s[A-Z\u00c0-\u00de\u0410-\u042f][\w'-]+)?)"
)
"""A name behind a preposition of place."""


@dataclass(frozen=True, slots=True)
class SingleValue:
    """A single-valued fact: what holds, since when (RFC 3339 or None), and the other values that it had."""

    subject: str
    predicate: str
    value: str
    since: str | None
    earlier: tuple[str, ...]
    place: bool = False

    @property
    def mark(self) -> str:
        """The value that holds, as a mark shows it."""
        value = " ".join(self.value.split())
        shown = value if len(value) <= SHOWN_CHARS else f"{value[:SHOWN_CHARS]}…"
        return f"now: {shown}" if self.since is None else f"since {self.since[:10]}: {shown}"


def single_values(facts: Iterable[Doc], as_of: str, known_at: str | None = None) -> list[SingleValue]:
    """Returns the single-valued facts of which a value holds at `as_of`, as far as it is known at `known_at` (None:
    now). `facts` are all rows of their groups that had been written by then; those that were retracted do not count."""
    groups: dict[str, list[Doc]] = {}
    for fact in facts:
        if fact["standing"] == "held" and fact["status"] != "retracted":
            groups.setdefault(fact["group_id"], []).append(fact)
    found = []
    for rows in groups.values():
        live = [one for one in rows if _known(one, known_at) and _holds(one, as_of)]
        if not live or any(one["cardinality"] != "one" for one in live):
            continue
        now = max(live, key=lambda one: (one["valid_from"] or "", one["known_from"]))
        begun = (one for one in rows if (one["valid_from"] or "") <= as_of and one["object_key"] != now["object_key"])
        earlier = tuple(dict.fromkeys(one["object"] for one in begun))
        place = field_of(now) == "home"
        found.append(
            SingleValue(now["subject"], spoken(now["predicate"]), now["object"], now["valid_from"], earlier, place)
        )
    return found


def _known(fact: Doc, known_at: str | None) -> bool:
    until = fact["known_until"]
    return until is None or (known_at is not None and bool(until > known_at))


def _holds(fact: Doc, as_of: str) -> bool:
    return (fact["valid_from"] or "") <= as_of and (fact["valid_until"] is None or fact["valid_until"] > as_of)


def marked(text: str, at: str, values: Sequence[SingleValue], names: Sequence[str]) -> str:
    """Returns the text with a mark for each single-valued fact of which it states another value.

    Args:
        text: The text.
        at: When it was said (RFC 3339).
        values: The facts.
        names: The names of the user.
    """
    marks = [mark for one in values if (mark := _mark(text, at, one, names)) is not None]
    return " ".join([text, *dict.fromkeys(marks)])


def _mark(text: str, at: str, one: SingleValue, names: Sequence[str]) -> str | None:
    folded = text.casefold()
    if one.value.casefold() in folded:
        return None
    known = [value for value in one.earlier if value[:STEM].casefold() in folded]
    if any(_states(sentence, value, one, names) for value in known for sentence in sentences(text)):
        return f"(earlier; {one.mark})"
    if one.place and any(_names_place(sentence, one, names) for sentence in sentences(text)):
        return f"({'earlier' if one.since is None or at < one.since else 'differs'}; {one.mark})"
    return None


def _names_place(sentence: str, one: SingleValue, names: Sequence[str]) -> bool:
    found = [match[1] for match in _PLACE.finditer(sentence) if not _is_month(match[1])]
    if not found or not any(verbs.found_in(sentence) for verbs in said_by(one.predicate)):
        return False  # nearly every sentence ends here, and costs little
    return any(_states(sentence, place, one, names) for place in found)


def _is_month(name: str) -> bool:
    return name[:3].casefold() in (
        "jan",
        "feb",
        "mar",
        "apr",
        "may",
        "mai",
        "jun",
        "jul",
        "aug",
        "sep",
        "oct",
        "okt",
        "nov",
        "dec",
        "dez",
    )


def _states(sentence: str, value: str, one: SingleValue, names: Sequence[str]) -> bool:
    """Returns whether a sentence says the predicate of a value, of the subject, and not only as a question, a plan or a
    denial."""
    if not evidence.shown(value, sentence) or evidence.shown(one.value, sentence):
        return False
    quote = Quote(TranscriptLine(0, "user", None, "", sentence), sentence, sentence, None)
    if not evidence.says_predicate(one.predicate, quote, value) or evidence.asserted(quote, value) is not None:
        return False
    if one.subject != USER:
        return evidence.shown(one.subject, sentence)
    if (about := evidence.about_user(quote, value)) is None:
        return True
    named = {"user", *(token.word for name in names for token in tokens(name))}
    words = [token.word for token in tokens(sentence)]
    if named & {*words}:
        return not evidence.relative(sentence)
    return about == "not_about_user" and _subject_is_left_out(words, one)


def _subject_is_left_out(words: Sequence[str], one: SingleValue) -> bool:
    """Returns whether a sentence begins with its verb, as in "Lives in Rome", or speaks to the user."""
    said = said_by(one.predicate)
    begins = bool(words) and any(words[0] in verbs for verbs in said)
    return begins or any(word in table("second_person") for word in words[:2])


MARKED = frozenset({"instructions", "summary", "memories", "facts"})
"""Sections whose texts are marked. Turns of the session stay as they were said."""
MOST_GROUPS = 60
MOST_ROWS = 500


async def values_of(request: SourceRequest, facts: Sequence[Doc]) -> list[SingleValue]:
    """Returns the single-valued facts that a prompt may contradict: those among `facts`, and those of the profile."""
    user = request.body.user_id
    groups = [] if user is None else [group_of_field(user, name) for name in PREDICATES]
    groups += [fact["group_id"] for fact in facts if fact["cardinality"] == "one"]
    named = tuple(dict.fromkeys(groups))[:MOST_GROUPS]
    if not named:
        return []
    repository = FactRepository(request.resources.store, request.scope)
    return await _read(repository, named, request.body.as_of or rfc3339(request.now), request.body.known_at)


async def marked_memories(
    facts: FactRepository, agent_id: str, profile: Doc, memories: Sequence[Doc], now: str
) -> list[Doc]:
    """Returns memories with a mark behind each text that states another value of a single-valued fact than the one that
    holds. `profile`: the user's id and name."""
    user_id: str = profile["user_id"]
    pairs = facts.scope.pairs(agent_id, user_id, include_shared=True)
    single = both(View(now).believed(), Eq("cardinality", "one"), Or(tuple(of_pairs(pairs))))
    found = await facts.find(single, limit=MOST_GROUPS) if memories and pairs else []
    groups = [*(group_of_field(user_id, name) for name in PREDICATES), *(fact["group_id"] for fact in found)]
    named = tuple(dict.fromkeys(groups))[:MOST_GROUPS]
    values = await _read(facts, named, now, None) if memories else []
    names = [str(name) for name in (user_id, profile["name"]) if name]
    said = ((doc, doc["event_at"] or doc["created_at"]) for doc in memories)
    size = sum(len(doc["content"]) for doc in memories)
    return await off_loop(
        size, lambda: [doc | {"content": marked(doc["content"], at, values, names)} for doc, at in said]
    )


async def _read(facts: FactRepository, groups: tuple[str, ...], as_of: str, known_at: str | None) -> list[SingleValue]:
    written = View(None, known_at).written()
    return single_values(await facts.find(both(In("group_id", groups), written), limit=MOST_ROWS), as_of, known_at)


def mark(items: Sequence[Candidate], values: Sequence[SingleValue], names: Sequence[str]) -> list[Candidate]:
    """Returns the candidates, with a mark behind each text that states another value than the one that holds."""
    return [_marked(item, values, names) for item in items] if values else list(items)


def _marked(item: Candidate, values: Sequence[SingleValue], names: Sequence[str]) -> Candidate:
    text = marked(item.text, item.place[0], values, names)
    partner = None if item.partner is None else _marked(item.partner, values, names)
    return item if text == item.text and partner is item.partner else replace(item, text=text, partner=partner)


# --- What findings doubt ----------------------------------------------------------------------------------------------

SHOWN_OTHER = 80
"""Characters of the other statement that a mark shows."""
LEAST_WORDS = 4
"""A shorter sentence, such as "How are you?", is no repetition."""
ECHO = 1
"""An answer so many messages after a statement may repeat a number or a date of it."""


def mark_doubts(items: Sequence[Candidate], doubts: Sequence[Doubt]) -> list[Candidate]:
    """Returns the candidates, with a mark behind each text that repeats what a finding doubts or has replaced."""
    known = [(doubt, _Said.of(doubt)) for doubt in doubts]
    return [_doubted(item, known) for item in items] if known else list(items)


@dataclass(frozen=True, slots=True)
class _Said:
    """The words of a doubt: its longest sentence, that of what was said otherwise, and the numbers that only it has."""

    sentences: tuple[str, ...]
    others: tuple[str, ...]
    numbers: frozenset[str]

    @classmethod
    def of(cls, doubt: Doubt) -> "_Said":
        one, other = ({token.word for token in tokens(text)} for text in (doubt.text, doubt.other))
        numbers = frozenset(word for word in one - other if any(character.isdigit() for character in word))
        return cls(_key_sentence(doubt.text), _key_sentence(doubt.other), numbers)


def _key_sentence(text: str) -> tuple[str, ...]:
    """Returns the words of the longest sentence, by which a repetition is known, if it is long enough."""
    words = max(([token.word for token in tokens(one)] for one in sentences(text)), key=len, default=[])
    return (f" {' '.join(words)} ",) if len(words) >= LEAST_WORDS else ()


def _doubted(item: Candidate, known: Sequence[tuple[Doubt, _Said]]) -> Candidate:
    partner = None if item.partner is None else _doubted(item.partner, known)
    plain = f" {' '.join(token.word for token in tokens(item.text))} "
    marks = [doubt_mark(doubt) for doubt, said in known if _repeats(item, plain, doubt, said)]
    text = " ".join([item.text, *dict.fromkeys(marks)])
    return item if not marks and partner is item.partner else replace(item, text=text, partner=partner)


def _repeats(item: Candidate, plain: str, doubt: Doubt, said: _Said) -> bool:
    if item.id == doubt.id:
        return True
    if any(sentence in plain for sentence in said.sentences):
        # who reads both in the order in which they were said needs no mark
        return doubt.settled or not any(sentence in plain for sentence in said.others) or not doubt.later
    if doubt.seq is None or item.heading is None or not said.numbers:
        return False
    place, behind = f"{doubt.session}:", item.place[1] - doubt.seq
    repeated = any(f" {number} " in plain for number in said.numbers)
    return item.heading.conversation and item.heading.key.startswith(place) and behind == ECHO and repeated


def doubt_mark(doubt: Doubt) -> str:
    """Returns the mark of a text that repeats a doubted statement."""
    if not doubt.other:
        return "(uncertain: its time is past)"
    other = " ".join(doubt.other.split())
    shown = other if len(other) <= SHOWN_OTHER else f"{other[:SHOWN_OTHER]}…"
    if doubt.settled:
        return f"(earlier; since {doubt.other_at[:10]}: {shown})"
    return f"(uncertain; {'later' if doubt.later else 'earlier'}, {doubt.other_at[:10]}: {shown})"
