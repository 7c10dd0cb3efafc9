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
from app.learning.words import Token, fold, languages, said_by, said_by_unspaced, table, tokens, weight
from app.retrieval.time_expressions import read_interval

VALUE_TOKENS = 3
"""A longer text is no value itself. Its names, numbers and days are."""
OWNER_TOKENS = 3
"""The number of tokens before a word for a story in which "my" stands, as in "my short story"."""
DAY_CHARS = 3
"""A word of fewer characters names no day."""
BEFORE = 2
"""The number of messages before its own that a lesson may be about."""
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
    whole = evidence.content_terms(quote.sentence) <= evidence.content_terms(value)
    if not whole and any(quotes.denied_at_once(each, quote.sentence) for each in values):
        return "taken_back"
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
    clauses = _clauses(quote.sentence)
    held = [clause for clause in clauses if wanted & evidence.all_terms(clause)]
    return bool(held) and all(_former(clause, quote.sentence) for clause in held)


def _clauses(sentence: str) -> list[str]:
    return [sentence[slice(*span)] for span in evidence.clause_spans(sentence)]


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
        held = [clause for clause in _clauses(sentence) if wanted <= evidence.all_terms(clause)]
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
    """Returns whether all sentences of a quote's message are of a few words that state nothing: without the speaker, a
    name, a number, a time, a negation or a request, and no answer to a question about the user. Beside a statement,
    such words may be a part of it, as in "We need tools. A saw, a file."
    """
    before = quote.before
    asked = before is not None and before.text.rstrip().endswith(("?", "\uff1f"))
    if asked and before is not None and table("second_person").found_in(before.text):
        return False
    return all(_states_nothing(part) for part in sentences(quote.line.text)) and not evidence.requested(quote)


def _states_nothing(sentence: str) -> bool:
    said = tokens(sentence)
    if sum(weight(token.word) for token in said) > FRAGMENT or _own(said) or quotes.numbers(sentence):
        return False
    if evidence.negated(sentence) or evidence.hard_values(sentence) or read_interval(sentence, _SOME_DAY) is not None:
        return False
    return not any(table(name).found_in(sentence) for name in ("styles", "asking", "forms_of_address", "relations"))


def states_nothing(content: str, quote: Quote) -> str | None:
    """Returns `fragment` or `given_up` if a quote states nothing that still holds."""
    if fragment(quote):
        return "fragment"
    return "given_up" if given_up(quote, content) else None


def says_verbs(content: str, quote: Quote) -> str | None:
    """Returns `other_words` if a memory says that somebody is, likes or works as something and its sentence has no word
    for that: "The user is a baker" of "I train to be a baker"."""
    told, said, clause = tokens(content), evidence.all_terms(quote.sentence), evidence.clause_of(quote, content)
    for token in told:
        of = said_by(token.word)
        if of and not evidence.all_terms(token.word) <= said and not any(words.found_in(clause) for words in of):
            return "other_words"
    for words in said_by_unspaced(content):
        if not words.found_in(quote.sentence):
            return "other_words"
    short = len(evidence.content_terms(content)) < evidence.SHORT_MEMORY and any(
        token.word in table("copulas") for token in told
    )
    return "other_words" if short and not table("copulas").found_in(quote.sentence) else None


def standing(content: str, quote: Quote, lines: Sequence[TranscriptLine]) -> str:
    """Returns a memory that the user said word for word without the sentences that state nothing, that the user quotes
    or does not stand for. One in other words, of a single sentence, or without any other sentence stays as it is.
    """
    parts = sentences(content)
    if len(parts) < 2 or find(content, [quote.line]) is None:
        return content
    kept = []
    for part in parts:
        found = find(part, [quote.line])
        if found is not None:
            found = replace(found, before=quote.before)
            if not fragment(found) and not quotes.cited(found, part) and withdrawn(found, part, lines) is None:
                kept.append(part)
    return " ".join(kept) or content


# --- Lessons ----------------------------------------------------------------------------------------------------------


def hard_said(text: str, said: str) -> bool:
    """Returns whether the names and numbers of a text occur in what was said. Abbreviations such as "IATA" need not."""
    words = {token.word for token in tokens(said)} | table("generic").words
    return all(
        fold(value) in words or evidence.all_terms(value) <= evidence.all_terms(said)
        for value in evidence.hard_values(text)
        if not value.isupper()
    )


def lesson_reason(text: str, quote: Quote, lines: Sequence[TranscriptLine]) -> str | None:
    """Returns why a lesson is none: it is what the assistant said itself, it is about one user, as in "The user goes to
    Lisbon.", it has a name or a number that nobody said, or no outcome shows it."""
    if quote.line.role == "assistant":
        return "said_by_assistant"
    words = [token.word for token in tokens(text)]
    first = any(word in table(name) for word in words for name in ("first_subject", "first_other"))
    if words[:2] == ["the", "user"] or first or text.startswith(table("first_subject").unspaced):
        return "of_one_user"
    if not hard_said(text, "\n".join(line.text for line in lines)):
        return "name_not_said"
    return None if _lesson_shown(text, quote, lines) else "not_shown"


def _lesson_shown(text: str, quote: Quote, lines: Sequence[TranscriptLine]) -> bool:
    """Returns whether there is evidence of a lesson: what a tool gave back, or a message of the user that says an
    outcome, a correction or a rule ("failed", "sorry", "always") and, with the two before it, a word of the lesson."""
    if any(line.role not in ("user", "assistant") for line in lines):
        return True
    at = lines.index(quote.line) if quote.line in lines else 0
    near = " ".join(line.text for line in lines[max(0, at - BEFORE) : at + 1])
    if not evidence.share_terms(text, near):
        return False
    told = quote.line.text
    shows = any(table(name).found_in(told) for name in ("outcomes", "corrections", "replacements"))
    return shows or any(quotes.denied_at_once(token.word, told) for token in tokens(told))
