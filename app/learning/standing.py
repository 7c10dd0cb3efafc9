"""Whether a speaker still stands for what a quote says: not for a plan that was given up, for what is corrected or
replaced later, for what happens in a story, and not for a few words that state nothing. Pure functions.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from app.learning import evidence, quotes
from app.learning.prompts import TranscriptLine
from app.learning.quotes import FRAGMENT, Quote, find, sentences
from app.learning.words import Token, languages, table, tokens, weight
from app.retrieval.time_expressions import read_interval

VALUE_TOKENS = 3
"""A longer text is no value itself. Its names, numbers and days are."""
OWNER_TOKENS = 3
"""The number of tokens before a word for a story in which "my" stands, as in "my short story"."""
DAY_CHARS = 3
"""A word of fewer characters names no day."""
_CONTRAST = re.compile(r"\b(?:but|aber|sondern|mais|pero|sino|ma|mas|maar)\b|\u4f46|\u3051\u3069")
_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def withdrawn(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> str | None:
    """Returns why the speaker does not stand for a value of a quote: `fiction`, `given_up` or `taken_back`, or None."""
    if of_story(quote, value, lines):
        return "fiction"
    if dismissed(quote.sentence):
        return "taken_back"
    if given_up(quote, value):
        return "given_up"
    if evidence.negated(value):
        return None
    values = [*_hard(value), *([value] if len(tokens(value)) <= VALUE_TOKENS else ())]
    denied = any(quotes.taken_back(quote, each, lines) or _given_up_later(quote, each, lines) for each in values)
    return "taken_back" if denied or quotes.corrected(quote, value, lines) or _replaced(quote, value, lines) else None


def _hard(value: str) -> list[str]:
    """Returns the names, numbers and days of a value."""
    return [*quotes.capitalised(value), *_days(value)]


def _days(text: str) -> list[str]:
    """Returns the words of a text that name a day, such as "lunes"."""
    return [
        token.word
        for token in tokens(text.replace("-", " "))
        if len(token.word) >= DAY_CHARS and read_interval(token.word, _SOME_DAY) is not None
    ]


# --- Given up ---------------------------------------------------------------------------------------------------------


def given_up(quote: Quote, value: str) -> bool:
    """Returns whether all clauses that hold a value tell a plan of the past, as in "I was going to paint it, but I
    don't", or what was said before, as in "We said Monday, but it's Tuesday". A value that says so itself is none."""
    if _phrased("former", value):
        return False
    wanted = evidence.content_terms(value)
    clauses = evidence.clauses(quote.sentence)
    held = [clause for clause in clauses if wanted & evidence.all_terms(clause)]
    return bool(held) and all(_former(clause, quote.sentence) for clause in held)


def _former(clause: str, sentence: str) -> bool:
    return _phrased("former", clause) or (_phrased("said_before", clause) and bool(_CONTRAST.search(sentence)))


def _phrased(name: str, text: str) -> bool:
    """Returns whether a text has one of the phrases of a table."""
    found = table(name)
    said = f" {' '.join(token.word for token in tokens(text))} "
    return any(f" {phrase} " in said for phrase in found.words) or any(word in text for word in found.unspaced)


def _given_up_later(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether a later sentence tells of a value as of what was said or planned before."""
    wanted = evidence.all_terms(value)
    for sentence in _later(quote, lines):
        held = [clause for clause in evidence.clauses(sentence) if wanted <= evidence.all_terms(clause)]
        if held and all(_former(clause, sentence) for clause in held):
            return True
    return False


def _replaced(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether a later sentence with a word of change, such as "finally", has one of the value's days and
    another one, too."""
    own = set(_days(value))
    for sentence in _later(quote, lines) if own else ():
        if table("changes").found_in(sentence) and own & (named := set(_days(sentence))) and named - own:
            return True
    return False


def _later(quote: Quote, lines: Sequence[TranscriptLine]) -> Iterator[str]:
    """Yields the sentences that the speaker says after that of a quote."""
    yield from sentences(quote.line.text.partition(quote.sentence)[2])
    for line in lines:
        if line.seq > quote.line.seq and line.role == quote.line.role:
            yield from sentences(line.text)


def dismissed(sentence: str) -> bool:
    """Returns whether a sentence asks to forget what it says, as in "Forget what I said about Rome"."""
    said = [token.word for token in tokens(sentence)[:2]]
    asked = any(word in table("dismissals") for word in said)
    return (asked and not any(word in table("first_subject") for word in said)) or sentence.startswith(
        table("dismissals").unspaced
    )


# --- Stories ----------------------------------------------------------------------------------------------------------


def of_story(quote: Quote, value: str, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether a sentence tells of somebody in a story that the user has spoken of as theirs.

    A sentence in the first person, one about a person of the user's in the same message, and a value that names the
    story tell of no such one.
    """
    if quote.line.role != "user" or table("fiction").found_in(value) or not _of_somebody(quote.sentence):
        return False
    before = quote.line.text.partition(quote.sentence)[0]
    if table("relations").found_in(before) and _own(tokens(before)):
        return False
    earlier = [line.text for line in lines if line.role == "user" and line.seq < quote.line.seq]
    return any(_own_story(text) for text in (*earlier, before, quote.sentence))


def _of_somebody(sentence: str) -> bool:
    said, spoken = tokens(sentence), languages(sentence)
    others = any(token.word in table(name, spoken) for token in said for name in ("other_subject", "other_owner"))
    others = others or any(word in sentence for word in table("other_subject").unspaced)
    return others and not _own(said)


def _own(said: Sequence[Token]) -> bool:
    """Returns whether one of the tokens is the speaker."""
    return any(token.word in table(name) for token in said for name in ("first_subject", "first_other", "first_verbs"))


def _own_story(text: str) -> bool:
    said, stories = tokens(text), table("fiction")
    places = [at for at, token in enumerate(said) if token.word in stories]
    return any(_own(said[max(0, at - OWNER_TOKENS) : at]) for at in places) or any(
        f"{mine}{story}" in text or f"{mine}\u7684{story}" in text or f"{mine}\u306e{story}" in text
        for mine in table("first_subject").unspaced
        for story in stories.unspaced
    )


# --- What states nothing ----------------------------------------------------------------------------------------------


def fragment(quote: Quote) -> bool:
    """Returns whether a sentence is of a few words that state nothing: without the speaker, a name, a number, a
    negation or a request, and no answer to a question about the user."""
    said, sentence = tokens(quote.sentence), quote.sentence
    if sum(weight(token.word) for token in said) > FRAGMENT or _own(said) or evidence.number(sentence):
        return False
    if evidence.negated(sentence) or quotes.capitalised(sentence) or evidence.requested(quote):
        return False
    if any(table(name).found_in(sentence) for name in ("styles", "asking", "forms_of_address", "relations")):
        return False
    asked = quote.before is not None and quote.before.text.rstrip().endswith(("?", "\uff1f"))
    return not (asked and quote.before is not None and table("second_person").found_in(quote.before.text))


def standing(content: str, quote: Quote, lines: Sequence[TranscriptLine]) -> str:
    """Returns a memory that the user said word for word without its sentences that state nothing or that the speaker
    does not stand for. A memory in other words, one of a single sentence, and one without any other sentence stay."""
    parts = sentences(content)
    if len(parts) < 2 or find(content, [quote.line]) is None:
        return content
    kept = []
    for part in parts:
        found = find(part, [quote.line])
        if found is not None:
            found = replace(found, before=quote.before)
            if not fragment(found) and withdrawn(found, part, lines) is None:
                kept.append(part)
    return " ".join(kept) or content
