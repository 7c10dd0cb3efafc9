"""Marks texts of a prompt that state another value of a single-valued fact than the one that holds. Pure functions.

"I live in Rome" beside a home in Oslo becomes "I live in Rome (earlier; since 2026-10-01: Oslo)". A text states another
value if a sentence of it names a value that the fact had earlier, says the predicate, and is about the subject. Of the
user's home, other names of places count, too.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.facts.about_user import USER, field_of
from app.facts.keys import spoken
from app.learning import evidence
from app.learning.prompts import TranscriptLine
from app.learning.quotes import Quote, sentences
from app.learning.words import said_by, table, tokens
from app.storage.schema import Doc

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
